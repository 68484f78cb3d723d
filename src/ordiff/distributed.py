"""Graphs and operators that do not fit one process, in blocks on the workers of a Dask cluster.

    build_graph           the k nearest of the rows of a Dask array: a `DistributedGraph`
    operator              a kernel on it: a `DistributedOperator`, with the interface of `MarkovOperator`
    stationary, fate_probabilities    as those of `passage`, by GMRES on blocks with a checked residual

The graph, the matrix and the coordinates live on the workers; functions and masses on the samples, (m,), live on the
client, which sends each block its own values and those of its halo, and gets back the rows of the result. Every task is
a function of the data and of its arguments alone, so that a worker that is lost costs time but changes nothing: Dask
computes its blocks again. Beside functions, the client holds 8 bytes for each point of a block and of its halo.

It needs the extra ``distributed`` and a `dask.distributed.Client` that is connected. It is the only file that imports
Dask. Sizes, times and clusters: docs/scaling.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from operator import attrgetter, getitem, itemgetter
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from ordiff import _blocks, _validation
from ordiff._block_passage import fate_probabilities, stationary
from ordiff._blocks import Candidates, Cells, GraphBlock, OperatorBlock, OwnSystem, StepSummary
from ordiff._validation import Array
from ordiff.geometry import ball_density
from ordiff.graph import NeighborGraph
from ordiff.graph.layout import offsets
from ordiff.kernel.kernel import Kernel
from ordiff.kernel.resolution import warn_if_cut, warn_if_stuck
from ordiff.operator import MarkovChain, MarkovOperator

__all__ = ["DistributedGraph", "DistributedOperator", "build_graph", "fate_probabilities", "operator", "stationary"]

# Points of a block, about, and rows of the sample by which the cells are cut.
_BLOCK_POINTS, _SAMPLE = 100_000, 50_000
# Points whose neighbours are found exactly, to choose how far an approximate search reaches and to measure it; and the
# least share of its neighbours that `NeighborGraph.build` can be asked for.
_QUERIES, _LEAST_RECALL = 1_000, 0.98
# Neighbours behind density="knn", as for a graph in memory.
_DENSITY_NEIGHBORS = 12
# Parts of functions are sent as arguments of tasks, of any size: what is scattered is lost with its worker.
_NO_WARNING = {"distributed.admin.large-graph-warning-threshold": "1TB"}
# Seconds after which it is asked whether workers that have not answered are stopped; twice, and it is an error.
_PATIENCE = 30.0
# Packages whose versions on the workers must be those of the client.
_PACKAGES = ("ordiff", "numpy", "scipy", "numba", "scikit-learn", "dask", "distributed")


# -------------------------------------------------------------------------------------------------- the cluster


def _client(client: Any) -> Any:
    """The client that was given, or the one that is connected; with workers of the same versions."""
    try:
        from dask.distributed import get_client
    except ImportError:
        raise _validation.missing_extra("dask", "distributed", "ordiff.distributed") from None
    if client is None:
        try:
            client = get_client()
        except ValueError:
            raise ValueError("no Dask client is connected: make one, dask.distributed.Client(...), first.") from None
    with _told():
        check_versions(_versions(), client.run(_versions))
    return client


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version
    from platform import python_version

    from ordiff import __version__

    found = {"python": python_version(), "ordiff": __version__}
    for name in _PACKAGES[1:]:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    return found


def check_versions(here: dict[str, str], workers: dict[str, dict[str, str]]) -> None:
    """Refuse workers whose versions differ from those of the client, in words."""
    if not workers:
        raise ValueError("the Dask cluster has no workers.")
    for address, there in workers.items():
        different = [f"{name} {there.get(name, 'none')} (here {v})" for name, v in here.items() if there.get(name) != v]
        if different:
            raise ValueError(
                f"the worker {address} has other versions than the client: {', '.join(different)}. Results could "
                "differ from block to block: install the same everywhere."
            )


@contextmanager
def _told() -> Iterator[None]:
    """A scheduler that is gone, in words."""
    from dask.distributed import CancelledError
    from distributed.client import ClosedClientError
    from distributed.comm import CommClosedError

    try:
        yield
    except (CancelledError, ClosedClientError, CommClosedError) as error:
        raise ConnectionError(
            f"the Dask scheduler is gone ({type(error).__name__}): what was on its workers is lost. Connect to another "
            "and begin again."
        ) from error


def _submit(client: Any, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    import dask

    with _told(), dask.config.set(_NO_WARNING):
        return client.submit(function, *arguments, pure=False, **options)


def _map(client: Any, function: Callable[..., Any], *arguments: Sequence[Any], **options: Any) -> list[Any]:
    """The function of each block."""
    import dask

    with _told(), dask.config.set(_NO_WARNING):
        return list(client.map(function, *arguments, pure=False, **options))


def _gather(client: Any, futures: Sequence[Any]) -> list[Any]:
    with _told():
        _wait(client, futures)
        return list(client.gather(list(futures)))


def _wait(client: Any, futures: Sequence[Any]) -> None:
    """Until the futures are there or one has failed; workers that have stopped for want of memory would never make
    them."""
    from dask.distributed import wait

    stopped = False
    while True:
        try:
            with client.as_current():
                wait(list(futures), timeout=_PATIENCE)
            return
        except TimeoutError:
            if any(future.status == "error" for future in futures):
                return
            before, stopped = stopped, _stopped(client.scheduler_info(n_workers=-1)["workers"].values())
        if before and stopped:
            raise MemoryError(
                "all workers have been paused by Dask, since their memory is full: give them more memory "
                "(memory_limit), or more workers, or make smaller chunks or more blocks (n_blocks)."
            )


def _stopped(workers: Any) -> bool:
    """Whether all workers are paused and none has a task that still runs, which might free memory."""
    return bool(workers) and all(
        one["status"] == "paused" and not one["metrics"].get("task_counts", {}).get("executing") for one in workers
    )


def is_dask_array(X: Any) -> bool:
    return hasattr(X, "to_delayed") and hasattr(X, "rechunk")


def row_chunks(X: Any, times: Any = None, sample_weight: Any = None) -> list[tuple[int, list[Any]]]:
    """The number of rows of each chunk of X, and its rows, with their times and weights where these are given."""
    import dask.array as da

    X = _whole_rows(X)
    m, columns = len(X), [X.to_delayed()[:, 0]]
    for values, name, shapes in ((times, "times", ((m,), (m, 2))), (sample_weight, "sample_weight", ((m,),))):
        if values is None:
            continue
        array = values if is_dask_array(values) else da.from_array(_validation.as_float(values, name))
        if np.isnan(array.shape[0]):
            array = array.copy().compute_chunk_sizes()
        if array.shape not in shapes:
            raise ValueError(f"{name} must have one value per sample, shape ({m},); got shape {array.shape}.")
        array = array.rechunk({0: X.chunks[0]} if array.ndim == 1 else {0: X.chunks[0], 1: -1})
        columns.append(array.to_delayed().ravel())
    return list(zip(X.chunks[0], map(list, zip(*columns, strict=True)), strict=True))


def computed(client: Any, parts: Sequence[Any]) -> list[Any]:
    """Futures of parts of Dask arrays, read on the workers."""
    with _told():
        return [client.compute(part) for part in parts]


def map_rows(function: Callable[[Array], Array], X: Any, n: int, vectors: bool) -> Any:
    """A function of points (p, n) on the rows of a Dask array, lazily: (m,), or (m, n) where it gives vectors."""
    from dask import delayed

    X = _whole_rows(X)
    if X.shape[1] != n:
        raise ValueError(f"X has {X.shape[1]} coordinates; the model was learned from {n}.")
    function = delayed(function, pure=False)  # sent once, not with each chunk
    if vectors:
        return X.map_blocks(_applied, function=function, meta=np.empty((0, n)))
    return X.map_blocks(_applied, function=function, drop_axis=1, meta=np.empty(0))


def _applied(X: Array, function: Callable[[Array], Array]) -> Array:
    return function(_validation.points(X, minimum=1))


# ------------------------------------------------------------------------------------------------------ graph


class DistributedGraph:
    """The k nearest others of m samples, in blocks of rows by space. Make one with `build_graph`.

    ids: of each block the samples that its points and then those of its halo are; own: the number of its points;
    checksums: of its neighbours, by which a block that was computed again is known.
    ``recall_``: the share of the nearest that were found, on a sample; 1 of an exact graph.
    """

    def __init__(self, client: Any, k: int, blocks: Sequence[Any], recall: float = 1.0) -> None:
        self.client, self.k, self.blocks, self.recall_ = client, k, tuple(blocks), recall
        found = _gather(client, _map(client, GraphBlock.described, blocks))
        self.own = tuple(own for own, *_ in found)
        self.ids = tuple(ids for _, ids, *_ in found)
        self.n_coordinates = int(found[0][2])
        self.checksums = tuple(checksum for *_, checksum in found)
        self.n_points = sum(self.own)

    @property
    def n_edges(self) -> int:
        return self.n_points * (self.k + 1)

    @property
    def halo(self) -> int:
        """The number of points in all halos: what a step sends beside the samples."""
        return sum(len(ids) - own for own, ids in zip(self.own, self.ids, strict=True))

    def collect(self) -> NeighborGraph:
        """The same graph in the memory of the client."""
        m, width = self.n_points, self.k + 1
        indptr = offsets(np.full(m, width))
        X, indices = np.empty((m, self.n_coordinates)), np.empty((m, width), indptr.dtype)
        for block, known, ids, own in zip(self.blocks, self.checksums, self.ids, self.own, strict=True):
            X[ids[:own]], rows = _gather(self.client, [_submit(self.client, GraphBlock.rows, block, known)])[0]
            indices[ids[:own]] = ids[rows]
        return NeighborGraph._finish(indptr, indices.ravel(), X)

    def radius(self, k: int) -> Array:
        """The distance to the k-th nearest other of every sample, (m,), as `NeighborGraph.radius`."""
        k = _validation.count(k, "k", 1, self.k)
        return self.gathered(_gather(self.client, _map(self.client, GraphBlock.radius, self.blocks, k=k)))

    def gathered(self, parts: Sequence[Array]) -> Array:
        """A function on the samples, (m, …), from its values on the points of each block."""
        out = np.empty((self.n_points, *np.shape(parts[0])[1:]))
        for ids, own, part in zip(self.ids, self.own, parts, strict=True):
            out[ids[:own]] = part
        return out

    def __repr__(self) -> str:
        return f"DistributedGraph({self.n_points} points, {self.n_edges} edges, {len(self.blocks)} blocks)"


def build_graph(
    X: Any, k: int, *, n_blocks: int | None = None, method: str = "exact", recall: float = 0.98, client: Any = None,
    random_state: int = 0,
) -> DistributedGraph:  # fmt: skip
    """The graph of the ``k`` nearest others of the rows of a Dask array.

    X: (m, n), in chunks of rows, which are read where the workers are. n_blocks: blocks of rows by space, by default
    one for each 100,000 samples and at least one a worker; a worker holds some at a time, each with those of its
    neighbours. The cells are cut by a sample of the rows, seeded by ``random_state``: they change where rows are kept,
    not an exact graph. client: by default the one that is connected.

    method: "exact", or "approximate". In more than about 6 coordinates without structure a point's neighbours may be in
    most of the cells, and an exact search then costs as much as comparing all pairs. An approximate one searches a
    block's own cell as `NeighborGraph.build` does by default, with faiss where that is faster, and looks only into
    cells that are near, so that it finds the share ``recall`` of the neighbours of a sample; ``graph.recall_`` is the
    share on another sample.
    """
    _validation.option(method, "method", ("exact", "approximate"))
    recall = _validation.share(recall, "recall")
    client = _client(client)
    chunks = [(size, rows) for size, (rows,) in row_chunks(X)]
    m = int(sum(size for size, _ in chunks))
    k = _validation.count(k, "k", 1, m - 1, f"There are only {m} points.")
    if n_blocks is None:
        n_blocks = max(len(client.nthreads()), -(-m // _BLOCK_POINTS))
    count = _validation.count(n_blocks, "n_blocks", 1, max(1, m // (k + 1)), f"Blocks need {k + 1} of {m} points each.")
    share = min(1.0, _SAMPLE / m)
    futures = computed(client, [part for _, part in chunks])
    sample = np.concatenate(
        _gather(client, [_submit(client, _sample, x, share, [random_state, i]) for i, x in enumerate(futures)])
    )
    cells = Cells.split(sample, count)
    first = np.concatenate([[0], np.cumsum([size for size, _ in chunks])]).tolist()
    split = [_submit(client, _blocks.pieces, x, first[i], cells) for i, x in enumerate(futures)]
    # piece by piece, so that no worker gets the chunks whole
    parts = [_map(client, getitem, [one] * count, range(count)) for one in split]
    points = [_submit(client, _blocks.joined, *cell) for cell in zip(*parts, strict=True)]
    reach, options = 1.0, {}
    if method == "approximate":
        options = {"method": "auto", "recall": max((1 + recall) / 2, _LEAST_RECALL)}  # the other half by the reach
    found = _map(client, _blocks.own_candidates, points, k=k, **options)
    if method == "approximate":
        queries, within, here = _some_of(client, found, m, random_state)
        near = _gather(client, _map(client, _blocks.nearest_in, points, queries=queries, k=k + 1))
        chosen = [one[::2] for one in near]
        reach = _blocks.reach_for(cells, queries[::2], within[::2], here[::2], chosen, recall)
    options = {"cells": cells, "reach": reach}
    asked = _gather(
        client, [_submit(client, _blocks.cells_to_search, f, cell=c, **options) for c, f in enumerate(found)]
    )
    for c, others in enumerate(asked):
        for other in others:
            found[c] = _submit(client, _blocks.with_cell, found[c], points[other], cell=other, **options)
    reached = 1.0
    if method == "approximate":
        reached = _blocks.recall_of(_some_of(client, found, m, random_state)[2][1::2], [one[1::2] for one in near])
    # a cell is empty where more points than it should hold are in one place
    sizes = _gather(client, _map(client, Candidates.count, found))
    kept = [one for one, size in zip(found, sizes, strict=True) if size]
    return DistributedGraph(client, k, _map(client, GraphBlock.of, kept), reached)


def _some_of(client: Any, found: Sequence[Any], m: int, random_state: int) -> tuple[Array, ...]:
    """Of a sample of all points: themselves, their last distances within their cells, all their distances so far."""
    seeds, share = [[random_state, c] for c in range(len(found))], min(1.0, _QUERIES / m)
    some = _gather(client, _map(client, _blocks.some_of, found, seeds, share=share))
    return tuple(np.concatenate(part) for part in zip(*some, strict=True))


def _whole_rows(X: Any) -> Any:
    """A Dask array (m, n) in chunks of whole rows, their sizes known."""
    if not is_dask_array(X):
        raise ValueError(f"X must be a Dask array; got {type(X).__name__}. dask.array.from_array makes one.")
    if X.ndim != 2:
        raise ValueError(f"X must have shape (points, coordinates); got {X.ndim} dimension(s).")
    if np.isnan(X.shape[0]):
        X = X.copy().compute_chunk_sizes()
    return X.rechunk({1: -1})


def _sample(X: Array, share: float, seed: list[int]) -> Array:
    size = min(len(X), int(np.ceil(share * len(X))))
    return _validation.points(X, minimum=1)[np.random.default_rng(seed).choice(len(X), size, replace=False)]


# --------------------------------------------------------------------------------------------------- operator


def operator(
    kernel: Kernel,
    graph: DistributedGraph,
    eps: float,
    density: ArrayLike | str | None = None,
    alpha: float = 1.0,
    weight: ArrayLike | None = None,
    self_weight: float = 1.0,
) -> DistributedOperator:
    """`Kernel.operator` on a distributed graph: the same matrix, in blocks of rows.

    density: None, (m,), or "knn", which needs the dimension of the kernel. Gradients of orderings and dimensions are
    not estimated in blocks: where the kernel needs them they must be given. Orderings by a function of pairs (`local`,
    `cyclic`, `partial`) are sent to every worker whole.
    """
    _validation.instance(kernel, "kernel", Kernel)
    _validation.instance(graph, "graph", DistributedGraph)
    _blocks.check_local(kernel)
    eps, alpha = _validation.positive(eps, "eps"), _validation.number(alpha, "alpha")
    self_weight, m = _validation.positive(self_weight, "self_weight"), graph.n_points
    for ordering in kernel.ordering:
        if ordering.n_points not in (None, m):
            raise ValueError(f"the ordering is for {ordering.n_points} samples, but the graph has {m}.")
    q = _density(kernel, graph, density)
    log_weight = -alpha * np.log(q)
    if weight is not None:
        log_weight = log_weight + np.log(_validation.node_or_scalar(weight, m, "weight", positive=True))
    made = []
    for block, known, ids in zip(graph.blocks, graph.checksums, graph.ids, strict=True):
        part = (known, _blocks.restricted(kernel, ids), eps, log_weight[ids], self_weight)
        made.append(_submit(graph.client, OperatorBlock.of, block, *part))
    _warn_of_step(kernel, graph, eps, _gather(graph.client, _map(graph.client, itemgetter(1), made)))
    op = DistributedOperator(graph, _map(graph.client, itemgetter(0), made), eps, q, kernel)
    op._undirected = lambda: operator(kernel.undirected(), graph, eps, q, alpha, weight, self_weight)
    return op


def _density(kernel: Kernel, graph: DistributedGraph, density: ArrayLike | str | None) -> Array:
    if density is None:
        return np.ones(graph.n_points)
    if not isinstance(density, str):
        return _validation.node_or_scalar(density, graph.n_points, "density", positive=True)
    _validation.option(density, "density", ("knn",))
    d = kernel.known_dimension
    if d is None:
        raise ValueError('density="knn" in blocks needs the dimension of the data: give Kernel(..., dimension=d).')
    k = min(_DENSITY_NEIGHBORS, graph.k)
    return ball_density(_validation.apart(graph.radius(k), k, "density is infinite"), k, graph.n_points, d)


def _warn_of_step(kernel: Kernel, graph: DistributedGraph, eps: float, blocks: list[StepSummary]) -> None:
    def all_of(name: str) -> Array:
        return np.concatenate([getattr(block, name) for block in blocks])

    warn_if_cut(all_of("horizon"), all_of("variance"), eps, kernel.known_dimension or 1)
    warn_if_stuck(all_of("staying"), eps, all_of("spacing"))


class DistributedOperator(MarkovChain):
    """A row-stochastic matrix in blocks of rows, as `operator` makes it; its steps are those of `MarkovOperator`."""

    graph: DistributedGraph  # type: ignore[assignment]

    def __init__(self, graph: DistributedGraph, blocks: Sequence[Any], eps: float, density: Array, kernel: Any) -> None:
        self.graph, self.blocks, self.eps, self.kernel = graph, tuple(blocks), eps, kernel
        self.density = density.copy()
        self.density.flags.writeable = False
        self._undirected: Callable[[], DistributedOperator] | None = None

    @property
    def factors(self) -> tuple[MarkovOperator, ...]:
        raise ValueError("a distributed operator has no matrix in memory: ask ordiff.distributed for what needs one.")

    def undirected(self) -> DistributedOperator:
        assert self._undirected is not None
        return self._undirected()

    def _each(self, function: Callable[..., Any], *arguments: Sequence[Any], blocks: Any = None, **options: Any) -> Any:
        """The function of each block and of its part of the arguments."""
        client = self.graph.client
        blocks = self.blocks if blocks is None else blocks
        return _gather(client, _map(client, function, blocks, *arguments, **options))

    def _by_rows(self, method: Callable[..., Array], f: Array) -> Array:
        return self.graph.gathered(self._each(method, [f[ids] for ids in self.graph.ids])).reshape(f.shape)

    def _pull(self, f: Array) -> Array:
        return self._by_rows(OperatorBlock.pull, f)

    def _increment(self, f: Array) -> Array:
        return self._by_rows(OperatorBlock.increment, f)

    def _push(self, mass: Array) -> Array:
        graph, many = self.graph, mass.reshape(len(mass), -1)
        inside = [many[ids[:own]] for ids, own in zip(graph.ids, graph.own, strict=True)]
        parts = self._each(OperatorBlock.push, inside)
        out = np.zeros_like(many)
        for ids, part in zip(graph.ids, parts, strict=True):
            out[ids] += part
        return out.reshape(mass.shape)

    @cached_property
    def moving(self) -> Array:
        """The probability to leave each sample in a step, (m,)."""
        return self.graph.gathered(self._each(attrgetter("moving")))

    def groups(self, total: int) -> NDArray[np.intp]:
        """The samples in about so many groups of near ones, numbered from 0, (m,)."""
        graph = self.graph
        counts = [max(1, total * own // graph.n_points) for own in graph.own]
        first = np.concatenate([[0], np.cumsum(counts)[:-1]])
        parts = zip(first, self._each(GraphBlock.aggregates, counts, blocks=graph.blocks), strict=True)
        return graph.gathered([a + part for a, part in parts]).astype(np.intp)

    def block_inverse(self, free: NDArray[np.bool_]) -> Callable[[Array, bool], Array]:
        """An approximate solution of (I − Q) x = b, (m,), or of its transpose, within each block by itself."""
        graph = self.graph
        own = [ids[:n] for ids, n in zip(graph.ids, graph.own, strict=True)]
        inside = [ids[free[ids]] for ids in own]
        systems = _map(graph.client, OwnSystem, self.blocks, [free[ids] for ids in own])

        def inverse(b: Array, transposed: bool) -> Array:
            out = np.zeros_like(b)
            parts = self._each(OwnSystem.apply, [b[ids] for ids in inside], blocks=systems, transposed=transposed)
            for ids, part in zip(inside, parts, strict=True):
                out[ids] = part
            return out

        return inverse

    def between_groups(self, label: NDArray[np.intp], count: int) -> sp.csr_array:
        """Σ P_ij over i and j ≠ i of each pair of groups, (count, count); label: (m,), −1 for no group."""
        parts = self._each(OperatorBlock.coarse, [label[ids] for ids in self.graph.ids], count=count)
        return sp.csr_array(sum(parts[1:], start=parts[0]))

    def __repr__(self) -> str:
        return f"DistributedOperator({self.graph.n_points} points, {len(self.blocks)} blocks, eps={self.eps:g})"
