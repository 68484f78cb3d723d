"""Particles of dx = ∇l dt + ρ dW: their moments at all times, and how these change with every parameter.

Heun's method, of weak order 2 for a noise that does not depend on x,

    x* = x + h∇l(x) + ρΔW,        x' = x + ½h(∇l(x) + ∇l(x*)) + ρΔW,

and the derivatives S = ∂x/∂θ of these formulas (pathwise sensitivities). The random numbers are the same for all
parameters, come in pairs of opposite sign and have variance 1 over the particles, so that differences of moments are
those of the parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ordiff._parallel import cached_property
from ordiff._validation import Array
from ordiff.learning.ridges import RidgeBasis, RidgeOrdering


@dataclass(frozen=True, eq=False)
class Particles:
    """Where particles start, and their random numbers."""

    start: Array  # (N, d), rows k and k + N/2 are a pair
    step: float
    n_steps: int
    seed: int

    @cached_property
    def _halves(self) -> Array:
        """Standard normal numbers of one of each pair, (steps, N/2, d)."""
        rng, (n, d) = np.random.default_rng(self.seed), self.start.shape
        z = rng.standard_normal((self.n_steps, n // 2, d))
        return np.asarray(z / np.sqrt(np.einsum("snd,snd->sd", z, z) / (n // 2))[:, None, :])

    def increments(self) -> Iterator[Array]:
        """Standard normal numbers (N, d) of each step."""
        for z in self._halves:
            yield np.concatenate([z, -z])

    def positions(self, ordering: RidgeOrdering, noise: float) -> Iterator[Array]:
        """Those at the times 0, h, 2h, …: (N, d) each."""
        x, h = self.start, self.step
        yield x
        for z in self.increments():
            x = heun(ordering, x, h, noise * np.sqrt(h) * z)[1]
            yield x

    def sensitivities(self, ordering: RidgeOrdering, noise: float, n: int) -> Iterator[tuple[Array, Array]]:
        """Positions (n, d) of the first pairs, and their derivatives (n, d, p + 1), the last by log ρ."""
        h, p = self.step, ordering.basis.size
        half = min(n, len(self.start)) // 2
        rows = np.concatenate([np.arange(half), len(self.start) // 2 + np.arange(half)])
        x = self.start[rows]
        S = np.zeros((*x.shape, p + 1))
        yield x, S
        for z in self.increments():
            dW = noise * np.sqrt(h) * z[rows]
            ahead, new = heun(ordering, x, h, dW)
            first = _change(ordering, x, S)
            between = S + h * first
            between[:, :, p] += dW
            S = S + 0.5 * h * (first + _change(ordering, ahead, between))
            S[:, :, p] += dW
            x = new
            yield x, S


def heun(ordering: RidgeOrdering, x: Array, h: float, dW: Array) -> tuple[Array, Array]:
    """x* and x'."""
    drift = ordering.gradient(x)
    ahead = x + h * drift + dW
    return ahead, x + 0.5 * h * (drift + ordering.gradient(ahead)) + dW


def _change(ordering: RidgeOrdering, x: Array, S: Array) -> Array:
    """The derivatives of the drift at particles that move with the parameters: ∇²l S + ∂∇l/∂θ."""
    out = np.matmul(ordering.hessian(x), S)
    out[:, :, :-1] += ordering.basis.gradients(x)
    return out


def mean_values(basis: RidgeBasis, u: Array) -> Array:
    """The means of all functions over particles u (N, d): (p,)."""
    second = u.T @ u / len(u)
    ridges = [basis.ridge_functions(r, u, 0).mean(axis=0) for r in range(basis.n_ridges)]
    return np.concatenate([u.mean(axis=0), 0.5 * np.diag(second), second[basis.pairs], *ridges])


def mean_changes(basis: RidgeBasis, u: Array, S: Array) -> Array:
    """The derivatives of these means, (p, p + 1), from sensitivities S (N, d, p + 1)."""
    n, d = u.shape
    j, k = basis.pairs
    products = np.einsum("nj,nkq->jkq", u, S, optimize=True) / n  # E u_j ∂u_k
    diagonal = np.arange(d)
    ridges = [
        basis.ridge_functions(r, u, 1).T @ np.tensordot(S, w, axes=(1, 0)) / n for r, w in enumerate(basis.directions)
    ]
    return np.concatenate(
        [S.mean(axis=0), products[diagonal, diagonal], products[j, k] + products[k, j], *ridges], axis=0
    )
