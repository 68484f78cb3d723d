"""Single cells: operators and models from AnnData and back, and a kernel for CellRank. Extra ``single-cell``.

    operator          representation + ordering (+ scanpy's neighbours) → MarkovOperator, written to ``key_added`` slots
    stored_operator   the operator back from its slots, for instance after reading a file
    fates             where every cell ends, from a stored operator
    fit               representation + sampling times → SnapshotSDE, learned ordering, noise and drift beside them
    read_times        "day 2", "24h", "E8.5": numbers and their unit
    OrdiffKernel      the same operator as a CellRank kernel (made when first asked for, it needs cellrank)

What orders the cells is a column of ``obs``, or `Velocity`, `Lineages` or `Cycle`, or a list of these. How strongly
it does is one number, ``forward``: see `operator`. This is the only file that knows anndata and CellRank; the names of
all slots are in `Keys`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from ordiff import _check, tuning
from ordiff._check import Array
from ordiff.fields import velocity
from ordiff.geometry import TangentSpaces, smooth, usual_neighbors
from ordiff.graph import NeighborGraph
from ordiff.kernel.kernel import Kernel
from ordiff.kernel.ordering import Ordering
from ordiff.operator import MarkovOperator

if TYPE_CHECKING:
    from anndata import AnnData

# Neighbours of our own graph, of the local noise, and of the smoothing of sampling times.
_GRAPH_NEIGHBORS, _NOISE_NEIGHBORS, _SMOOTH_NEIGHBORS = 100, 15, 35
# Embeddings on which the drift is drawn when none is named, the first that is there.
_EMBEDDINGS = ("X_umap", "X_tsne", "X_draw_graph_fa", "X_phate")
# Edges that `_tilt` looks at together: bounds its temporaries.
_BLOCK_EDGES = 2_000_000


@dataclass(frozen=True)
class Keys:
    """The slots of one result. Velocities are named as scvelo looks for them: ``vkey="ordiff_velocity"``."""

    key: str = "ordiff"

    @property
    def settings(self) -> str:
        """uns: numbers, strings and arrays of them."""
        return self.key

    @property
    def transitions(self) -> str:
        """obsp: P, csr_matrix; CellRank reads it by ``PrecomputedKernel("ordiff_transitions", adata=adata)``."""
        return f"{self.key}_transitions"

    @property
    def ordering(self) -> str:
        """obs, or obsm for several lineages: the ordering as it was used."""
        return f"{self.key}_ordering"

    @property
    def noise(self) -> str:
        """obs: ρ."""
        return f"{self.key}_noise"

    @property
    def density(self) -> str:
        """obs: q, the sampling density up to a factor."""
        return f"{self.key}_density"

    @property
    def fates(self) -> str:
        """obsm: the probabilities of the fates, a DataFrame."""
        return f"{self.key}_fates"

    def velocity(self, basis: str) -> str:
        """obsm: the drift in a representation or embedding, "X_pca" → "ordiff_velocity_pca"."""
        return f"{self.key}_velocity_{basis.removeprefix('X_')}"

    def std(self, slot: str) -> str:
        """obs: the standard deviation of what `fit` put in a slot."""
        return f"{slot}_std"

    def own(self, name: str) -> bool:
        """Is this one of the slots?"""
        slots = (self.transitions, self.ordering, self.noise, self.density, self.fates)
        return name.removesuffix("_std") in slots or name.startswith(self.velocity(""))


# -------------------------------------------------------------------------------------------- what orders the cells


@dataclass(frozen=True)
class Velocity:
    """RNA velocity as a local ordering, l(x, y) = ⟨v(x), y − x⟩.

    key: a layer in genes, brought to the representation by the ``loadings`` in ``varm`` (genes without a velocity, NaN,
    count as 0), or an ``obsm`` velocity in the representation, such as scvelo's "velocity_pca".
    """

    key: str = "velocity"
    loadings: str = "PCs"


@dataclass(frozen=True)
class Lineages:
    """Distances to several terminal states, from ``obsm`` (m, lineages) or several ``obs`` columns.

    weights: an ``obsm`` key, (m, lineages), how much each lineage draws a cell, such as fate probabilities; equal if
    not given.
    """

    key: str | tuple[str, ...]
    weights: str | None = None


@dataclass(frozen=True)
class Cycle:
    """A phase on a cycle, such as the cell cycle: the short way round is forward.

    phase: a numeric ``obs`` column that rises from 0 to ``period`` and starts again. Without one, it is the angle of
    the two ``scores`` that scanpy.tl.score_genes_cell_cycle writes, S → G2M → G1 → S, each over its root mean square.
    """

    phase: str | None = None
    period: float = 1.0
    scores: tuple[str, str] = ("S_score", "G2M_score")


Source: TypeAlias = "str | Velocity | Lineages | Cycle | Ordering | ArrayLike | None"


class Times(NamedTuple):
    """Times as numbers, (m,), and their unit: "hour", "day", …, or "" where none was said."""

    values: Array
    unit: str


# ------------------------------------------------------------------------------------------------------ operator


def operator(
    adata: AnnData,
    ordering: Source | Sequence[Source] = "dpt_pseudotime",
    use_rep: str = "X_pca",
    neighbors_key: str | None = None,
    *,
    copy: bool = False,
    n_pcs: int | None = None,
    n_neighbors: int | None = None,
    forward: float = 0.8,
    speed: ArrayLike | None = None,
    scale: ArrayLike | str = "gradient",
    noise: ArrayLike | str = "local",
    eps: float | str = "auto",
    density: ArrayLike | str | None = "balanced",
    alpha: float = 1.0,
    smoothing: int | str | None = "auto",
    embedding: str | Sequence[str] | None = "auto",
    random_state: int | None = 0,
    key_added: str = "ordiff",
) -> Any:
    """The Markov operator of cells that move up an ordering, returned and written to ``adata``.

    With ``copy`` the results go to a copy of ``adata``, which is returned instead, as in scanpy.

    ordering: an ``obs`` column (pseudotime, or times as in `read_times`), values (m,), `Velocity`, `Lineages` or
    `Cycle`; a list of these, which share the drift equally; None for no drift. A ready `ordiff.Ordering` is taken as it
    is. use_rep: a key of ``obsm``, or "X"; n_pcs: its first coordinates only.

    neighbors_key: None builds our own graph of ``n_neighbors`` (100) cells; "neighbors", or the key_added of
    scanpy.pp.neighbors, takes that graph, distances and n_pcs as they are. A step that keeps its size needs some
    hundred neighbours: of scanpy's usual 15 directions and fates are to be had, sizes are not, and it is warned of.

    forward: at every cell a step raises the ordering by Φ⁻¹(forward) standard deviations of a step without drift, so
    that it goes up with about this probability, whatever the units of a pseudotime. Or give a ``speed`` in units of the
    representation per unit of time, with its ``scale`` as in `ordiff.Ordering`.
    noise: ρ, a number, values (m,), an ``obs`` column, or "local": the distance to the 15th neighbour over its median,
    so that a step reaches as many cells everywhere, as in the usual single-cell kernels. eps: the time of one step, or
    "auto", by `ordiff.tuning.choose_eps`. density, alpha: as in `ordiff.Kernel.operator`.
    smoothing: over how many neighbours the ordering is averaged, or None; "auto" is 35 for sampling times (ten cells or
    more to a value on average), which are no order within a sample, and None for a pseudotime.
    embedding: one or several ``obsm`` keys on which to project the drift; "auto" takes X_umap or the like.

    Written (`Keys`): ``obsp["ordiff_transitions"]``, ``obs["ordiff_ordering"]``, ``obs["ordiff_noise"]``,
    ``obs["ordiff_density"]``, ``obsm["ordiff_velocity_pca"]``, ``obsm["ordiff_velocity_umap"]``, ``uns["ordiff"]``; and
    for another ``key_added`` beside them. A view becomes an object of its own, its parent is left alone. Of a backed
    file nothing on disk changes: the results are in memory until it is written.

    >>> import anndata, numpy as np, ordiff as od
    >>> X = np.random.default_rng(0).uniform(size=(500, 2)) * [4, 1]
    >>> cells = anndata.AnnData(obs={"pseudotime": X[:, 0] ** 2}, obsm={"X_pca": X})
    >>> op = od.single_cell.operator(cells, ordering="pseudotime")
    >>> cells.obsp["ordiff_transitions"].shape, sorted(cells.obsm)
    ((500, 500), ['X_pca', 'ordiff_velocity_pca'])
    >>> inside = np.abs(X[:, 0] - 2) < 1
    >>> bool((cells.obsm["ordiff_velocity_pca"][inside, 0] > 0).all())
    True
    """
    keys = Keys(_key(key_added))
    _writable(adata, copy)
    options = _Options(
        ordering, use_rep, neighbors_key, n_pcs, n_neighbors, forward, speed, scale, noise, eps, density, alpha,
        smoothing, random_state,
    )  # fmt: skip
    found = _Parts.of(adata, options)
    return found.results(keys, adata, embedding).deliver(adata, keys, copy, found.op)


def stored_operator(adata: AnnData, key: str = "ordiff") -> MarkovOperator:
    """The operator that `operator` wrote under this key: steps, generator and passage times as before.

    It knows its cells, step and density, but not the kernel it came from: `velocity` of the kind "displacement" only,
    the others are in ``obsm``.
    """
    keys = Keys(key)
    _anndata(adata)
    settings = adata.uns.get(keys.settings)
    if settings is None or keys.transitions not in adata.obsp:
        raise ValueError(
            f"adata has no result {key!r}: there is no uns[{keys.settings!r}] with obsp[{keys.transitions!r}]. "
            f"Run ordiff.single_cell.operator(adata, ..., key_added={key!r}) first."
        )
    P = sp.csr_array(adata.obsp[keys.transitions])
    P.sort_indices()
    rows = np.repeat(np.arange(P.shape[0]), np.diff(P.indptr))
    total = np.asarray(P.sum(axis=1)).ravel()
    if (rows == P.indices).sum() < P.shape[0] or not np.allclose(total, 1.0, rtol=0, atol=1e-6):
        raise ValueError(
            f"obsp[{keys.transitions!r}] is no longer the matrix that was written: its rows do not sum to 1, or lack "
            "their diagonal. After taking a subset of cells run ordiff.single_cell.operator again."
        )
    X = _representation(adata, str(settings["use_rep"]), int(settings["n_pcs"]))
    lengths = np.linalg.norm(X[P.indices] - X[rows], axis=1)
    graph = NeighborGraph.from_distances(sp.csr_array((lengths, P.indices, P.indptr), shape=P.shape), X=X)
    q = np.asarray(adata.obs[keys.density], dtype=np.float64)
    return MarkovOperator(graph, np.asarray(P.data, dtype=np.float64), float(settings["eps"]), q)


@dataclass(frozen=True, eq=False)
class _Options:
    """What `operator` takes, but for where to write."""

    ordering: Any = "dpt_pseudotime"
    use_rep: str = "X_pca"
    neighbors_key: str | None = None
    n_pcs: int | None = None
    n_neighbors: int | None = None
    forward: float = 0.8
    speed: Any = None
    scale: Any = "gradient"
    noise: Any = "local"
    eps: Any = "auto"
    density: Any = "balanced"
    alpha: float = 1.0
    smoothing: Any = "auto"
    random_state: int | None = 0

    def settings(self) -> dict[str, Any]:
        """The choices as numbers and words, for uns."""
        drift: dict[str, Any] = {"forward": self.forward}
        if self.speed is not None:
            drift = {"speed": _plain(self.speed), "scale": _plain(self.scale)}
        density = "uniform" if self.density is None else _plain(self.density)
        rest = {"noise": _plain(self.noise), "density": density, "alpha": float(self.alpha)}
        return {"ordering": _in_words(_sources(self.ordering))} | drift | rest


def _plain(value: Any) -> str | float:
    return value if isinstance(value, str) else "given" if np.ndim(value) else float(np.asarray(value))


@dataclass(frozen=True, eq=False)
class _Parts:
    """All that is read and worked out, before anything is written."""

    op: MarkovOperator
    noise: Array
    values: tuple[Array, ...]  # (m,) or (m, lineages), of the orderings that have values
    settings: dict[str, Any]

    @classmethod
    def of(cls, adata: AnnData, options: _Options) -> _Parts:
        rise = tuning.speed_for_bias(_check.share(options.forward, "forward"), 1.0, 1.0)
        graph, settings = _graph(adata, options)
        rho = _noise(adata, graph, options.noise)
        read = [_read(adata, source, graph, options) for source in _sources(options.ordering)]
        orderings = [ready for one in read for ready in one.ready]
        parts = [(make, share / len(read)) for one in read for make, share in one.parts]
        if options.speed is not None:
            speed = _check.node_or_scalar(options.speed, graph.n_points, "speed")
            orderings += [make(speed=speed * share, scale=options.scale) for make, share in parts]
            parts = []
        # the step is chosen with the drift that is known before it
        known = Kernel(orderings, noise=rho)
        q = known.density_on(graph, options.density)
        step, chosen = _step(known, graph, options, q)
        with _check.silent():
            base = known.undirected().operator(graph, step, q, options.alpha)
        orderings += [make(speed=_tilt(base, make(), rise * share) * rho**2) for make, share in parts]
        # a chosen step has been judged, a given one has not
        with _check.silent() if isinstance(options.eps, str) else nullcontext():
            op = Kernel(orderings, noise=rho).operator(graph, step, q, options.alpha)
        unit = next((one.unit for one in read if one.unit), "")
        settings = options.settings() | settings | chosen | {"time_unit": unit}
        return cls(op, rho, tuple(one.values for one in read if one.values is not None), settings)

    def results(self, keys: Keys, adata: AnnData, embedding: Any) -> _Results:
        obs = {keys.noise: self.noise, keys.density: np.array(self.op.density)}
        obsm: dict[str, Array] = {}
        with _check.silent():  # the driftless twin would say the same again
            obsm[keys.velocity(self.settings["use_rep"])] = velocity(self.op, "symmetric")
            for basis in _bases(adata, embedding):
                E = _dense(adata.obsm[basis], f"obsm[{basis!r}]")
                obsm[keys.velocity(basis)] = velocity(self.op, "intrinsic", coordinates=E)
        if len(self.values) == 1 and self.values[0].ndim == 1:
            obs[keys.ordering] = self.values[0]
        elif self.values:
            obsm[keys.ordering] = np.column_stack(self.values)
        return _Results(obs, obsm, {keys.transitions: _csr(self.op)}, self.settings)


def _csr(op: MarkovOperator) -> sp.csr_matrix:
    """P in the form that CellRank takes, in memory of its own."""
    P = op.matrix
    return sp.csr_matrix((P.data.copy(), P.indices.copy(), P.indptr.copy()), shape=P.shape)


@dataclass(frozen=True, eq=False)
class _Results:
    """Arrays by slot."""

    obs: dict[str, Any]
    obsm: dict[str, Array]
    obsp: dict[str, Any]
    settings: dict[str, Any]

    def deliver(self, adata: AnnData, keys: Keys, copy: bool, result: Any) -> Any:
        """Write to adata and return the result, or write to a copy and return that."""
        target = adata if not copy else adata.to_memory() if adata.isbacked else adata.copy()
        self.write(target, keys)
        return target if copy else result

    def write(self, adata: AnnData, keys: Keys) -> None:
        with _as_actual():
            for place in ("obs", "obsm", "obsp"):
                for stale in [name for name in getattr(adata, place) if keys.own(name)]:
                    del getattr(adata, place)[stale]
                for name, values in getattr(self, place).items():
                    getattr(adata, place)[name] = values
            adata.uns[keys.settings] = self.settings


@contextmanager
def _as_actual() -> Iterator[None]:
    """To write to: a view becomes an object of its own, without anndata's warning, as `operator` says."""
    from anndata import ImplicitModificationWarning

    with warnings.catch_warnings(action="ignore", category=ImplicitModificationWarning):
        yield


