"""The verb `operator`: the Markov operator of cells that move up an ordering.

`OperatorOptions` is what it takes, `compute_operator` reads and computes without writing (the CellRank kernel uses it
too), and `OperatorResult` is what is written to AnnData.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ordiff import _validation, tuning
from ordiff._validation import Array
from ordiff.fields import velocity
from ordiff.kernel.kernel import Kernel
from ordiff.kernel.ordering import Ordering
from ordiff.operator import MarkovOperator
from ordiff.single_cell._graph import cell_graph, cell_noise
from ordiff.single_cell._key import PCA, PSEUDOTIME, Keys, check_key
from ordiff.single_cell._ordering import OrderingLike, as_list, describe, read_ordering
from ordiff.single_cell._read import embeddings
from ordiff.single_cell._step import choose_step
from ordiff.single_cell._tilt import tilt_slopes
from ordiff.single_cell._write import SlotArrays, check_writable, scalar_setting, transition_matrix

if TYPE_CHECKING:
    from anndata import AnnData


def operator(
    adata: AnnData,
    ordering: OrderingLike | Sequence[OrderingLike] = PSEUDOTIME,
    use_rep: str = PCA,
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

    Parameters
    ----------
    adata
        The cells. A view becomes an object of its own, its parent is left alone. Of a backed file nothing on disk
        changes: the results are in memory until it is written.
    ordering
        An ``obs`` column (pseudotime, or times as in `read_times`), values (m,), `Velocity`, `Lineages` or `Cycle`; a
        list of these, which share the drift equally; None for no drift. An `ordiff.Ordering` is taken as it is.
    use_rep
        The representation: a key of ``obsm``, or "X".
    neighbors_key
        None builds a graph of ``n_neighbors`` cells; "neighbors", or the key_added of scanpy.pp.neighbors, takes that
        graph, its distances and n_pcs as they are. A step that keeps its size needs some hundred neighbours: with
        scanpy's usual 15, directions and fates can be used, sizes cannot, and a warning says so.
    copy
        Write to a copy of ``adata`` and return that instead, as in scanpy.
    n_pcs
        The first coordinates of the representation only.
    n_neighbors
        Neighbours of the graph that is built, 100 by default.
    forward
        At every cell a step raises the ordering by Φ⁻¹(forward) standard deviations of a step without drift, whatever
        the units of a pseudotime. With normal differences it goes up with this probability; with others more or less
        often, from cell to cell: the median that was found is ``uns["ordiff"]["forward_found"]``.
    speed
        Instead of ``forward``: the speed in units of the representation per unit of time.
    scale
        The scale of the ``speed``, as in `ordiff.Ordering`.
    noise
        ρ: a number, values (m,), an ``obs`` column, or "local": the distance to the 15th neighbour over its median, so
        that a step reaches as many cells everywhere, as in the usual single-cell kernels.
    eps
        The time of one step, or "auto", by `ordiff.tuning.choose_eps`.
    density, alpha
        As in `ordiff.Kernel.operator`.
    smoothing
        The number of neighbours over which the ordering is averaged, or None. "auto" is 35 for sampling times (ten
        cells or more to a value on average), which are no order within a sample, and None for a pseudotime.
    embedding
        One or several ``obsm`` keys of embeddings on which to project the drift; "auto" takes X_umap or the like.
    random_state
        The seed of the approximate neighbour search and of the choice of the step.
    key_added
        The name of the result. Written (`Keys`), here with the default: ``obsp["ordiff_transitions"]``,
        ``obs["ordiff_ordering"]``, ``obs["ordiff_noise"]``, ``obs["ordiff_density"]``, ``obsm["ordiff_velocity_pca"]``,
        ``obsm["ordiff_velocity_umap"]`` and ``uns["ordiff"]``. Results of another name stay beside it.

    Returns
    -------
    MarkovOperator
        The operator, or with ``copy`` the copy of ``adata``.

    Examples
    --------
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
    keys = Keys(check_key(key_added))
    check_writable(adata, copy)
    options = OperatorOptions(
        ordering, use_rep, neighbors_key, n_pcs, n_neighbors, forward, speed, scale, noise, eps, density, alpha,
        smoothing, random_state,
    )  # fmt: skip
    result = compute_operator(adata, options)
    written = _slot_arrays(result, keys, embeddings(adata, embedding)).write(adata, keys, copy)
    return written if copy else result.op


@dataclass(frozen=True, eq=False)
class OperatorOptions:
    """What `operator` takes, except for where to write."""

    ordering: Any = PSEUDOTIME
    use_rep: str = PCA
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
            drift = {"speed": scalar_setting(self.speed), "scale": scalar_setting(self.scale)}
        density = "uniform" if self.density is None else scalar_setting(self.density)
        rest = {"noise": scalar_setting(self.noise), "density": density, "alpha": float(self.alpha)}
        return {"ordering": describe(self.ordering)} | drift | rest


@dataclass(frozen=True, eq=False)
class OperatorResult:
    """The operator and what belongs to it: ρ (m,), the values of the orderings that have some, and the settings."""

    op: MarkovOperator
    noise: Array
    values: tuple[Array, ...]
    settings: dict[str, Any]


def compute_operator(adata: AnnData, options: OperatorOptions) -> OperatorResult:
    """Read and compute; nothing is written.

    With a given ``speed`` τ the orderings have it, times their share. Otherwise τ = s ρ², with the slope s of
    `tilt_slopes`: the drift multiplies P_ij by e^{(τ_i/ρ_i²) Δl_ij}, and s is found on the chain without drift. The
    step is chosen before, with the drift that is known by then.
    """
    shift = tuning.speed_for_bias(_validation.share(options.forward, "forward"), 1.0, 1.0)
    graph, graph_settings = cell_graph(
        adata, use_rep=options.use_rep, neighbors_key=options.neighbors_key, n_pcs=options.n_pcs,
        n_neighbors=options.n_neighbors, random_state=options.random_state,
    )  # fmt: skip
    rho = cell_noise(adata, graph, options.noise)
    given = as_list(options.ordering)
    terms = [read_ordering(adata, one, graph, options.use_rep, options.smoothing) for one in given]
    orderings = [ordering for term in terms for ordering in term.fixed]
    directions = [(make, share / len(terms)) for term in terms for make, share in term.directions]
    if options.speed is not None:
        speed = _validation.node_or_scalar(options.speed, graph.n_points, "speed")
        orderings += [make(speed=speed * share, scale=options.scale) for make, share in directions]
        directions = []
    known = Kernel(orderings, noise=rho)
    q = known.density_on(graph, options.density)
    step, step_settings = choose_step(
        known, graph, q, options.eps, alpha=options.alpha, random_state=options.random_state
    )
    with _validation.silent():
        base = known.undirected().operator(graph, step, q, options.alpha)
    tilted = [make(speed=tilt_slopes(base, make(), shift * share) * rho**2) for make, share in directions]
    # `choose_step` has warned of a chosen step already
    with _validation.silent() if isinstance(options.eps, str) else nullcontext():
        op = Kernel(orderings + tilted, noise=rho).operator(graph, step, q, options.alpha)
    unit = next((term.unit for term in terms if term.unit), "")
    settings = options.settings() | graph_settings | step_settings | {"time_unit": unit}
    if len(tilted) == 1:
        settings["forward_found"] = _probability_of_rising(op, tilted[0])
    return OperatorResult(op, rho, tuple(term.values for term in terms if term.values is not None), settings)


def _probability_of_rising(op: MarkovOperator, ordering: Ordering) -> float:
    """The median over the cells of the probability that a step to another cell goes up."""
    graph, P = op.graph, op.matrix
    i = graph.sources()
    up = np.bincount(i, P.data * (ordering.edge_differences(graph) > 0), minlength=graph.n_points)
    return float(np.median(up / np.maximum(1 - op.staying(), np.finfo(float).tiny)))


def _slot_arrays(result: OperatorResult, keys: Keys, bases: dict[str, Array]) -> SlotArrays:
    """The arrays by slot, with the drift in the representation and in the embeddings ``bases``."""
    op = result.op
    obs = {keys.noise: result.noise, keys.density: np.array(op.density)}
    with _validation.silent():  # the operator without drift would repeat the warnings
        obsm = {keys.velocity(result.settings["use_rep"]): velocity(op, "symmetric")}
        for basis, coordinates in bases.items():
            obsm[keys.velocity(basis)] = velocity(op, "intrinsic", coordinates=coordinates)
    if len(result.values) == 1 and result.values[0].ndim == 1:
        obs[keys.ordering] = result.values[0]
    elif result.values:
        obsm[keys.ordering] = np.column_stack(result.values)
    return SlotArrays(obs, obsm, {keys.transitions: transition_matrix(op)}, result.settings)
