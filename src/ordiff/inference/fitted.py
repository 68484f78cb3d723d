"""A chain that was learned, and what can be read from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ordiff import _check
from ordiff._check import Array
from ordiff._threads import cached_property
from ordiff.inference.objective import Dynamics
from ordiff.inference.optimise import Problem, Solution
from ordiff.inference.parameters import Block, Parameters
from ordiff.kernel.compose import Kernel
from ordiff.kernel.ordering import Ordering
from ordiff.operator import MarkovOperator
from ordiff.states import States


@dataclass(frozen=True, eq=False)
class Fitted:
    """A chain that was learned."""

    states: States
    dynamics: Dynamics
    solution: Solution
    given: tuple[Ordering, ...]  # the local orderings
    ordering: Array  # (N,) corrected for the length of the step, 0 at the start
    loss: float
    history: list[float]
    converged: bool
    unreached: NDArray[np.intp]
    early: NDArray[np.intp]  # seen before the first step, and not used
    sampled: Array  # (N,) how much the samples see of each state, on average
    alpha: float = 1.0
    problem: Problem | None = None  # not kept in a file
    stored_deviation: float | None = None

    @classmethod
    def stored(
        cls, states: States, dynamics: Dynamics, given: tuple[Ordering, ...], ordering: Array, meta: dict[str, Any]
    ) -> Fitted:
        """What a file holds of a fit: without the coefficients."""
        none = Solution(np.empty(0), Parameters((), dynamics), meta["fitted"]["loss_"], None, 0.0)
        return cls(states, dynamics, none, given, ordering, meta["fitted"]["loss_"], [], meta["fitted"]["converged_"],
                   np.empty(0, np.intp), np.empty(0, np.intp), np.empty(0), meta["alpha"], None,
                   meta["level_deviation"])  # fmt: skip

    @cached_property
    def operator(self) -> MarkovOperator:
        """P on the states."""
        d = self.dynamics
        orderings = [Ordering(l, speed=s) for l, s in zip(d.orderings, d.slopes, strict=True)]
        orderings += [
            Ordering._make(o.form, o.n_points, s, 1.0, o.gradient)
            for o, s in zip(self.given, d.local_slopes, strict=True)
        ]
        kernel = Kernel(orderings, noise=d.noise, dimension=self.states.dimension)
        q = 1 / self.states.volumes
        weight = None if d.log_weight is None else np.exp(d.log_weight + self.alpha * np.log(q))
        with _check.silent():
            op = kernel.operator(self.states.graph, d.eps, density=q, alpha=self.alpha, weight=weight)
            return op if d.self_weight == 1 else _staying_less(op, d.self_weight)

    @cached_property
    def noise(self) -> Array:
        """ρ on the states, (N,), corrected for the length of the step.

        The noise of a process changes on the way through a step, to ρ² + ½εLρ² on average, with L its generator. The
        chain's is that of the state where the step begins, so that of a fit is half a step ahead: ρ²/√((ρ² + Pρ²)/2) is
        what it was, within a factor of √2 at most. The paper's setting, with samples as states, is read as it is.
        """
        rho = self.dynamics.noise
        if self.states.are_samples:
            return rho
        over = np.sqrt(0.5 * (1 + (self.operator @ rho**2) / rho**2))
        return np.asarray(rho / np.minimum(over, np.sqrt(2)))

    def drift(self, X: Array) -> Array:
        """The drift at points, (p, n)."""
        states, d = self.states, self.dynamics
        B, slopes = states.polynomials(X)
        total = np.zeros(X.shape)
        for k, (l, s) in enumerate(zip(d.orderings, d.slopes, strict=True)):
            values = self.ordering if k == 0 else l
            total += (B @ s)[:, None] * np.stack([G @ values for G in slopes], axis=1)
        for o, s in zip(self.given, d.local_slopes, strict=True):
            total += B @ (s[:, None] * o.gradient_on(states.graph, states.dimension))
        return total

    def speeds(self) -> Array:
        """The mean speed of every ordering."""
        v = self.states.volumes
        return np.array([np.average(s, weights=v) for s in (*self.dynamics.slopes, *self.dynamics.local_slopes)])

    def block(self, target: str) -> tuple[Block, slice] | None:
        p = self.solution.parameters
        return next(((b, s) for b, s in zip(p.blocks, p.slices, strict=True) if b.target == target), None)

    def strength(self, target: str) -> float | None:
        found = self.block(target)
        return None if found is None else found[0].strength

    def level_deviation(self) -> float:
        """The posterior standard deviation of the samples' mean log noise; NaN when it is not known."""
        if self.block("noise") is None or self.stored_deviation is not None:
            return self.stored_deviation or 0.0
        return float(self.deviations(sp.csr_array(self.sampled[None, :]))[1][0])

    def deviations(self, B: sp.csr_array) -> tuple[Array, Array]:
        """Posterior standard deviations at observations B: of the ordering against the start, and of log noise, as if
        it had no floor: what is at the floor is not known."""
        out = []
        for target in ("ordering", "noise"):
            found, C = self.block(target), self.solution.covariance
            if found is None or C is None or found[0].basis is None:
                out.append(np.full(B.shape[0], 0.0 if found is None else np.nan))
                continue
            U = found[0].basis
            R = B @ U
            if target == "ordering":
                R = R - self.states.start @ U
            part = C[found[1], found[1]]
            out.append(np.sqrt(np.maximum(np.einsum("ij,ij->i", R @ part, R), 0.0)))
        return out[0], out[1]


def _staying_less(op: MarkovOperator, weight: float) -> MarkovOperator:
    """The chain with its probabilities of staying put multiplied by a weight, rows scaled to sum to 1."""
    graph, data = op.graph, op._data.copy()
    data[graph.selves] *= weight
    data /= np.repeat(np.add.reduceat(data, graph._indptr[:-1]), np.diff(graph._indptr))

    return MarkovOperator(graph, data, op.eps, op.density, kernel=op.kernel, twin=_Twin(op, weight))


@dataclass(frozen=True, eq=False)
class _Twin:
    """The driftless twin of a chain that stays put less."""

    op: MarkovOperator
    weight: float

    def __call__(self) -> MarkovOperator:
        twin = self.op.undirected()
        assert isinstance(twin, MarkovOperator)
        return _staying_less(twin, self.weight)