# ------------------------------------------------------------------------------------------------------ learning


def fit(
    adata: AnnData,
    time_key: str,
    root: int | str | ArrayLike | None = None,
    *,
    copy: bool = False,
    time_origin: float | None = None,
    use_rep: str = "X_pca",
    n_pcs: int | None = None,
    n_neighbors: int | None = None,
    embedding: str | Sequence[str] | None = "auto",
    key_added: str = "ordiff",
    **options: Any,
) -> Any:
    """Learn ordering, noise and drift from cells and their sampling times; the model is returned, its fields written.

    time_key: a column of ``obs`` as in `read_times`; time_origin: when the process starts, in its unit, by default with
    the earliest sample. root: where the process
    starts, a cell by number or name, a point of the representation, or a mask of cells (m,); by default
    ``uns["iroot"]``, or, without it, all cells of the earliest sample. options: of `ordiff.SnapshotSDE`.

    Written (`Keys`): ordering, noise and their standard deviations in ``obs``, the drift in ``obsm``, in the
    representation and on an embedding, and, in ``obsp``, a transition matrix of the learned dynamics on the cells, with
    a step of its own that fits them. Times are in the unit of the column. With ``copy`` the results go to a copy of
    ``adata``, which is returned.
    """
    from ordiff.model import SnapshotSDE

    keys = Keys(_key(key_added))
    _writable(adata, copy)
    X = _representation(adata, use_rep, n_pcs)
    times = _column(adata, time_key, "time")
    origin = float(times.values.min()) if time_origin is None else _check.number(time_origin, "time_origin")
    start = _root(adata, X, times, root)
    model = SnapshotSDE(start=start, **options).fit(X, times.values - origin)

    graph = NeighborGraph.build(X, k=min(_GRAPH_NEIGHBORS, len(X) - 1) if n_neighbors is None else n_neighbors)
    kernel = Kernel(Ordering(model.ordering_), noise=model.noise_)
    q = kernel.density_on(graph, "balanced")
    step, chosen = _step(kernel, graph, _Options(), q)
    with _check.silent():  # a chosen step has been judged
        op = kernel.operator(graph, step, q)
    obs = {keys.ordering: np.asarray(model.ordering_), keys.noise: np.asarray(model.noise_)}
    obs[keys.density] = np.array(op.density)
    for slot, name in ((keys.ordering, "ordering_std_"), (keys.noise, "noise_std_")):
        if getattr(model, name, None) is not None:
            obs[keys.std(slot)] = np.asarray(getattr(model, name))
    drift = np.asarray(model.drift_)
    obsm = {keys.velocity(use_rep): drift}
    tangents = TangentSpaces.fit(graph, k=usual_neighbors(graph, 20))
    for basis in _bases(adata, embedding):
        E = _dense(adata.obsm[basis], f"obsm[{basis!r}]")
        along = [np.einsum("mn,mn->m", tangents.gradient(column), drift) for column in E.T]
        obsm[keys.velocity(basis)] = np.stack(along, axis=1)
    settings: dict[str, Any] = {
        name: _plain(one) for name, one in options.items() if isinstance(one, str | int | float)
    }
    settings |= chosen | {
        "time_key": time_key, "time_unit": times.unit, "time_origin": origin, "use_rep": use_rep,
        "n_pcs": X.shape[1], "start": _start_in_words(adata, start), "model_eps": float(model.eps_),
        "converged": bool(model.converged_), "loss": float(model.loss_), "n_iter": int(model.n_iter_),
    }  # fmt: skip
    return _Results(obs, obsm, {keys.transitions: _csr(op)}, settings).deliver(adata, keys, copy, model)


