"""Graphs and operators in blocks of rows by space: what is done on one block, with nothing but its own arrays.

    Cells            space cut by hyperplanes into cells of equal numbers of points
    BlockPoints      the points of one cell
    Candidates       the nearest so far of each, from the cells that were searched
    GraphBlock       the rows of one cell in a neighbour graph, on its own points and its halo
    OperatorBlock    the same rows of a Markov matrix

A halo holds the neighbours of a block's points that lie in other cells. The search is exact: a point x need not look
into a cell c when the hyperplanes around c prove that all of it is farther away than the k-th of x so far. Points whose
nearest others are nearly as far away as the cells are wide, as in many coordinates, would look into most cells. An
approximate search looks into a cell only if it may be nearer than a share of r, the distance to the k-th in the cell of
x itself: the ``reach``, chosen by the exact neighbours of a sample.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from zlib import crc32

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ordiff import _validation
from ordiff._absorbing import LinearMap, approximate_inverse
from ordiff._compiled import csr
from ordiff._sizes import Sized
from ordiff._validation import Array
from ordiff.graph import NeighborGraph
from ordiff.graph.layout import as_columns
from ordiff.graph.search import along_curve, nearest_among
from ordiff.kernel.bandwidth import Bandwidth
from ordiff.kernel.kernel import Kernel
from ordiff.kernel.metric import Metric
from ordiff.kernel.ordering import Field, Function, Ordering, Tabulated
from ordiff.kernel.profile import Gaussian, as_profile
from ordiff.kernel.terms import empty_row

Ids = NDArray[np.int64]
# By how much of their size coordinates may be off when a cell is ruled out.
_SLACK = 1e-9
# Aggregates of the preconditioner of a block, at most: their factors take 12 bytes for each pair or less; and the bytes
# of all its factors a point, about.
_AGGREGATES, _FACTORS = 1_000, 200


# -------------------------------------------------------------------------------------------------- cells


@dataclass(frozen=True, eq=False)
class Cells:
    """A binary tree of hyperplanes: at node t, points with ⟨w_t, x⟩ ≤ b_t are on the left.

    normals: (nodes, n); offsets: (nodes,); children: (nodes, 2), another node or −1 − c for the cell c; walls: of each
    cell, the nodes above it and the side (+1: left of it, −1: right); centres: (cells, n).
    """

    normals: Array
    offsets: Array
    children: Ids
    walls: tuple[tuple[tuple[int, int], ...], ...]
    centres: Array

    @classmethod
    def split(cls, sample: Array, count: int) -> Cells:
        """So many cells, each with about as many points of the sample: halved along the widest direction."""
        normals: list[Array] = []
        offsets: list[float] = []
        children: list[list[int]] = []
        walls: list[tuple[tuple[int, int], ...]] = []
        centres: list[Array] = []

        def divide(points: Array, parts: int, above: tuple[tuple[int, int], ...]) -> int:
            if parts == 1:
                walls.append(above)
                centres.append(points.mean(axis=0))
                return -len(walls)
            left = parts // 2
            away = points - points.mean(axis=0)
            w = np.linalg.eigh(away.T @ away)[1][:, -1]
            along = points @ w
            cut = float(np.quantile(along, left / parts))
            node = len(normals)
            normals.append(w)
            offsets.append(cut)
            children.append([0, 0])
            low = along <= cut
            children[node][0] = divide(points[low], left, (*above, (node, 1)))
            children[node][1] = divide(points[~low] if not low.all() else points, parts - left, (*above, (node, -1)))
            return node

        divide(sample, count, ())
        n = sample.shape[1]
        tree = np.array(children, np.int64).reshape(-1, 2)
        return cls(np.array(normals).reshape(-1, n), np.array(offsets), tree, tuple(walls), np.array(centres))

    @property
    def count(self) -> int:
        return len(self.walls)

    def of(self, X: Array) -> Ids:
        """The cell of each point, (m,)."""
        at = np.full(len(X), 0 if len(self.offsets) else -1)
        for node, (w, b) in enumerate(zip(self.normals, self.offsets, strict=True)):  # children come after parents
            here = np.flatnonzero(at == node)
            at[here] = self.children[node][(X[here] @ w > b).astype(int)]
        return -1 - at

    def distance(self, X: Array, cell: int) -> Array:
        """No point of the cell is nearer than this to X, (m,)."""
        if not self.walls[cell]:
            return np.zeros(len(X))
        nodes, sides = np.array(self.walls[cell]).T
        beyond = (X @ self.normals[nodes].T - self.offsets[nodes]) * sides
        slack = _SLACK * (np.abs(X).max(initial=0.0) + np.abs(self.offsets).max())
        return np.maximum(beyond.max(axis=1) - slack, 0.0)

    def nearest_first(self, cell: int) -> Ids:
        """The other cells, by the distances of their centres."""
        order = np.argsort(np.linalg.norm(self.centres - self.centres[cell], axis=1), kind="stable")
        return order[order != cell]


# ------------------------------------------------------------------------------------------------- search


@dataclass(frozen=True, eq=False)
class BlockPoints(Sized):
    """ids: the samples of a cell, ascending, (own,); X: their coordinates, (own, n)."""

    ids: Ids
    X: Array


@dataclass(frozen=True, eq=False)
class Candidates(Sized):
    """The nearest so far of each point, self counted: ids and distances, (own, k + 1), −1 and infinite where there are
    too few; and the points of other cells among them. within: the last distance in the own cell, (own,)."""

    points: BlockPoints
    ids: Ids
    distances: Array
    within: Array
    others: tuple[BlockPoints, ...] = ()

    def count(self) -> int:
        """The number of points."""
        return len(self.points.ids)


def pieces(X: Array, first: int, cells: Cells) -> list[BlockPoints]:
    """The rows of a chunk of the data, of which the first is sample ``first``, by cells."""
    X = _validation.points(X, minimum=1)
    of = cells.of(X)
    return [BlockPoints(first + (at := np.flatnonzero(of == c)), X[at]) for c in range(cells.count)]


def joined(*parts: BlockPoints) -> BlockPoints:
    """One cell from its pieces, in the order of the samples."""
    return BlockPoints(np.concatenate([part.ids for part in parts]), np.concatenate([part.X for part in parts]))


def own_candidates(points: BlockPoints, k: int, method: str = "exact", recall: float = 1.0) -> Candidates:
    """The k nearest of each within its cell, by a search of this method."""
    m = len(points.X)
    ids, distances = np.full((m, k + 1), -1), np.full((m, k + 1), np.inf)
    if (width := min(k + 1, m)) > 1:
        graph = NeighborGraph.build(points.X, width - 1, method=method, recall=recall)
        square = graph.sqdist.reshape(m, width)
        order = np.argsort(square, axis=1, kind="stable")
        ids[:, :width] = points.ids[np.take_along_axis(graph.indices.reshape(m, width), order, axis=1)]
        distances[:, :width] = np.sqrt(np.take_along_axis(square, order, axis=1))
    elif m:
        ids[:, 0], distances[:, 0] = points.ids, 0.0
    return Candidates(points, ids, distances, distances[:, -1])


def cells_to_search(found: Candidates, cells: Cells, cell: int, reach: float = 1.0) -> list[int]:
    """The other cells that may hold a nearer point, nearest first."""
    return [int(c) for c in cells.nearest_first(cell) if _asking(found, cells, int(c), reach).any()]


def with_cell(found: Candidates, other: BlockPoints, cells: Cells, cell: int, reach: float = 1.0) -> Candidates:
    """The candidates after the search of another cell."""
    asking = _asking(found, cells, cell, reach)
    searched = _searched(found, other, asking)
    used = np.isin(other.ids, searched.ids[asking])
    return replace(searched, others=(*found.others, BlockPoints(other.ids[used], other.X[used])))


def _asking(found: Candidates, cells: Cells, cell: int, reach: float) -> NDArray[np.bool_]:
    full = np.isfinite(found.within)  # its own cell has as many points as are wanted
    within = np.where(full, reach * np.where(full, found.within, 0.0), np.inf)
    return cells.distance(found.points.X, cell) < np.minimum(found.distances[:, -1], within)


def some_of(found: Candidates, seed: list[int], share: float) -> tuple[Array, Array, Array]:
    """Some points of a cell, (q, n), the last distance of each within it, (q,), and all its distances so far."""
    m = len(found.points.X)
    rows = np.random.default_rng(seed).choice(m, min(m, int(np.ceil(share * m))), replace=False)
    return found.points.X[rows], found.within[rows], found.distances[rows]


def nearest_in(points: BlockPoints, queries: Array, k: int) -> Array:
    """The distances of the k nearest of a cell to other points, (q, k), infinite where there are fewer."""
    out = np.full((len(queries), k), np.inf)
    width = min(k, len(points.X))
    if width:
        out[:, :width] = nearest_among(points.X, queries, width)[1]
    return out


def reach_for(
    cells: Cells, queries: Array, within: Array, found: Array, distances: list[Array], recall: float
) -> float:
    """The reach with which queries (q, n) find this share of their k nearest others.

    found: the distances found in their own cells, (q, k + 1); distances: of each cell, those of the k + 1 nearest to
    every query, itself counted, (q, k + 1).
    """
    width = found.shape[1]
    near = np.argsort(np.hstack(distances), axis=1, kind="stable")[:, 1:width] // width  # their cells
    elsewhere = near != cells.of(queries)[:, None]
    missing = int(np.ceil((recall - recall_of(found, distances)) * near.size))
    if missing <= 0:
        return 0.0
    bounds = np.stack([cells.distance(queries, c) for c in range(cells.count)], axis=1)
    needed = np.take_along_axis(bounds, near, axis=1) / np.maximum(within, np.finfo(float).tiny)[:, None]
    needed = np.sort(needed[elsewhere])
    return min(1.0, float(needed[missing - 1]) * (1 + 1e-9) + 1e-12) if missing <= needed.size else 1.0


def recall_of(found: Array, distances: list[Array]) -> float:
    """The share of the nearest others that are among those found, from the distances of these, (q, k + 1), and of the
    nearest in each cell."""
    last = np.sort(np.hstack(distances), axis=1)[:, [found.shape[1] - 1]]
    return float((found[:, 1:] <= last * (1 + 1e-12)).mean())


def _searched(found: Candidates, other: BlockPoints, asking: NDArray[np.bool_]) -> Candidates:
    if not (asking.any() and other.ids.size):
        return found
    width = found.ids.shape[1]
    near, distances = nearest_among(other.X, found.points.X[asking], min(width, other.ids.size))
    ids = np.hstack([found.ids[asking], other.ids[near]])
    distances = np.hstack([found.distances[asking], distances])
    order = np.argsort(distances, axis=1, kind="stable")[:, :width]
    all_ids, all_distances = found.ids.copy(), found.distances.copy()
    all_ids[asking] = np.take_along_axis(ids, order, axis=1)
    all_distances[asking] = np.take_along_axis(distances, order, axis=1)
    return replace(found, ids=all_ids, distances=all_distances)


# ------------------------------------------------------------------------------------------ graph and operator


@dataclass(frozen=True, eq=False)
class GraphBlock(Sized):
    """own: points of the block; ids: the samples that they and then their halo are; graph: a graph of all these, whose
    first ``own`` rows are those of the whole graph. A point of the halo has no neighbour but itself."""

    own: int
    ids: Ids
    graph: NeighborGraph

    @classmethod
    def of(cls, found: Candidates) -> GraphBlock:
        points, own, width = found.points, len(found.points.ids), found.ids.shape[1]
        halo = joined(BlockPoints(np.empty(0, np.int64), points.X[:0]), *found.others)
        used = np.isin(halo.ids, found.ids)
        ids, X = np.concatenate([points.ids, halo.ids[used]]), np.concatenate([points.X, halo.X[used]])
        order = np.argsort(ids, kind="stable")
        rows = order[np.searchsorted(ids[order], found.ids)]
        edges = own * width + len(ids) - own
        dtype = csr.index_dtype(edges)
        indptr = np.concatenate([np.arange(own) * width, np.arange(own * width, edges + 1)]).astype(dtype)
        indices = np.concatenate([rows.ravel(), np.arange(own, len(ids))]).astype(dtype)
        return cls(own, ids, NeighborGraph._finish(indptr, indices, np.ascontiguousarray(X)))

    def described(self) -> tuple[int, Ids, int, int]:
        """The number of its points, the samples that they and their halo are, the number of coordinates, and the
        checksum."""
        return self.own, self.ids, _validation.need_points(self.graph._X, "a block").shape[1], self._checksum

    @property
    def _checksum(self) -> int:
        """A number that other neighbours, or the same in another order, hardly have."""
        return crc32(self.graph._indices.tobytes(), crc32(self.ids.tobytes()))

    def check(self, known: int) -> None:
        """Refuse a block that is not the one whose checksum the client has."""
        if self._checksum != known:
            raise ValueError(
                "a block of the graph was lost, and found to have other neighbours when it was computed again, as may "
                'be on another kind of processor: build the graph again, or with method="exact".'
            )

    def rows(self, known: int) -> tuple[Array, Any]:
        """The coordinates of its points, and their neighbours, (own, k + 1); known: its checksum."""
        self.check(known)
        X, graph = _validation.need_points(self.graph._X, "a block"), self.graph
        return X[: self.own], graph._indices[: graph._indptr[self.own]].reshape(self.own, -1)

    def radius(self, k: int) -> Array:
        """The distance to the k-th other, (own,)."""
        return self.graph.radius(k, pad=True)[: self.own]

    def aggregates(self, count: int) -> NDArray[np.intp]:
        """The points in so many groups of near ones, (own,)."""
        rank = np.empty(self.own, np.intp)
        rank[along_curve(self.graph._X[: self.own])] = np.arange(self.own)  # type: ignore[index]
        return rank * count // self.own


@dataclass(frozen=True, eq=False)
class StepSummary:
    """What tells whether a step is too long or too short, (own,) each."""

    horizon: Array
    variance: Array
    staying: Array
    spacing: Array


@dataclass(frozen=True, eq=False)
class OperatorBlock(Sized):
    """Rows of P on the ``size`` points of a block and its halo: ``data`` but for P_ii, which is ``staying``; ``moving``
    is Σ_{j≠i} P_ij, 1 − P_ii without its cancellation, (own,) each."""

    own: int
    size: int
    indptr: Any
    indices: Any
    data: Array
    staying: Array
    moving: Array

    @classmethod
    def of(
        cls, block: GraphBlock, known: int, kernel: Kernel, eps: float, log_weight: Array, self_weight: float
    ) -> tuple[OperatorBlock, StepSummary]:
        """known: the checksum of the block; kernel: that of the points of the block and its halo, as `restricted` makes
        it."""
        block.check(known)
        own, graph = block.own, block.graph
        # a copy, so that what it caches, such as its layout, is not kept with the block
        graph = NeighborGraph._make(graph._indptr, graph._indices, graph._sqdist, graph._X, None, graph._known_summary)
        kernel = kernel.on(graph)
        data = np.asarray(
            graph.layout.unsort_edges(kernel.transition(graph, eps, log_weight, self_weight, strict=False))
        )
        last = int(graph._indptr[own])
        with np.errstate(invalid="ignore"):
            empty = ~(np.abs(np.add.reduceat(data[:last], graph._indptr[:own]) - 1) < 0.5)
        if empty.any():
            raise empty_row(int(block.ids[:own][empty].min()), eps)
        summary = StepSummary(
            graph.horizon[:own],
            eps * kernel.widest_on(graph)[:own],
            data[graph.selves[:own]],
            graph.spacing[:own] / kernel.bandwidth_on(graph).diffusion()[:own],
        )
        data, indptr = data[:last].copy(), graph._indptr[: own + 1]
        data[graph.selves[:own]] = 0.0
        moving = np.add.reduceat(data, indptr[:-1])
        indices = csr.unsigned(graph._indices[:last].copy())
        return cls(own, len(block.ids), indptr, indices, data, summary.staying, moving), summary

    def pull(self, f: Array) -> Array:
        """P f on the block, (own, c), from f on it and its halo."""
        return self._by_rows(csr.multiply, f) + self.staying[:, None] * as_columns(f)[: self.own]

    def increment(self, f: Array) -> Array:
        """(P − I) f on the block."""
        return self._by_rows(csr.increment, f)

    def _by_rows(self, loop: Any, f: Array) -> Array:
        many = as_columns(f)
        out = np.empty((self.own, many.shape[1]))
        loop(0, self.own, self.indptr, self.indices, self.data, many, out)
        return out

    def push(self, mass: Array) -> Array:
        """Pᵀ mass on block and halo, (size, c), from the mass on the block, (own, c)."""
        out = self._moved(mass)
        out[: self.own] += self.staying[:, None] * as_columns(mass)
        return out

    def _moved(self, mass: Array) -> Array:
        """What leaves each point for others, (size, c)."""
        many = as_columns(mass)
        out = np.zeros((self.size, many.shape[1]))
        csr.multiply_transposed_add(0, self.own, self.indptr, self.indices, self.data, many, out)
        return out

    def coarse(self, label: NDArray[np.intp], count: int) -> sp.csr_array:
        """Σ P_ij over i and j of each pair of groups, i ≠ j, (count, count); label: of block and halo, −1 for none."""
        rows = np.repeat(np.arange(self.own), np.diff(self.indptr))
        a, b = label[rows], label[self.indices]
        kept = (a >= 0) & (b >= 0) & (self.indices != rows)
        return sp.csr_array((self.data[kept], (a[kept], b[kept])), shape=(count, count))


@dataclass(frozen=True, eq=False)
class OwnSystem:
    """I − Q among the free points of a block, and its approximate inverse: the preconditioner of `_absorbing`, which is
    made where it is first used and never sent. free: (own,)."""

    block: OperatorBlock
    free: NDArray[np.bool_]

    def __reduce__(self) -> Any:
        return OwnSystem, (self.block, self.free)

    def __sizeof__(self) -> int:
        return _FACTORS * self.free.size  # the block is counted where it is kept

    def matrix(self) -> sp.csr_array:
        """I − Q, its diagonal without the cancellation of 1 − P_ii."""
        block, free = self.block, self.free
        indices = block.indices.view(np.dtype(block.indices.dtype.name.removeprefix("u")))
        P = sp.csr_array((block.data, indices, block.indptr), shape=(block.own, block.size))
        Q = sp.csr_array(P[free][:, : block.own][:, free])
        Q.eliminate_zeros()
        return sp.csr_array(sp.diags_array(block.moving[free]) - Q)

    def product(self, x: Array, transposed: bool) -> Array:
        """(I − Q) x, or its transpose, without the cancellation of 1 − P_ii."""
        block = self.block
        padded = np.zeros(block.size)
        padded[: block.own][self.free] = x
        moved = block._moved(padded[: block.own]) if transposed else block._by_rows(csr.multiply, padded)
        return np.asarray(block.moving[self.free] * x - moved[: block.own, 0][self.free])

    @cached_property
    def _inverse(self) -> LinearMap:
        matrix = self.matrix()
        return approximate_inverse(matrix, np.maximum(matrix.sum(axis=1), 0.0), self.product, _AGGREGATES)

    def apply(self, b: Array, transposed: bool) -> Array:
        return self._inverse(b, transposed) if b.size else b


# -------------------------------------------------------------------------------------------------- kernels


@dataclass(frozen=True, eq=False)
class _Renamed:
    """A function of pairs of all samples, on some of them."""

    function: Any
    ids: Ids

    def __call__(self, i: Any, j: Any) -> Any:
        return self.function(self.ids[i], self.ids[j])


def check_local(kernel: Kernel) -> None:
    """A kernel whose parts are known at every sample, without a look at the whole graph."""
    gaussian = type(as_profile(kernel.profile)) is Gaussian
    anisotropic = kernel.anisotropy is not None
    if (not gaussian or (anisotropic and kernel.basis is None)) and kernel.dimension is None:
        raise ValueError("in blocks, this kernel needs the dimension of the data: give Kernel(..., dimension=d).")
    for ordering in kernel.ordering:
        needed = not gaussian or (anisotropic and not kernel.coupled) or isinstance(ordering.scale, str)
        if needed and ordering.gradient is None:
            raise ValueError(
                "in blocks, this kernel needs the gradient of its ordering, which is not estimated there: give "
                "Ordering(..., gradient=...), or a scale that is a number or an array."
            )


def restricted(kernel: Kernel, ids: Ids) -> Kernel:
    """The same kernel on some of the samples."""

    def at(values: Any) -> Any:
        return values if values is None or isinstance(values, str) or np.ndim(values) == 0 else np.asarray(values)[ids]

    def ordering_at(ordering: Ordering) -> Ordering:
        form: Any = ordering.form
        if isinstance(form, Tabulated):
            form = Tabulated(np.ascontiguousarray(form.values[:, ids]), form.row[ids])
        elif isinstance(form, Field):
            form = Field(form.vectors[ids])
        else:
            form = Function(_Renamed(form.fn, ids), form.pure)
        return Ordering._make(form, len(ids), at(ordering.speed), at(ordering.scale), at(ordering.gradient))

    rho: Any = kernel.noise
    A: Any = kernel.anisotropy
    return replace(
        kernel,
        ordering=tuple(ordering_at(ordering) for ordering in kernel.ordering),
        noise=Bandwidth(at(rho.left), at(rho.right)) if isinstance(rho, Bandwidth) else at(rho),
        noise_right=at(kernel.noise_right),
        anisotropy=Metric(at(A.directions), at(A.variances), at(A.normal)) if isinstance(A, Metric) else at(A),
        basis=at(kernel.basis),
    )
