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
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from ordiff import _parallel, _validation
from ordiff._compiled import csr
from ordiff._parallel import cached_property
from ordiff._validation import Array
from ordiff.graph import NeighborGraph
from ordiff.graph.layout import as_columns

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

# Edges of one part of a step that scatters, at least, and the most parts: each costs three passes over the masses.
_SCATTER_PART, _MOST_PARTS = 1_000_000, 4
# How far from 1 a row of probabilities may sum: single precision.
_ROW_SUM = 1e-5


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
        f = _validation.functions(f, self.graph.n_points)
        q = self.density if f.ndim == 1 else self.density[:, None]
        return q * self._transposed(f / q)


class MarkovChain(Generator):
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
        return self._increment(_validation.functions(f, self.graph.n_points)) / self.eps

    def _transposed(self, g: Array) -> Array:
        return (self._push(g) - g) / self.eps

    def backward(self, f: ArrayLike, steps: int = 1) -> Array:
        """P^steps f: the expectation of f after ``steps`` steps of length ε, from every sample."""
        f = _validation.functions(f, self.graph.n_points)
        return self._steps(f, _validation.count(steps, "steps", 0), forward=False)

    def forward(self, mass: ArrayLike, steps: int = 1) -> Array:
        """(Pᵀ)^steps mass: where a probability mass on the samples is after ``steps`` steps."""
        mass = _validation.functions(mass, self.graph.n_points, "mass")
        return self._steps(mass, _validation.count(steps, "steps", 0), forward=True)

    def _steps(self, f: Array, steps: int, *, forward: bool) -> Array:
        """A new array."""
        for _ in range(steps):
            f = self._push(f) if forward else self._pull(f)
        return f if steps else f.copy()

    def __matmul__(self, f: ArrayLike) -> Array:
        return self._pull(_validation.functions(f, self.graph.n_points))

    @property
    @abstractmethod
    def factors(self) -> tuple[MarkovOperator, ...]:
        """The sparse matrices whose product this is."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.graph.n_points, self.graph.n_points


class MarkovOperator(MarkovChain):
    """One sparse row-stochastic matrix on a neighbour graph, as `Kernel.operator` makes it.

    data: its edge values in the order of the graph, (E,): probabilities, of which each row sums to 1. eps: the step.
    density: of the samples, (m,).
    """

    def __init__(self, graph: NeighborGraph, data: ArrayLike, eps: float, density: ArrayLike) -> None:
        graph = _validation.instance(graph, "graph", NeighborGraph)
        values = _validation.node_vectors(data, (graph.n_edges,), "data")
        total = np.add.reduceat(values, graph._indptr[:-1])
        bad = ~(np.abs(total - 1) <= _ROW_SUM) | (np.minimum.reduceat(values, graph._indptr[:-1]) < 0)
        if bad.any():
            at = int(np.argmax(bad))
            raise ValueError(f"the rows of P must be probabilities that sum to 1; row {at} sums to {total[at]:g}.")
        q = _validation.node_or_scalar(density, graph.n_points, "density", positive=True)
        self._set(graph, graph.layout.sort_edges(values), _validation.positive(eps, "eps"), q)

    @classmethod
    def _make(
        cls,
        graph: NeighborGraph,
        sorted_data: Array,
        eps: float,
        density: Array,
        kernel: Any,
        undirected: Callable[[], Generator],
    ) -> MarkovOperator:
        """One of values that are known to be right, in the order of the graph's layout."""
        op = cls.__new__(cls)
        op._set(graph, sorted_data, eps, density, kernel, undirected)
        return op

    def _set(
        self,
        graph: NeighborGraph,
        sorted_data: Array,
        eps: float,
        density: Array,
        kernel: Any = None,
        undirected: Callable[[], Generator] | None = None,
    ) -> None:
        self.graph, self.eps, self.kernel, self._undirected = graph, eps, kernel, undirected
        self._sorted, self.density = sorted_data, density.copy()
        self.density.flags.writeable = False

    def __getstate__(self) -> dict[str, Any]:
        # in the order of the graph: another machine may lay it out otherwise
        kept = {name: value for name, value in self.__dict__.items() if not name.startswith("_scatter")}
        return {**kept, "_sorted": self._data}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._sorted = self.graph.layout.sort_edges(self._sorted)
        self.density.flags.writeable = False

    @property
    def _data(self) -> Array:
        """The edge values in the order of the graph, (E,): a copy, which is not kept."""
        return np.asarray(self.graph.layout.unsort_edges(self._sorted))

    @property
    def matrix(self) -> sp.csr_array:
        """P as a SciPy matrix. Its pattern shares the memory of the graph and is read-only; its values are a copy."""
        return self.graph.matrix(self._data)

    @property
    def factors(self) -> tuple[MarkovOperator, ...]:
        return (self,)

    def staying(self) -> Array:
        """P_ii, the probability of staying put, (m,)."""
        own = self.graph.selves - self.graph._indptr[:-1]
        return self._sorted[self.graph.layout.begins + own]

    def undirected(self) -> Generator:
        if self._undirected is None:
            raise ValueError("this operator was not built by a kernel, so the same without its orderings is unknown.")
        return self._undirected()

    def _steps(self, f: Array, steps: int, *, forward: bool) -> Array:
        if not steps:
            return f.copy()
        layout = self.graph.layout
        here = layout.sort(as_columns(f))
        there = np.empty_like(here)
        step = self._scatter_step(here.shape[1]) if forward else self._gather_step()
        for _ in range(steps):
            step(here, there)
            here, there = there, here
        return layout.unsort(here).reshape(f.shape)

    def _gather_step(self) -> Callable[[Array, Array], Any]:
        """out ← P f, in the order of the layout."""
        indptr, indices, data = self._rows
        ranges = _parallel.row_ranges(indptr)
        return lambda f, out: _parallel.over_ranges(ranges, csr.multiply, indptr, indices, data, f, out)

    def _scatter_step(self, columns: int) -> Callable[[Array, Array], Any]:
        """out ← Pᵀ mass, in the order of the layout: rows are scattered in parts, which are then added."""
        indptr, indices, data = self._rows
        m, parts = self.graph.n_points, self._scatter_parts
        even = _parallel.even_ranges(m, len(parts) * m * columns)
        room = np.empty((len(parts), m, columns))

        def scatter(mass: Array, item: tuple[_parallel.Range, Array]) -> None:
            (start, stop), target = item
            target[:] = 0.0
            csr.multiply_transposed_add(start, stop, indptr, indices, data, mass, target)

        def step(mass: Array, out: Array) -> None:
            targets = room if len(parts) > 1 else [out]
            _parallel.parallel_map(partial(scatter, mass), list(zip(parts, targets, strict=True)))
            if len(parts) > 1:
                _parallel.over_ranges(even, csr.sum_parts, room, out)

        return step

    @cached_property
    def _scatter_parts(self) -> list[_parallel.Range]:
        indptr = self.graph.layout.indptr
        least = max(_SCATTER_PART, 8 * len(indptr))
        return _parallel.cut_rows(indptr, int(np.clip(int(indptr[-1]) // least, 1, _MOST_PARTS)))

    @property
    def _rows(self) -> tuple[Any, Any, Array]:
        layout = self.graph.layout
        return layout.indptr, layout.indices, self._sorted

    def _pull(self, f: Array) -> Array:
        return self._steps(f, 1, forward=False)

    def _push(self, mass: Array) -> Array:
        return self._steps(mass, 1, forward=True)

    def _increment(self, f: Array) -> Array:
        layout = self.graph.layout
        many = layout.sort(as_columns(f))
        out = np.empty_like(many)
        _parallel.over_rows(csr.increment, *self._rows, many, out)
        return layout.unsort(out).reshape(f.shape)

    def __repr__(self) -> str:
        return f"MarkovOperator({self.graph.n_points} points, {self.graph.n_edges} edges, eps={self.eps:g})"


class Product(MarkovChain):
    """P = P_1 P_2 … P_r, applied factor by factor; the product is never formed."""

    def __init__(
        self,
        factors: tuple[MarkovOperator, ...],
        eps: float,
        *,
        kernel: Any = None,
        undirected: Callable[[], Generator],
    ) -> None:
        self._factors, self.kernel, self._undirected = tuple(factors), kernel, undirected
        if not factors:
            raise ValueError("a product needs at least one factor.")
        for factor in self._factors:
            _same_graph(_validation.instance(factor, "a factor", MarkovOperator), self._factors[0])
        self.eps = _validation.positive(eps, "eps")
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
        return self._undirected()

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

    def __init__(self, fine: MarkovChain, coarse: MarkovChain) -> None:
        self.fine = _validation.instance(fine, "fine", MarkovChain)
        self.coarse = _validation.instance(coarse, "coarse", MarkovChain)
        _same_graph(coarse, fine)
        self.graph, self.eps, self.density, self.kernel = fine.graph, fine.eps, fine.density, fine.kernel

    def generator(self, f: ArrayLike) -> Array:
        return 2.0 * self.fine.generator(f) - self.coarse.generator(f)

    def _transposed(self, g: Array) -> Array:
        return 2.0 * self.fine._transposed(g) - self.coarse._transposed(g)

    def undirected(self) -> Generator:
        fine, coarse = self.fine.undirected(), self.coarse.undirected()
        assert isinstance(fine, MarkovChain)
        assert isinstance(coarse, MarkovChain)
        return Extrapolation(fine, coarse)

    def __repr__(self) -> str:
        return f"Extrapolation({self.fine!r}, {self.coarse!r})"


def _same_graph(one: Generator, other: Generator) -> None:
    if one.graph is not other.graph and one.graph.n_points != other.graph.n_points:
        raise ValueError(
            f"operators that are combined need the same samples; these have {other.graph.n_points} and "
            f"{one.graph.n_points}."
        )