def _root(adata: AnnData, X: Array, times: Times, root: Any) -> Any:
    """The start of the process: a cell's number, a point of the representation, or a mask of cells."""
    first = times.values == times.values.min()
    if root is None and "iroot" not in adata.uns:
        return first
    if root is None:
        root = int(np.ravel(adata.uns["iroot"])[0])
        if not 0 <= root < len(X) or not first[root]:
            raise ValueError(
                f"uns['iroot'] = {root} is not a cell of the earliest sample. It is a number, so it points elsewhere "
                "after cells were left out: set it again, or give root."
            )
    if isinstance(root, str):
        found = np.flatnonzero(adata.obs_names == root)
        if found.size != 1:
            raise ValueError(f"root = {root!r} is the name of {found.size} cells; give one cell's name or number.")
        return int(found[0])
    if np.ndim(root) == 0:
        return int(_check.indices(root, len(X), "root")[0])
    if np.shape(root) == (len(X),) and np.asarray(root).dtype == bool:
        return np.asarray(root)
    return _check.nodes(root, X.shape[1], "root")


def _start_in_words(adata: AnnData, start: Any) -> str:
    if np.ndim(start) == 0:
        return f"cell {adata.obs_names[start]}"
    return f"{start.sum()} cells" if start.dtype == bool else f"point {start.tolist()}"


