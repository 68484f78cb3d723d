"""The verb `fit`: a `SnapshotSDE` learned from cells and their sampling times, and a chain of it on the cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ordiff import _validation
from ordiff._validation import Array
from ordiff.geometry import TangentSpaces, usual_neighbors
from ordiff.kernel.kernel import Kernel
from ordiff.kernel.ordering import Ordering
from ordiff.operator import MarkovOperator
from ordiff.single_cell._graph import build_graph
from ordiff.single_cell._key import PCA, ROOT, Keys, check_key
from ordiff.single_cell._read import embeddings, representation
from ordiff.single_cell._step import choose_step
from ordiff.single_cell._times import Times, numeric_column
from ordiff.single_cell._write import SlotArrays, check_writable, transition_matrix

if TYPE_CHECKING:
    from anndata import AnnData

    from ordiff.model import SnapshotSDE

# Neighbours of the tangent spaces by which the drift is projected to an embedding.
_TANGENT_NEIGHBORS = 20


def fit(
    adata: AnnData,
    time_key: str,
    root: int | str | ArrayLike | None = None,
    *,
    copy: bool = False,
    time_origin: float | None = None,
    use_rep: str = PCA,
    n_pcs: int | None = None,
    n_neighbors: int | None = None,
    embedding: str | Sequence[str] | None = "auto",
    key_added: str = "ordiff",
    **options: Any,
) -> Any:
    """Learn ordering, noise and drift from cells and their sampling times; the model is returned, its fields written.

    Parameters
    ----------
    adata
        The cells.
    time_key
        A column of ``obs`` as in `read_times`. Times of the model are in the unit of the column.
    root
        Where the process starts: a cell by number or name, a point of the representation, or a mask of cells (m,); by
        default ``uns["iroot"]``, or, without it, all cells of the earliest sample.
    copy
        Write to a copy of ``adata`` and return that instead.
    time_origin
        When the process starts, in the unit of the column; by default with the earliest sample.
    use_rep, n_pcs, n_neighbors, embedding, key_added
        As in `operator`. Written (`Keys`): ordering, noise and their standard deviations in ``obs``, the drift in
        ``obsm``, in the representation and on an embedding, and, in ``obsp``, a transition matrix of the learned
        dynamics on the cells, with a step of its own that fits them.
    **options
        Parameters of `ordiff.SnapshotSDE`; members of its groups also by their names: ``noise="constant",
        smoothness__basis=60, solver__eps=0.1``. They are written to ``uns`` as strings and numbers.

    Returns
    -------
    SnapshotSDE
        The model, or with ``copy`` the copy of ``adata``.
    """
    keys = Keys(check_key(key_added))
    check_writable(adata, copy)
    X = representation(adata, use_rep, n_pcs)
    times = numeric_column(adata, time_key, "time")
    origin = float(times.values.min()) if time_origin is None else _validation.number(time_origin, "time_origin")
    start = _find_start(adata, X, times, root)
    names = [f"PC{k + 1}" if use_rep == PCA else f"{use_rep}{k}" for k in range(X.shape[1])]
    model = _learn(X, times.values - origin, start, options, names)
    op, step_settings = _operator_on_cells(model, X, n_neighbors)
    settings = _described_options(model, options) | step_settings | {
        "time_key": time_key, "time_unit": times.unit, "time_origin": origin, "use_rep": use_rep,
        "n_pcs": X.shape[1], "start": _describe_start(adata, start), "model_eps": float(getattr(model, "eps_", np.nan)),
        "converged": bool(model.converged_), "loss": float(model.loss_), "n_iter": int(model.n_iter_),
    }  # fmt: skip
    drift = {use_rep: np.asarray(model.drift_)} | _projected_drift(model, op, embeddings(adata, embedding))
    obsm = {keys.velocity(basis): values for basis, values in drift.items()}
    slots = SlotArrays(_cell_fields(model, op, keys), obsm, {keys.transitions: transition_matrix(op)}, settings)
    written = slots.write(adata, keys, copy)
    return written if copy else model


def _learn(X: Array, times: Array, start: Any, options: dict[str, Any], names: list[str]) -> SnapshotSDE:
    """The fitted model; times (m,) count from the start of the process."""
    from ordiff.model import SnapshotSDE

    return SnapshotSDE(None).set_params(start=start, **options).fit(X, times, names=names)


def _described_options(model: SnapshotSDE, options: dict[str, Any]) -> dict[str, str | float]:
    """The options as strings and numbers, for the settings; those of a group by their names."""

    def described(value: Any) -> str | float:
        if value is None or isinstance(value, str):
            return value or "none"
        if isinstance(value, int | float | np.number):
            return float(value)
        names = isinstance(value, list | tuple | set) and all(isinstance(one, str) for one in value)
        return ", ".join(value) if names else "given"

    params = model.get_params()
    return {name: described(params[name]) for name in params if name in options or name.split("__")[0] in options}


def _operator_on_cells(model: SnapshotSDE, X: Array, n_neighbors: int | None) -> tuple[MarkovOperator, dict[str, Any]]:
    """The operator of the learned ordering and noise on a graph of the cells, and the settings of its step."""
    graph = build_graph(X, n_neighbors)
    if model.noise_tensor_ is None:
        turned = [Ordering.field(model.rotation_)] if model.rotation_.any() else []
        kernel = Kernel([Ordering(model.ordering_), *turned], noise=model.noise_)
    else:
        A = np.broadcast_to(model.noise_tensor_, (len(X), *model.noise_tensor_.shape))
        kernel = Kernel(Ordering.field(model.drift_), noise=model.noise_, anisotropy=A)
    q = kernel.density_on(graph, "balanced")
    step, settings = choose_step(kernel, graph, q)
    with _validation.silent():  # `choose_step` has warned already
        return kernel.operator(graph, step, q), settings


def _cell_fields(model: SnapshotSDE, op: MarkovOperator, keys: Keys) -> dict[str, Array]:
    """Ordering, noise and density for obs, with the standard deviations that the model has."""
    obs = {keys.ordering: np.asarray(model.ordering_), keys.noise: np.asarray(model.noise_)}
    obs[keys.density] = np.array(op.density)
    for slot, name in ((keys.ordering, "ordering_std_"), (keys.noise, "noise_std_")):
        if getattr(model, name, None) is not None:
            obs[keys.std(slot)] = np.asarray(getattr(model, name))
    return obs


def _projected_drift(model: SnapshotSDE, op: MarkovOperator, bases: dict[str, Array]) -> dict[str, Array]:
    """The drift μ in embeddings e, (m, c) each: ⟨∇e_c, μ⟩, with gradients in the tangent spaces of the graph."""
    drift = np.asarray(model.drift_)
    tangents = TangentSpaces.fit(op.graph, k=usual_neighbors(op.graph, _TANGENT_NEIGHBORS))
    return {
        basis: np.stack([np.einsum("mn,mn->m", tangents.gradient(column), drift) for column in e.T], axis=1)
        for basis, e in bases.items()
    }


def _find_start(adata: AnnData, X: Array, times: Times, root: Any) -> Any:
    """The start of the process: a cell's number, a point of the representation, or a mask of cells."""
    first = times.values == times.values.min()
    if root is None and ROOT not in adata.uns:
        return first
    if root is None:
        root = int(np.ravel(adata.uns[ROOT])[0])
        if not 0 <= root < len(X) or not first[root]:
            raise ValueError(
                f"uns[{ROOT!r}] = {root} is not a cell of the earliest sample. It is a number, so it points elsewhere "
                "after cells were left out: set it again, or give root."
            )
    if isinstance(root, str):
        found = np.flatnonzero(adata.obs_names == root)
        if found.size != 1:
            raise ValueError(f"root = {root!r} is the name of {found.size} cells; give one cell's name or number.")
        return int(found[0])
    if np.ndim(root) == 0:
        return int(_validation.indices(root, len(X), "root")[0])
    if np.shape(root) == (len(X),) and np.asarray(root).dtype == bool:
        return np.asarray(root)
    return _validation.nodes(root, X.shape[1], "root")


def _describe_start(adata: AnnData, start: Any) -> str:
    """The start as text, for the settings."""
    if np.ndim(start) == 0:
        return f"cell {adata.obs_names[start]}"
    return f"{start.sum()} cells" if start.dtype == bool else f"point {start.tolist()}"
