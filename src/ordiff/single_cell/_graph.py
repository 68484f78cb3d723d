"""The neighbour graph of the cells, built or taken from scanpy's slots, and the noise on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ordiff import _validation
from ordiff._validation import Array
from ordiff.geometry import usual_neighbors
from ordiff.graph import NeighborGraph
from ordiff.single_cell._key import DISTANCES, DISTANCES_ENTRY
from ordiff.single_cell._read import representation
from ordiff.single_cell._times import numeric_column

if TYPE_CHECKING:
    from anndata import AnnData

# Neighbours of a graph that is built here, and the neighbour whose distance is the local noise.
_GRAPH_NEIGHBORS, _NOISE_NEIGHBORS = 100, 15
# Least local noise over its median: cells that coincide still move.
_LEAST_NOISE = 0.05


def build_graph(X: Array, n_neighbors: int | None, random_state: int | None = None) -> NeighborGraph:
    """The graph of ``n_neighbors`` cells, by default 100, or all others where there are fewer."""
    k = min(_GRAPH_NEIGHBORS, len(X) - 1) if n_neighbors is None else n_neighbors
    return NeighborGraph.build(X, k=k, random_state=random_state)


def cell_graph(
    adata: AnnData,
    *,
    use_rep: str,
    neighbors_key: str | None,
    n_pcs: int | None,
    n_neighbors: int | None,
    random_state: int | None,
) -> tuple[NeighborGraph, dict[str, Any]]:
    """A new graph, or scanpy's, and the settings that say which; several components are warned of."""
    if neighbors_key is None:
        graph = build_graph(representation(adata, use_rep, n_pcs), n_neighbors, random_state)
    elif n_neighbors is not None:
        raise ValueError("give neighbors_key for scanpy's graph, or n_neighbors for our own, not both.")
    else:
        graph = _scanpy_graph(adata, neighbors_key, use_rep, n_pcs)
    sizes = np.bincount(graph.components)
    if sizes.size > 1:
        _validation.warn(
            f"the neighbour graph has {sizes.size} parts, the largest of {sizes[0]} of {graph.n_points} cells: no cell "
            "passes from one to another. Use more neighbours, or treat the parts one by one."
        )
    return graph, {
        "use_rep": use_rep,
        "n_pcs": _validation.need_points(graph.X, "an operator of cells").shape[1],
        "neighbors_key": neighbors_key or "",
        "n_neighbors": usual_neighbors(graph, graph.n_points),
    }


def _scanpy_graph(adata: AnnData, key: str, use_rep: str, n_pcs: int | None) -> NeighborGraph:
    """The graph that scanpy.pp.neighbors stored, with its n_pcs if it has the same representation."""
    if key not in adata.uns:
        raise ValueError(
            f"adata.uns has no {key!r}: run scanpy.pp.neighbors(adata) first, or leave neighbors_key out for a graph "
            "of our own."
        )
    slot, params = str(adata.uns[key].get(DISTANCES_ENTRY, DISTANCES)), adata.uns[key].get("params", {})
    if slot not in adata.obsp:
        raise ValueError(f"uns[{key!r}] names the distances obsp[{slot!r}], which are not there.")
    if n_pcs is None and params.get("n_pcs") is not None and params.get("use_rep", use_rep) == use_rep:
        n_pcs = int(np.ravel(params["n_pcs"])[0])
    graph = NeighborGraph.from_distances(adata.obsp[slot], X=representation(adata, use_rep, n_pcs))
    _warn_if_not_euclidean(graph, slot, use_rep)
    return graph


def _warn_if_not_euclidean(graph: NeighborGraph, slot: str, use_rep: str) -> None:
    """Warn if stored distances differ from those in the representation, by the median of up to 2000 edges."""
    edges = np.unique(np.linspace(0, graph.n_edges - 1, 2000).astype(int))
    X, rows = _validation.need_points(graph.X, "distances"), np.searchsorted(graph.indptr, edges, side="right") - 1
    euclidean = np.linalg.norm(X[graph.indices[edges]] - X[rows], axis=1)
    stored = np.sqrt(graph.sqdist[edges])
    if np.median(np.abs(euclidean - stored)) > 0.01 * np.median(euclidean):
        _validation.warn(
            f"the distances in obsp[{slot!r}] are not the Euclidean ones of {use_rep!r} ({np.median(stored):.3g} "
            f"against {np.median(euclidean):.3g} at the median edge): drift and noise then have no common unit. Give "
            "the use_rep and n_pcs that the neighbours were found with."
        )


def cell_noise(adata: AnnData, graph: NeighborGraph, noise: Any) -> Array:
    """ρ at every cell, (m,): as given, from a column of obs, or "local".

    Local noise is ρ_i = max(r_i / median r, 0.05), r_i the distance of cell i to its 15th neighbour.
    """
    m = graph.n_points
    if not isinstance(noise, str):
        return _validation.node_or_scalar(noise, m, "noise", positive=True)
    if noise != "local":
        values = numeric_column(adata, noise, "noise").values
        return _validation.node_or_scalar(values, m, f"obs[{noise!r}]", positive=True)
    radius = graph.radius(usual_neighbors(graph, _NOISE_NEIGHBORS), pad=True)
    typical = np.median(radius)
    if not typical > 0:
        raise _validation.GraphError(
            "more than half of the cells coincide with all their neighbours: remove duplicates, or give noise=1.0."
        )
    return np.maximum(radius / typical, _LEAST_NOISE)