# ---------------------------------------------------------------------------------------------------------- fates


def fates(adata: AnnData, terminal: Any, key: str = "ordiff", *, continuous: bool = False, copy: bool = False) -> Any:
    """The probability of every cell to end in each terminal set, (m, fates) with the names as columns.

    terminal: a column of ``obs``, missing where a cell is not terminal (such as CellRank's "term_states_fwd"), a dict
    of names and cells (a mask, numbers, or their names), or what `ordiff.fate_probabilities` takes. key: the result of
    `operator` or `fit` to follow. Written to ``obsm["ordiff_fates"]`` as a DataFrame, which is returned; with ``copy``
    to a copy of ``adata``, returned instead.
    """
    from pandas import DataFrame

    from ordiff.passage import fate_probabilities, terminal_sets

    op = stored_operator(adata, key)
    _writable(adata, copy)
    if isinstance(terminal, str):
        if terminal not in adata.obs:
            raise ValueError(f"adata.obs has no {terminal!r}, it has {_listed(adata.obs.columns)}.")
        column = adata.obs[terminal].astype(object)
        terminal = column.where(column.notna(), None).to_numpy()
    elif isinstance(terminal, Mapping):
        terminal = {str(name): _cells(adata, some, str(name)) for name, some in terminal.items()}
    names = [str(name) for name in terminal_sets(terminal, op.graph.n_points)]
    chances = fate_probabilities(op, terminal, continuous=continuous)
    frame = DataFrame(chances, index=adata.obs_names, columns=names)
    target = adata if not copy else adata.to_memory() if adata.isbacked else adata.copy()
    with _as_actual():
        target.obsm[Keys(key).fates] = frame
    return target if copy else frame


def _cells(adata: AnnData, some: Any, name: str) -> Any:
    """Numbers of cells from their names; masks and numbers are left as they are."""
    array = np.asarray(some)
    if array.dtype.kind not in "OUT":
        return some
    numbers = adata.obs_names.get_indexer_for(array)
    if (numbers < 0).any():
        raise ValueError(f"the fate {name!r} has cells that adata has not: {_listed(array[numbers < 0])}.")
    return numbers


# ------------------------------------------------------------------------------------------------ reading AnnData


def read_arrays(path: Any) -> tuple[dict[str, Any], Array | None, list[str]]:
    """What an h5ad file holds, as arrays: obs columns and obsm by their names, X (dense), and the names of genes."""
    try:
        from anndata import read_h5ad
    except ImportError:
        raise _check.missing_extra("anndata", "single-cell", "reading h5ad") from None
    data = read_h5ad(path)
    arrays: dict[str, Any] = {name: np.asarray(data.obs[name]) for name in data.obs}
    arrays |= {name: np.asarray(data.obsm[name]) for name in data.obsm}
    X = None if data.X is None else data.X.toarray() if hasattr(data.X, "toarray") else np.asarray(data.X)
    return arrays, X, [str(name) for name in data.var_names]


def _anndata(adata: Any) -> Any:
    """The checked AnnData object."""
    try:
        from anndata import AnnData
    except ImportError:
        raise _check.missing_extra("anndata", "single-cell", "ordiff.single_cell") from None
    if not isinstance(adata, AnnData):
        hint = ' Give one modality, for instance mdata["rna"].' if type(adata).__name__ == "MuData" else ""
        raise ValueError(f"adata must be an AnnData object; got {type(adata).__name__}.{hint}")
    if hasattr(adata.obs, "to_memory"):
        raise ValueError("adata was read lazily: bring it to memory first, adata = adata.to_memory().")
    return adata


def _key(key: Any) -> str:
    if not isinstance(key, str) or not key or "/" in key:
        raise ValueError(f"key_added must be a name without '/'; got {key!r}.")
    return key


def _writable(adata: Any, copy: bool) -> None:
    if _anndata(adata).isbacked and adata.is_view and not copy:
        raise ValueError(
            "adata is a view of a backed file, to which nothing can be written: use adata = adata.to_memory() first, "
            "or copy=True."
        )


