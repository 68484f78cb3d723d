"""The ordering of the cells: what can be given for it in AnnData, and its reading as `ordiff.Ordering` objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from ordiff import _validation
from ordiff._validation import Array
from ordiff.geometry import smooth, usual_neighbors
from ordiff.graph import NeighborGraph
from ordiff.kernel.ordering import Ordering
from ordiff.single_cell._key import CELL_CYCLE_SCORES, GENES, LOADINGS, VELOCITY
from ordiff.single_cell._read import dense_array, finite_values, quote_names
from ordiff.single_cell._times import Times, numeric_column

if TYPE_CHECKING:
    from anndata import AnnData

# Neighbours over which sampling times are averaged; an ordering with at least this many cells per value is of these.
_SMOOTH_NEIGHBORS, _CELLS_PER_TIME = 35, 10


@dataclass(frozen=True)
class Velocity:
    """RNA velocity as a local ordering, l(x, y) = ⟨v(x), y − x⟩.

    Parameters
    ----------
    key
        A layer in genes, brought to the representation by the ``loadings`` (genes without a velocity, NaN, count as 0),
        or an ``obsm`` velocity in the representation, such as scvelo's "velocity_pca".
    loadings
        The ``varm`` key of the loadings of the representation, (genes, n).
    """

    key: str = VELOCITY
    loadings: str = LOADINGS


@dataclass(frozen=True)
class Lineages:
    """Distances to several terminal states, each of which draws the cells.

    Parameters
    ----------
    key
        An ``obsm`` key, (m, lineages), or several ``obs`` columns.
    weights
        An ``obsm`` key, (m, lineages): how much each lineage draws a cell, such as fate probabilities; equal if not
        given.
    """

    key: str | tuple[str, ...]
    weights: str | None = None


@dataclass(frozen=True)
class Cycle:
    """A phase on a cycle, such as the cell cycle: the shorter way round is forward.

    Parameters
    ----------
    phase
        A numeric ``obs`` column that rises from 0 to ``period`` and starts again. If None, it is the angle of the two
        ``scores``, S → G2M → G1 → S, each over its root mean square.
    period
        The period of the phase.
    scores
        Two ``obs`` columns, as scanpy.tl.score_genes_cell_cycle writes them.
    """

    phase: str | None = None
    period: float = 1.0
    scores: tuple[str, str] = CELL_CYCLE_SCORES


OrderingLike: TypeAlias = "str | Velocity | Lineages | Cycle | Ordering | ArrayLike | None"


@dataclass(frozen=True, eq=False)
class OrderingTerms:
    """What one given ordering adds to the drift.

    ``directions`` are constructors of orderings that take a speed and a scale, each with its share of the drift, a
    number or (m,); ``fixed`` are orderings with a speed of their own; ``values`` are (m,) or (m, lineages).
    """

    directions: tuple[tuple[Callable[..., Ordering], Any], ...] = ()
    fixed: tuple[Ordering, ...] = ()
    values: Array | None = None
    unit: str = ""


def as_list(ordering: Any) -> list[Any]:
    """The given orderings; a list of numbers is the values of one."""
    if ordering is None:
        return []
    if isinstance(ordering, list | tuple) and not all(isinstance(one, int | float | np.number) for one in ordering):
        return list(ordering)
    return [ordering]


def describe(ordering: Any) -> str:
    """What was given, as text for the settings."""
    names = [
        one if isinstance(one, str) else repr(one) if isinstance(one, Velocity | Lineages | Cycle) else "given"
        for one in as_list(ordering)
    ]
    return " + ".join(names) or "none"


def read_ordering(adata: AnnData, given: Any, graph: NeighborGraph, use_rep: str, smoothing: Any) -> OrderingTerms:
    """The terms of one given ordering, its values averaged over ``smoothing`` neighbours as `operator` says."""
    if isinstance(given, Ordering):
        return OrderingTerms(fixed=(given,))
    if isinstance(given, Velocity):
        n = _validation.need_points(graph.X, "a velocity").shape[1]
        return OrderingTerms(((partial(Ordering.field, _velocity_field(adata, given, use_rep, n)), 1.0),))
    if isinstance(given, Cycle):
        phase, period = _phase(adata, given)
        return OrderingTerms(((partial(Ordering.cyclic, phase, period), 1.0),), values=phase)
    if isinstance(given, Lineages):
        return _lineage_terms(adata, given)
    times = numeric_column(adata, given, "ordering") if isinstance(given, str) else Times(_values(adata, given), "")
    l = times.values
    if smoothing == "auto":
        smoothing = _SMOOTH_NEIGHBORS if np.unique(l).size <= graph.n_points / _CELLS_PER_TIME else None
    if smoothing is not None:
        l = smooth(graph, l, usual_neighbors(graph, _validation.count(smoothing, "smoothing", 1)))
    return OrderingTerms(((partial(Ordering, l), 1.0),), values=l, unit=times.unit)


def _values(adata: AnnData, given: Any) -> Array:
    values = _validation.as_float(given, "ordering")
    if values.shape != (adata.n_obs,):
        raise ValueError(f"ordering must have one value per cell, shape ({adata.n_obs},); got shape {values.shape}.")
    return finite_values(adata, values, "the ordering")


def _velocity_field(adata: AnnData, velocity: Velocity, use_rep: str, n: int) -> Array:
    """The velocity in the representation, (m, n): as stored in obsm, or a layer times the loadings."""
    key = velocity.key
    if key in adata.obsm:
        V = dense_array(adata.obsm[key], f"obsm[{key!r}]")
        if V.shape[1] < n:
            raise ValueError(
                f"obsm[{key!r}] has {V.shape[1]} coordinates, but the representation {use_rep!r} has {n}: use "
                f"n_pcs={V.shape[1]}, or a velocity in that representation."
            )
        return V[:, :n]
    if key not in adata.layers:
        raise ValueError(
            f"adata has no velocity {key!r}: layers has {quote_names(adata.layers)}, obsm {quote_names(adata.obsm)}. "
            "Run scvelo.tl.velocity(adata) first, or name it by Velocity(key)."
        )
    loadings = None if use_rep == GENES else _loadings(adata, velocity.loadings, use_rep, n)
    layer = _without_nan(adata.layers[key])
    V = layer @ loadings if loadings is not None else layer.toarray() if sp.issparse(layer) else layer
    return _validation.node_vectors(V, (adata.n_obs, n), f"layers[{key!r}]")


def _loadings(adata: AnnData, key: str, use_rep: str, n: int) -> Array:
    """The loadings of the representation, (genes, n); genes without one count as 0."""
    if key not in adata.varm:
        raise ValueError(
            f"a velocity in genes needs the loadings of {use_rep!r}: varm has no {key!r}, it has "
            f"{quote_names(adata.varm)}. Run scanpy.pp.pca(adata), or give an obsm velocity in the representation."
        )
    loadings = np.nan_to_num(np.asarray(adata.varm[key], dtype=np.float64))
    if loadings.shape[1] < n:
        raise ValueError(f"varm[{key!r}] has {loadings.shape[1]} components, {use_rep!r} has {n}.")
    return loadings[:, :n]


def _without_nan(layer: Any) -> Any:
    """A layer (m, genes), sparse or dense, with 0 for genes without a velocity."""
    if not sp.issparse(layer):
        return np.nan_to_num(np.asarray(layer, dtype=np.float64))
    layer = sp.csr_array(layer)
    layer.data = np.nan_to_num(layer.data)
    return layer


def _phase(adata: AnnData, cycle: Cycle) -> tuple[Array, float]:
    """The phase (m,) and its period: a column, or atan2(g2m/rms(g2m), s/rms(s)) in [0, 2π), rms = root mean square."""
    if cycle.phase is not None:
        column = adata.obs.get(cycle.phase)
        if column is not None and (hasattr(column, "cat") or column.dtype.kind not in "iuf"):
            raise ValueError(
                f"obs[{cycle.phase!r}] holds {column.dtype} labels, which are no phase: leave it out, Cycle(), to "
                f"take the angle of the scores {cycle.scores}, or give numbers from 0 to the period."
            )
        return numeric_column(adata, cycle.phase, "phase").values, _validation.positive(cycle.period, "period")
    absent = [name for name in cycle.scores if name not in adata.obs]
    if absent:
        raise ValueError(
            f"adata.obs has no {quote_names(absent)}: run scanpy.tl.score_genes_cell_cycle first, or name a numeric "
            "phase, Cycle(phase, period)."
        )
    s, g2m = (numeric_column(adata, name, "score").values for name in cycle.scores)
    for name, score in zip(cycle.scores, (s, g2m), strict=True):
        if not score.any():
            raise ValueError(f"obs[{name!r}] is 0 at every cell, so the scores have no angle.")
    angle = np.arctan2(g2m / np.sqrt(np.mean(g2m**2)), s / np.sqrt(np.mean(s**2)))
    return np.mod(angle, 2 * np.pi), 2 * np.pi


def _lineage_terms(adata: AnnData, lineages: Lineages) -> OrderingTerms:
    """One direction a lineage, up −distance; its share of the drift is its weight over the sum of the weights."""
    if isinstance(lineages.key, str):
        distances = _obsm(adata, lineages.key, "distances")
    else:
        distances = np.column_stack([numeric_column(adata, name, "distance").values for name in lineages.key])
    weights = None if lineages.weights is None else _obsm(adata, lineages.weights, "weights").T
    checked = Ordering.lineages(distances.T, weights, scale=1.0)
    directions = tuple((partial(Ordering, -row), one.speed) for row, one in zip(distances.T, checked, strict=True))
    return OrderingTerms(directions, values=-distances)


def _obsm(adata: AnnData, key: str, what: str) -> Array:
    if key not in adata.obsm:
        raise ValueError(f"adata.obsm has no {what} {key!r}, it has {quote_names(adata.obsm)}.")
    return dense_array(adata.obsm[key], f"obsm[{key!r}]")
