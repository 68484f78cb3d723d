"""Operators: one step of a Markov chain on the samples, its generator, and a small algebra of them.

    MarkovOperator    one sparse row-stochastic matrix P
    Product           several in a row, applied one after the other (splitting)
    Extrapolation     2 L_ε − L_2ε: a generator of second order, not a chain

All have ``generator`` and ``adjoint``; the first two also step functions back and masses forward. Functions are
(m,) or (m, c). P moves functions (backward), Pᵀ moves probability mass (forward); a density is q times a mass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from ordiff import _check, _march, _sparse, _threads
from ordiff._check import Array
from ordiff._threads import cached_property
from ordiff.graph import NeighborGraph, side_by_side

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

# Up to so many edges an operator that steps forward keeps Pᵀ too, 10 MB at most: its rows can be summed, which two
# threads do faster than they scatter those of P. Larger ones gain little.
_TURNED_EDGES = 600_000


class Generator(ABC):
    """The generator L of a diffusion on the samples of a graph, and its adjoint on densities."""

    graph: NeighborGraph
    eps: float
    density: Array
    kernel: Any

    @abstractmethod
    def generator(self, f: ArrayLike) -> Array:
        """L f."""

    @abstractmethod
    def _transposed(self, g: Array) -> Array:
        """Lᵀ g."""

    @abstractmethod
    def undirected(self) -> Generator:
        """The same operator without its orderings: diffusion, density and bandwidth terms only."""

    def adjoint(self, f: ArrayLike) -> Array:
        """L* f = q Lᵀ (f/q), on density values f. For uniform sampling it is Lᵀ f."""
        f = _check.functions(f, self.graph.n_points)
        q = self.density if f.ndim == 1 else self.density[:, None]
        return q * self._transposed(f / q)


class Chain(Generator):
    """A generator that comes from a Markov chain: L = (P − I)/ε."""

    @abstractmethod
    def _increment(self, f: Array) -> Array:
        """(P − I) f, exactly 0 for constants."""

    @abstractmethod
    def _pull(self, f: Array) -> Array:
        """P f."""

    @abstractmethod
    def _push(self, mass: Array) -> Array:
        """Pᵀ mass."""

    def generator(self, f: ArrayLike) -> Array:
        """L f = (P f − f)/ε."""
        return self._increment(_check.functions(f, self.graph.n_points)) / self.eps

    def _transposed(self, g: Array) -> Array:
        return (self._push(g) - g) / self.eps

    def backward(self, f: ArrayLike, steps: int = 1) -> Array:
        """P^steps f: the expectation of f after ``steps`` steps of length ε, from every sample."""
        f = _check.functions(f, self.graph.n_points)
        return self._steps(f, _check.count(steps, "steps", 0), forward=False)

    def forward(self, mass: ArrayLike, steps: int = 1) -> Array:
        """(Pᵀ)^steps mass: where a probability mass on the samples is after ``steps`` steps."""
        mass = _check.functions(mass, self.graph.n_points, "mass")
        return self._steps(mass, _check.count(steps, "steps", 0), forward=True)

    def _steps(self, f: Array, steps: int, *, forward: bool) -> Array:
        """A new array."""
        for _ in range(steps):
            f = self._push(f) if forward else self._pull(f)
        return f if steps else f.copy()

    def __matmul__(self, f: ArrayLike) -> Array:
        return self._pull(_check.functions(f, self.graph.n_points))

    @property
    @abstractmethod
    def factors(self) -> tuple[MarkovOperator, ...]:
        """The sparse matrices whose product this is."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.graph.n_points, self.graph.n_points