def _listed(names: Any) -> str:
    names = [repr(str(name)) for name in names]
    shown = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    return shown or "nothing"


def _dense(values: Any, name: str) -> Array:
    if hasattr(values, "to_numpy"):  # a DataFrame
        values = values.to_numpy()
    if sp.issparse(values) or hasattr(values, "to_memory"):  # the latter is the sparse matrix of a backed file
        raise ValueError(
            f"{name} is sparse, and would fill memory as a dense array: use principal components (scanpy.pp.pca), or "
            'store what you want dense, adata.obsm["X_dense"] = adata.X.toarray(), and use_rep="X_dense".'
        )
    return _check.points(np.asarray(values), name)


def _representation(adata: AnnData, use_rep: str, n_pcs: int | None) -> Array:
    if use_rep == "X":
        if adata.X is None:
            raise ValueError("adata has no X: name a representation in obsm, use_rep=...")
        X = _dense(adata.X, "X")
    elif use_rep in adata.obsm:
        X = _dense(adata.obsm[use_rep], f"obsm[{use_rep!r}]")
    else:
        run = " Run scanpy.pp.pca(adata) first, or" if use_rep == "X_pca" else " Choose"
        raise ValueError(
            f'adata.obsm has no {use_rep!r}, it has {_listed(adata.obsm)}.{run} use_rep="X" for the genes.'
        )
    if n_pcs is None:
        return X
    return np.ascontiguousarray(X[:, : _check.count(n_pcs, "n_pcs", 1, X.shape[1], f"There are {X.shape[1]}.")])


def _graph(adata: AnnData, options: _Options) -> tuple[NeighborGraph, dict[str, Any]]:
    """Our own graph, or scanpy's, and the settings that say which."""
    if options.neighbors_key is None:
        X = _representation(adata, options.use_rep, options.n_pcs)
        k = min(_GRAPH_NEIGHBORS, len(X) - 1) if options.n_neighbors is None else options.n_neighbors
        graph = NeighborGraph.build(X, k=k, random_state=options.random_state)
    else:
        graph = _stored_graph(adata, options, options.neighbors_key)
    sizes = np.bincount(graph.components)
    if sizes.size > 1:
        _check.warn(
            f"the neighbour graph has {sizes.size} parts, the largest of {sizes[0]} of {graph.n_points} cells: no cell "
            "passes from one to another. Use more neighbours, or treat the parts one by one."
        )
    return graph, {
        "use_rep": options.use_rep,
        "n_pcs": _check.need_points(graph.X, "an operator of cells").shape[1],
        "neighbors_key": options.neighbors_key or "",
        "n_neighbors": usual_neighbors(graph, graph.n_points),
    }


def _stored_graph(adata: AnnData, options: _Options, key: str) -> NeighborGraph:
    if options.n_neighbors is not None:
        raise ValueError("give neighbors_key for scanpy's graph, or n_neighbors for our own, not both.")
    if key not in adata.uns:
        raise ValueError(
            f"adata.uns has no {key!r}: run scanpy.pp.neighbors(adata) first, or leave neighbors_key out for a graph "
            "of our own."
        )
    where, params = str(adata.uns[key].get("distances_key", "distances")), adata.uns[key].get("params", {})
    if where not in adata.obsp:
        raise ValueError(f"uns[{key!r}] names the distances obsp[{where!r}], which are not there.")
    n_pcs = options.n_pcs
    if n_pcs is None and params.get("n_pcs") is not None and params.get("use_rep", options.use_rep) == options.use_rep:
        n_pcs = int(np.ravel(params["n_pcs"])[0])
    graph = NeighborGraph.from_distances(adata.obsp[where], X=_representation(adata, options.use_rep, n_pcs))
    _warn_if_other_distances(graph, where, options.use_rep)
    return graph


def _warn_if_other_distances(graph: NeighborGraph, where: str, use_rep: str) -> None:
    some = np.unique(np.linspace(0, graph.n_edges - 1, 2000).astype(int))
    X, rows = _check.need_points(graph.X, "distances"), np.searchsorted(graph.indptr, some, side="right") - 1
    ours = np.linalg.norm(X[graph.indices[some]] - X[rows], axis=1)
    theirs = np.sqrt(graph.sqdist[some])
    if np.median(np.abs(ours - theirs)) > 0.01 * np.median(ours):
        _check.warn(
            f"the distances in obsp[{where!r}] are not the Euclidean ones of {use_rep!r} ({np.median(theirs):.3g} "
            f"against {np.median(ours):.3g} at the median edge): drift and noise are then in no one unit. Give the "
            "use_rep and n_pcs that the neighbours were found with."
        )


def _noise(adata: AnnData, graph: NeighborGraph, noise: Any) -> Array:
    m = graph.n_points
    if not isinstance(noise, str):
        return _check.node_or_scalar(noise, m, "noise", positive=True)
    if noise != "local":
        return _check.node_or_scalar(_column(adata, noise, "noise").values, m, f"obs[{noise!r}]", positive=True)
    radius = graph.radius(usual_neighbors(graph, _NOISE_NEIGHBORS), pad=True)
    typical = np.median(radius)
    if not typical > 0:
        raise _check.GraphError(
            "more than half of the cells coincide with all their neighbours: remove duplicates, or give noise=1.0."
        )
    return np.maximum(radius / typical, 0.05)  # cells on top of one another still move


def _bases(adata: AnnData, embedding: Any) -> list[str]:
    if embedding is None:
        return []
    if isinstance(embedding, str) and embedding == "auto":
        return [name for name in _EMBEDDINGS if name in adata.obsm][:1]
    names = []
    for name in [embedding] if isinstance(embedding, str) else embedding:
        found = name if name in adata.obsm else f"X_{name}"
        if found not in adata.obsm:
            raise ValueError(f"adata.obsm has no embedding {name!r}, it has {_listed(adata.obsm)}.")
        names.append(found)
    return names


# ---------------------------------------------------------------------------------------------------- orderings


@dataclass(frozen=True, eq=False)
class _Order:
    """One source of order: makers of orderings with their share of the drift, or ready ones, and what they were."""

    parts: tuple[tuple[Callable[..., Ordering], Any], ...] = ()
    ready: tuple[Ordering, ...] = ()
    values: Array | None = None
    unit: str = ""


