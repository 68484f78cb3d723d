"""The process that was learned by moments: an ordering that is a formula, and one noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ordiff._parallel import cached_property
from ordiff._validation import Array
from ordiff.learning.particles import heun
from ordiff.learning.ridges import RidgeOrdering


@dataclass(frozen=True, eq=False)
class FittedProcess:
    """dx = ∇l dt + ρ dW with l a `RidgeOrdering`. All that a file keeps."""

    form: RidgeOrdering
    noise: float
    covariance: Array  # (p + 1, p + 1) of the coefficients and log ρ
    start: Array  # (s, d)
    start_weights: Array
    step: float  # of a simulation

    @property
    def log_noise_std(self) -> float:
        return float(np.sqrt(self.covariance[-1, -1]))

    @cached_property
    def _at_start(self) -> Array:
        """The mean of all functions over the start, (p,)."""
        basis = self.form.basis
        return np.asarray(self.start_weights @ basis.values(basis.transform(self.start)))

    def ordering_at(self, X: Array) -> Array:
        """l at points (p, d), 0 at the start."""
        basis = self.form.basis
        return np.asarray((basis.values(basis.transform(X)) - self._at_start) @ self.form.coefficients)

    def noise_at(self, X: Array) -> Array:
        return np.full(len(X), self.noise)

    def drift(self, X: Array) -> Array:
        """∇l at points, (p, d)."""
        basis = self.form.basis
        return np.asarray(self.form.gradient(basis.transform(X)))

    def rotation_at(self, X: Array) -> Array:
        """0: the drift is a gradient."""
        return np.zeros_like(X)

    def deviations(self, X: Array, back: Array | None) -> tuple[Array, Array]:
        """Standard deviations of the ordering, (p,), and of the drift in the coordinates to which ``back`` (d, n)
        leads, (p, n)."""
        basis, C = self.form.basis, self.covariance[:-1, :-1]
        to = np.eye(basis.dimension) if back is None else back
        ordering, drift = np.empty(len(X)), np.empty((len(X), to.shape[1]))
        root = _root(C)
        for rows in np.array_split(np.arange(len(X)), max(1, len(X) * basis.size * basis.dimension // 4_000_000)):
            u = basis.transform(X[rows])
            ordering[rows] = np.linalg.norm((basis.values(u) - self._at_start) @ root, axis=1)
            drift[rows] = np.linalg.norm(to.T @ (basis.gradients(u) @ root), axis=2)
        return ordering, drift

    def simulate(self, n: int, horizon: float, rng: np.random.Generator) -> tuple[Array, Array]:
        """Times (T,) and paths (n, T, d) from the start, by Heun's method."""
        basis, steps = self.form.basis, int(np.ceil(horizon / self.step))
        x = basis.transform(self.start[rng.choice(len(self.start), n, p=self.start_weights)])
        paths = np.empty((n, steps + 1, basis.dimension))
        paths[:, 0] = x
        for s in range(steps):
            dW = self.noise * np.sqrt(self.step) * rng.standard_normal(x.shape)
            x = heun(self.form, x, self.step, dW)[1]
            paths[:, s + 1] = x
        return self.step * np.arange(steps + 1.0), basis.centre + paths

    def speeds(self) -> Array:
        """The speed of the one ordering."""
        return np.ones(1)

    def describe(self, time: str) -> str:
        """What it is made of, in words."""
        basis = self.form.basis
        n = basis.n_ridges
        more = f" and functions of {n} direction{'s' if n > 1 else ''}" if n else ""
        return (
            f"Learned by moments in {basis.dimension} dimensions, which assumes that the ordering is a quadratic form"
            f"{more}, and that the noise is the same everywhere."
        )


def _root(C: Array) -> Array:
    """R with RRᵀ = C."""
    values, vectors = np.linalg.eigh(C)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))