class MarkovOperator(Chain):
    """One sparse row-stochastic matrix on a neighbour graph, as `Kernel.operator` makes it.

    ``data`` are its edge values in the order of the graph, (E,), or, if ``sorted``, in that of the graph's layout.
    """

    def __init__(
        self,
        graph: NeighborGraph,
        data: Array,
        eps: float,
        density: Array,
        *,
        sorted: bool = False,
        kernel: Any = None,
        twin: Callable[[], Generator] | None = None,
    ) -> None:
        self.graph, self.eps, self.kernel, self._twin = graph, eps, kernel, twin
        data = np.ascontiguousarray(data, np.float64)
        self._layout = graph._layout
        self._stored = data if sorted else self._layout.sort_edges(data)
        self.density = density.copy()
        self.density.flags.writeable = False

    def __getstate__(self) -> dict[str, Any]:
        # in the order of the graph: another machine may lay it out otherwise
        kept = {name: value for name, value in self.__dict__.items() if name not in ("_layout", "_back", "_turned")}
        return {**kept, "_stored": self._data}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._layout = self.graph._layout
        self._stored = self._layout.sort_edges(self._stored)
        self.density.flags.writeable = False

    @property
    def _data(self) -> Array:
        """The edge values in the order of the graph, (E,). Of a large operator a copy, which is not kept."""
        return self._layout.unsort_edges(self._stored)

    @property
    def matrix(self) -> sp.csr_array:
        """P as a SciPy matrix. It shares its memory with the graph (a small one with the operator too), and is
        read-only: `.copy()` it for functions that work in place."""
        data = self._data.view()
        data.flags.writeable = False
        return self.graph.matrix(data)

    @property
    def factors(self) -> tuple[MarkovOperator, ...]:
        return (self,)

    def staying(self) -> Array:
        """P_ii, the probability of staying put, (m,)."""
        own = self.graph.selves - self.graph._indptr[:-1]
        return self._stored[self._layout.begins + own]

    def undirected(self) -> Generator:
        if self._twin is None:
            raise ValueError("this operator was not built by a kernel, so its driftless twin is unknown.")
        return self._twin()

    def _steps(self, f: Array, steps: int, *, forward: bool) -> Array:
        if not steps:
            return f.copy()
        if forward and self.graph.n_edges > _TURNED_EDGES:
            return self._scattered(f, steps)
        return (self._turned if forward else self._back)(side_by_side(f), steps).reshape(f.shape)

    @cached_property
    def _back(self) -> _march.Power:
        """f ↦ P^steps f."""
        return _march.Power(self._rows, self._layout.pattern._runs, self._order)

    @cached_property
    def _turned(self) -> _march.Power:
        """f ↦ (Pᵀ)^steps f."""
        columns = self._layout.pattern._columns
        return _march.Power((columns.indptr, columns.indices, columns.values(self._stored)), columns.runs, self._order)

    def _scattered(self, f: Array, steps: int) -> Array:
        """(Pᵀ)^steps f, without Pᵀ."""
        shares = self._layout.pattern._shares
        return _march.transposed_power(self._rows, shares, self._order, side_by_side(f), steps).reshape(f.shape)

    @property
    def _rows(self) -> _march.Matrix:
        pattern = self._layout.pattern
        return pattern._indptr, _sparse.unsigned(pattern._indices), self._stored

    @property
    def _order(self) -> NDArray[np.uint32]:
        return _march.AS_IT_IS if self._layout.order is None else self._layout.order

    def _pull(self, f: Array) -> Array:
        return self._steps(f, 1, forward=False)

    def _push(self, mass: Array) -> Array:
        return self._scattered(mass, 1)

    def _increment(self, f: Array) -> Array:
        many = side_by_side(self._layout.sort(f))
        out = np.empty_like(many)
        _threads.over_rows(_sparse.pull_difference, *self._rows, many, out)
        return self._layout.unsort(out.reshape(f.shape))

    def __repr__(self) -> str:
        return f"MarkovOperator({self.graph.n_points} points, {self.graph.n_edges} edges, eps={self.eps:g})"


class Product(Chain):
    """P = P_1 P_2 … P_r, applied factor by factor; the product is never formed."""

    def __init__(
        self, factors: tuple[MarkovOperator, ...], eps: float, *, kernel: Any = None, twin: Callable[[], Generator]
    ) -> None:
        self._factors, self.eps, self.kernel, self._twin = factors, eps, kernel, twin
        self.graph, self.density = factors[0].graph, factors[0].density

    @property
    def factors(self) -> tuple[MarkovOperator, ...]:
        return self._factors

    @property
    def matrix(self) -> LinearOperator:
        """P as a SciPy linear operator; its product with a vector is one sparse product per factor."""
        from scipy.sparse.linalg import LinearOperator

        return LinearOperator(
            self.shape, matvec=self._pull, rmatvec=self._push, matmat=self._pull, rmatmat=self._push, dtype=np.float64
        )

    def undirected(self) -> Generator:
        return self._twin()

    def _pull(self, f: Array) -> Array:
        for factor in reversed(self.factors):
            f = factor._pull(f)
        return f

    def _push(self, mass: Array) -> Array:
        for factor in self.factors:
            mass = factor._push(mass)
        return mass

    def _increment(self, f: Array) -> Array:
        # P_1 P_2 − I = (P_1 − I) P_2 + (P_2 − I)
        total = np.zeros_like(f)
        for factor in reversed(self.factors):
            step = factor._increment(f)
            f = f + step
            total += step
        return total

    def __repr__(self) -> str:
        return f"Product({len(self.factors)} factors, {self.graph.n_points} points, eps={self.eps:g})"


class Extrapolation(Generator):
    """2 L_ε − L_2ε, of error O(ε²). It is a generator, not a Markov matrix: it has no steps."""

    def __init__(self, fine: Chain, coarse: Chain) -> None:
        self.fine, self.coarse = fine, coarse
        self.graph, self.eps, self.density, self.kernel = fine.graph, fine.eps, fine.density, fine.kernel

    def generator(self, f: ArrayLike) -> Array:
        return 2.0 * self.fine.generator(f) - self.coarse.generator(f)

    def _transposed(self, g: Array) -> Array:
        return 2.0 * self.fine._transposed(g) - self.coarse._transposed(g)

    def undirected(self) -> Generator:
        fine, coarse = self.fine.undirected(), self.coarse.undirected()
        assert isinstance(fine, Chain)
        assert isinstance(coarse, Chain)
        return Extrapolation(fine, coarse)

    def __repr__(self) -> str:
        return f"Extrapolation({self.fine!r}, {self.coarse!r})"