def _sources(ordering: Any) -> list[Any]:
    if ordering is None:
        return []
    if isinstance(ordering, list | tuple) and not all(isinstance(one, int | float | np.number) for one in ordering):
        return list(ordering)
    return [ordering]


def _in_words(sources: list[Any]) -> str:
    """For the settings."""
    names = [
        one if isinstance(one, str) else repr(one) if isinstance(one, Velocity | Lineages | Cycle) else "given"
        for one in sources
    ]
    return " + ".join(names) or "none"


def _read(adata: AnnData, source: Any, graph: NeighborGraph, options: _Options) -> _Order:
    m, smoothing = graph.n_points, options.smoothing
    if isinstance(source, Ordering):
        return _Order(ready=(source,))
    if isinstance(source, Velocity):
        n = _check.need_points(graph.X, "a velocity").shape[1]
        return _Order(((partial(Ordering.field, _velocities(adata, source, options.use_rep, n)), 1.0),))
    if isinstance(source, Cycle):
        phase, period = _phase(adata, source)
        return _Order(((partial(Ordering.cyclic, phase, period), 1.0),), values=phase)
    if isinstance(source, Lineages):
        return _lineages(adata, source)
    times = _column(adata, source, "ordering") if isinstance(source, str) else Times(_array(adata, source), "")
    l = times.values
    if smoothing == "auto":
        smoothing = _SMOOTH_NEIGHBORS if np.unique(l).size <= m / 10 else None
    if smoothing is not None:
        l = smooth(graph, l, usual_neighbors(graph, _check.count(smoothing, "smoothing", 1)))
    return _Order(((partial(Ordering, l), 1.0),), values=l, unit=times.unit)


def _array(adata: AnnData, source: Any) -> Array:
    values = _check._as_float(source, "ordering")
    if values.shape != (adata.n_obs,):
        raise ValueError(f"ordering must have one value per cell, shape ({adata.n_obs},); got shape {values.shape}.")
    return _present(adata, values, "the ordering")


def _present(adata: AnnData, values: Array, name: str) -> Array:
    """The values, when every cell has one; otherwise how many have none, and which."""
    bad = ~np.isfinite(values)
    if bad.any():
        which = ", ".join(map(str, adata.obs_names[bad][:5])) + (", …" if bad.sum() > 5 else "")
        unreached = " Diffusion pseudotime is infinite where the graph does not lead to the root."
        unreached = unreached if np.isposinf(values).any() else ""
        raise ValueError(
            f"{name} is missing or infinite for {bad.sum()} of {len(values)} cells ({which}).{unreached} Leave these "
            "cells out, adata = adata[np.isfinite(...)].copy(), or fill in their values."
        )
    return values


def _column(adata: AnnData, key: str, what: str) -> Times:
    """A column of obs as numbers, with their unit."""
    if key not in adata.obs:
        numeric = [name for name in adata.obs.columns if getattr(adata.obs[name].dtype, "kind", "O") in "iuf"]
        run = " Run scanpy.tl.dpt(adata) first, or give" if key == "dpt_pseudotime" else " Give"
        raise ValueError(
            f"adata.obs has no {key!r}.{run} the {what} by another column (numbers are in {_listed(numeric)})"
            + (", by Velocity, Lineages or Cycle, or as an array." if what == "ordering" else ".")
        )
    column = adata.obs[key]
    dtype = column.dtype
    name = f"obs[{key!r}]"
    if hasattr(column, "cat") and column.cat.ordered and not _all_times(column.cat.categories):
        codes = np.asarray(column.cat.codes, dtype=np.float64)
        return Times(_present(adata, np.where(codes < 0, np.nan, codes), name), "")
    if hasattr(column, "cat") or dtype.kind in "OUST":
        values, unit = _labels_as_times(column, name)
    elif dtype.kind == "m":
        values, unit = np.asarray(column.dt.total_seconds(), dtype=np.float64) / 3600, "hour"
    elif dtype.kind in "iuf":
        values, unit = np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan)), ""
    else:
        raise ValueError(f"{name} holds {dtype}, which is no {what}: give numbers, or labels such as 'day 2'.")
    return Times(_present(adata, values, name), unit)


def _velocities(adata: AnnData, source: Velocity, use_rep: str, n: int) -> Array:
    m = adata.n_obs
    if source.key in adata.obsm:
        V = _dense(adata.obsm[source.key], f"obsm[{source.key!r}]")
        if V.shape[1] < n:
            raise ValueError(
                f"obsm[{source.key!r}] has {V.shape[1]} coordinates, but the representation {use_rep!r} has {n}: use "
                f"n_pcs={V.shape[1]}, or a velocity in that representation."
            )
        return V[:, :n]
    if source.key not in adata.layers:
        raise ValueError(
            f"adata has no velocity {source.key!r}: layers has {_listed(adata.layers)}, obsm {_listed(adata.obsm)}. "
            "Run scvelo.tl.velocity(adata) first, or name it by Velocity(key)."
        )
    layer = adata.layers[source.key]
    if use_rep == "X":
        loadings = None
    elif source.loadings in adata.varm:
        loadings = np.nan_to_num(np.asarray(adata.varm[source.loadings], dtype=np.float64))
        if loadings.shape[1] < n:
            raise ValueError(f"varm[{source.loadings!r}] has {loadings.shape[1]} components, {use_rep!r} has {n}.")
        loadings = loadings[:, :n]
    else:
        raise ValueError(
            f"a velocity in genes needs the loadings of {use_rep!r}: varm has no {source.loadings!r}, it has "
            f"{_listed(adata.varm)}. Run scanpy.pp.pca(adata), or give an obsm velocity in the representation."
        )
    if sp.issparse(layer):
        layer = sp.csr_array(layer)
        layer.data = np.nan_to_num(layer.data)
    else:
        layer = np.nan_to_num(np.asarray(layer, dtype=np.float64))  # genes without a velocity
    V = layer @ loadings if loadings is not None else layer.toarray() if sp.issparse(layer) else layer
    return _check.node_vectors(V, (m, n), f"layers[{source.key!r}]")


def _phase(adata: AnnData, source: Cycle) -> tuple[Array, float]:
    if source.phase is not None:
        column = adata.obs.get(source.phase)
        if column is not None and (hasattr(column, "cat") or column.dtype.kind not in "iuf"):
            raise ValueError(
                f"obs[{source.phase!r}] holds {column.dtype} labels, which are no phase: leave it out, Cycle(), to "
                f"take the angle of the scores {source.scores}, or give numbers from 0 to the period."
            )
        return _column(adata, source.phase, "phase").values, _check.positive(source.period, "period")
    absent = [name for name in source.scores if name not in adata.obs]
    if absent:
        raise ValueError(
            f"adata.obs has no {_listed(absent)}: run scanpy.tl.score_genes_cell_cycle first, or name a numeric phase, "
            "Cycle(phase, period)."
        )
    s, g2m = (_column(adata, name, "score").values for name in source.scores)
    for name, score in zip(source.scores, (s, g2m), strict=True):
        if not score.any():
            raise ValueError(f"obs[{name!r}] is 0 at every cell, so the scores have no angle.")
    angle = np.arctan2(g2m / np.sqrt(np.mean(g2m**2)), s / np.sqrt(np.mean(s**2)))
    return np.mod(angle, 2 * np.pi), 2 * np.pi


def _lineages(adata: AnnData, source: Lineages) -> _Order:
    if isinstance(source.key, str):
        if source.key not in adata.obsm:
            raise ValueError(f"adata.obsm has no distances {source.key!r}, it has {_listed(adata.obsm)}.")
        distances = _dense(adata.obsm[source.key], f"obsm[{source.key!r}]")
    else:
        distances = np.column_stack([_column(adata, name, "distance").values for name in source.key])
    weights = None
    if source.weights is not None:
        if source.weights not in adata.obsm:
            raise ValueError(f"adata.obsm has no weights {source.weights!r}, it has {_listed(adata.obsm)}.")
        weights = _dense(adata.obsm[source.weights], f"obsm[{source.weights!r}]").T
    made = Ordering.lineages(distances.T, weights, scale=1.0)  # checks them, and scales the shares to sum to 1
    parts = tuple((partial(Ordering, -row), one.speed) for row, one in zip(distances.T, made, strict=True))
    return _Order(parts, values=-distances)


# ---------------------------------------------------------------------------------------------------- the drift


def _step(kernel: Kernel, graph: NeighborGraph, options: _Options, q: Array) -> tuple[float, dict[str, Any]]:
    """The step, and for a chosen one the interval in which steps are valid."""
    if not isinstance(options.eps, str):
        eps = _check.positive(options.eps, "eps")
        return eps, {"eps": eps}
    _check.option(options.eps, "eps", ("auto",))
    with _check.silent():
        choice = tuning.choose_eps(kernel, graph, q, options.alpha, random_state=options.random_state)
    eps = choice.eps
    if not choice.valid:
        # to move matters more than the size of a step: the least that moves, or one that reaches half the neighbours
        _, distances = graph.nearest(usual_neighbors(graph, graph.n_points), pad=True)
        half = np.median(distances, axis=1) ** 2 / kernel.bandwidth_on(graph).diffusion()
        eps = max(eps, min(choice.low, float(np.median(half))))
        _check.warn(
            f"{choice.message} The least step at which cells move is taken, eps = {eps:.3g}: directions are those of "
            "the ordering, sizes are too small. Raise n_neighbors, or take fewer coordinates (n_pcs)."
        )
    return eps, {"eps": eps, "eps_low": choice.low, "eps_high": choice.high, "eps_reason": choice.message}


def _row_blocks(graph: NeighborGraph) -> Iterator[tuple[int, int]]:
    start = 0
    while start < graph.n_points:
        stop = int(np.searchsorted(graph.indptr, graph.indptr[start] + _BLOCK_EDGES, side="right")) - 1
        stop = min(max(stop, start + 1), graph.n_points)
        yield start, stop
        start = stop


def _tilt(base: MarkovOperator, ordering: Ordering, rise: ArrayLike) -> Array:
    """The slope s at every sample, (m,), such that the row P_ij e^{s_i Δl_ij} raises l by ``rise`` more than P does.

    The rise is in standard deviations of Δl over the neighbours, weighted by P, the sample itself left out. For a
    gaussian Δl it is s = rise/sd; where a few neighbours far ahead would take all the mass it is less.
    """
    graph, out = base.graph, np.zeros(base.graph.n_points)
    z = _check.node_or_scalar(rise, graph.n_points, "forward")
    if (z == 0).all():
        return out
    weights = base.matrix.data.copy()
    weights[graph.selves] = 0.0
    for start, stop in _row_blocks(graph):
        edges = slice(int(graph.indptr[start]), int(graph.indptr[stop]))
        i, j = graph.sources(start, stop), graph.indices[edges].astype(np.intp)
        block = _Block(graph.indptr[start:stop] - edges.start, i - start, weights[edges])
        out[start:stop] = block.slopes(ordering.differences(graph, i, j), z[start:stop])
    return out


@dataclass(frozen=True, eq=False)
class _Block:
    """Some rows of a chain: where each begins, the row of every edge, and weights."""

    begin: Any
    row: Any
    weights: Array

    def mean(self, values: Array, slope: Array) -> Array:
        """The mean of the values in the rows tilted by the slope; 0 in rows without weight."""
        exponent = np.where(self.weights > 0, slope[self.row] * values, -np.inf)
        top = np.maximum.reduceat(exponent, self.begin)
        w = self.weights * np.exp(exponent - np.where(np.isfinite(top), top, 0.0)[self.row])
        total = np.add.reduceat(w, self.begin)
        return np.divide(np.add.reduceat(w * values, self.begin), total, out=np.zeros_like(total), where=total > 0)

    def slopes(self, values: Array, rise: Array) -> Array:
        flat = np.zeros(len(self.begin))
        mean = self.mean(values, flat)
        sd = np.sqrt(self.mean((values - mean[self.row]) ** 2, flat))
        moves = sd > 1e-9 * np.maximum.reduceat(np.abs(values), self.begin)
        high = np.divide(np.abs(rise), sd, out=flat.copy(), where=moves)
        sign, target = np.sign(rise), np.abs(rise) * sd
        values = values * sign[self.row]  # a fall is a rise of −l
        mean = mean * sign
        over = self.mean(values, high) - mean > target
        low = np.where(over, 0.0, high)
        for _ in range(40 if over.any() else 0):
            middle = 0.5 * (low + high)
            above = self.mean(values, middle) - mean > target
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        return sign * 0.5 * (low + high)


# ------------------------------------------------------------------------------------------------- times in words

# Hours per unit, by the words for it. E and P are days of embryos and of pups.
_UNITS: dict[str, tuple[str, float]] = {
    word: (unit, hours)
    for unit, hours, words in (
        ("second", 1 / 3600, "s sec secs second seconds"),
        ("minute", 1 / 60, "min mins minute minutes"),
        ("hour", 1.0, "h hr hrs hour hours hpf hpi"),
        ("day", 24.0, "d day days dpf dpc dpi dpa e p"),
        ("week", 168.0, "w wk wks week weeks"),
    )
    for word in words.split()
}
_ORIGINS = {"e": "embryonic days (E)", "p": "postnatal days (P)"}
_LABEL = re.compile(r"(?:(?P<before>[a-z]+)[\s_=:.]*)?(?P<number>[0-9]+(?:\.[0-9]+)?)\s*_?(?P<after>[a-z]+)?")
_NUMBER = re.compile(r"[+-]?[0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?")


def read_times(adata: AnnData, key: str) -> Times:
    """A column of ``obs`` as times: numbers, durations, or labels such as "24h", "day 2", "D2.5", "E8.5", "10 dpf".

    Labels of one unit keep it; of several, all are in the smallest. The unit is "" when none is said.

    >>> import anndata, numpy as np, ordiff as od
    >>> cells = anndata.AnnData(np.zeros((3, 1), np.float32), obs={"stage": ["12h", "day 1", "36 hr"]})
    >>> od.single_cell.read_times(cells, "stage")
    Times(values=array([12., 24., 36.]), unit='hour')
    """
    return _column(_anndata(adata), key, "time")


class _Label(NamedTuple):
    number: float
    word: str  # "" when no unit is said


def _parse(label: Any) -> _Label | None:
    text = str(label).strip().lower()
    if _NUMBER.fullmatch(text):
        return _Label(float(text), "")
    match = _LABEL.fullmatch(text)
    if match is None:
        return None
    before, after = match["before"] or "", match["after"] or ""
    if before in ("t", "time", "timepoint", "tp"):
        before = ""
    word = before or after
    if (before and after) or (word and word not in _UNITS):
        return None
    return _Label(float(match["number"]), word)


def _all_times(labels: Any) -> bool:
    return all(_parse(label) is not None for label in labels)


def _labels_as_times(column: Any, name: str) -> tuple[Array, str]:
    known = [label for label in column.unique() if not _is_missing(label)]
    parsed = {label: _parse(label) for label in known}
    strange = [label for label, one in parsed.items() if one is None]
    if strange:
        raise ValueError(
            f"{name} has labels that are no times: {_listed(strange)}. Write them as '24h', 'day 2' or 'E8.5', map "
            f"them to numbers, adata.obs[...].map({{{strange[0]!r}: 0.0, ...}}), or make them an ordered categorical."
        )
    words = {one.word for one in parsed.values() if one is not None and not (one.word == "" and one.number == 0)}
    units = {_UNITS[word][0] for word in words if word}
    if "" in words and units:
        bare = [label for label, one in parsed.items() if one is not None and one.word == "" and one.number != 0]
        raise ValueError(f"{name} mixes times with a unit ({', '.join(sorted(units))}) and without: {_listed(bare)}.")
    if len(origins := [_ORIGINS[word] for word in sorted(words) if word in _ORIGINS]) > 1:
        raise ValueError(
            f"{name} mixes {' and '.join(origins)}, which do not count from one moment: map one to the other."
        )
    hours = {unit: factor for unit, factor in _UNITS.values() if unit in units}
    unit = min(hours, key=lambda one: hours[one]) if hours else ""
    numbers = {
        label: one.number * (hours[_UNITS[one.word][0]] / hours[unit] if one.word and len(hours) > 1 else 1.0)
        for label, one in parsed.items()
        if one is not None
    }
    return np.array([numbers.get(label, np.nan) for label in column], dtype=np.float64), unit


def _is_missing(label: Any) -> bool:
    return label is None or label != label or type(label).__name__ == "NAType"


# ------------------------------------------------------------------------------------------------------ CellRank


def _cellrank_kernel() -> Any:
    try:
        from cellrank.kernels import UnidirectionalKernel
    except ImportError:
        raise _check.MissingExtraError(
            "OrdiffKernel needs cellrank, which ordiff does not install: pip install 'cellrank>=2.0'."
        ) from None

    class OrdiffKernel(UnidirectionalKernel):
        """`operator` as a CellRank kernel: add it to and multiply it with others, and give it to an estimator.

        It goes forward in time only; for backward questions give an ordering that falls, such as −pseudotime.
        """

        def __init__(self, adata: AnnData, backward: bool = False, **kwargs: Any) -> None:
            if backward:
                raise ValueError(
                    "OrdiffKernel goes forward only: for the process backward give an ordering that falls, for "
                    'instance compute_transition_matrix(-adata.obs["dpt_pseudotime"]).'
                )
            super().__init__(_anndata(adata), **kwargs)

        def compute_transition_matrix(
            self,
            ordering: Any = "dpt_pseudotime",
            use_rep: str = "X_pca",
            neighbors_key: str | None = None,
            **options: Any,
        ) -> OrdiffKernel:
            """The options are those of `ordiff.single_cell.operator`; nothing is written to ``adata``."""
            parts = _Parts.of(self.adata, _Options(ordering, use_rep, neighbors_key, **options))
            self.transition_matrix = _csr(parts.op)
            self._params = dict(parts.settings)
            return self

        def __invert__(self) -> OrdiffKernel:
            raise ValueError("OrdiffKernel goes forward only: compute it with an ordering that falls instead.")

    OrdiffKernel.__qualname__ = "OrdiffKernel"  # so that it can be pickled
    return OrdiffKernel


def __getattr__(name: str) -> Any:
    if name == "OrdiffKernel":
        globals()[name] = _cellrank_kernel()
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
