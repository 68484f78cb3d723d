"""The file of a fitted model: arrays and JSON in one NPZ archive, no pickle. It appears only when it is whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ordiff import _archive, _validation
from ordiff._archive import ArraySpec, one_of
from ordiff._coordinates import LinearCoordinates
from ordiff._validation import Array, IntArray
from ordiff.graph import NeighborGraph
from ordiff.kernel.ordering import Ordering
from ordiff.learning.check import FitCheck, Moment
from ordiff.learning.likelihood import Dynamics
from ordiff.learning.process import FittedProcess
from ordiff.learning.result import FittedChain
from ordiff.learning.ridges import KNOTS, RidgeBasis, RidgeOrdering
from ordiff.learning.settings import GROUPS, DesignedStates, SampleStates
from ordiff.states import States

# The layout of files.
_FORMAT = 5
_KIND = "ordiff.SnapshotSDE"
_OF_STATES = ("spacing", "dimension", "radius", "are_samples")
_OF_CHAIN = ("rotation", "metric")
_OF_BASIS = ("centre", "directions", "knots")

# The arrays of every file. Axes: q coordinates of the process, n of the samples, m samples, s points of the start,
# a orderings, h evaluations; u and e samples that are not reached or too early.
_ARRAYS = {
    "ordering_": ArraySpec("f", "m"), "noise_": ArraySpec("f", "m"), "drift_": ArraySpec("f", "mn"),
    "rotation_": ArraySpec("f", "mn"), "rotation_std_": ArraySpec("f", "mn", finite=False),
    "noise_tensor_": ArraySpec("f", "nn", required=False), "noise_tensor_std_": ArraySpec("f", "nn", required=False),
    "ordering_std_": ArraySpec("f", "m", finite=False), "log_noise_std_": ArraySpec("f", "m", finite=False),
    "noise_std_": ArraySpec("f", "m", finite=False), "drift_std_": ArraySpec("f", "mn", finite=False),
    "speed_": ArraySpec("f", "a"), "history_": ArraySpec("f", "h", finite=False),
    "history_stages_": ArraySpec("i", "h"),
    "unreached_": ArraySpec("i", "u"), "early_": ArraySpec("i", "e"),
    "samples": ArraySpec("f", "mn"), "start": ArraySpec("f", "sn"), "start_weights": ArraySpec("f", "s"),
    "coordinates.centre": ArraySpec("f", "n", required=False),
    "coordinates.forward": ArraySpec("f", "nq", required=False),
    "coordinates.back": ArraySpec("f", "qn", required=False),
}  # fmt: skip
# Those of a chain. Axes: N states, R one more, E edges.
_CHAIN_ARRAYS = {
    "states.points": ArraySpec("f", "Nq"), "states.volumes": ArraySpec("f", "N"), "states.start": ArraySpec("f", "N"),
    "graph.indptr": ArraySpec("i", "R"), "graph.indices": ArraySpec("i", "E"), "graph.sqdist": ArraySpec("f", "E"),
    "dynamics.noise": ArraySpec("f", "N"), "dynamics.log_weight": ArraySpec("f", "N"),
    "chain.ordering": ArraySpec("f", "N"),
    "chain.rotation": ArraySpec("f", "Nq", required=False), "chain.metric": ArraySpec("f", "qq", required=False),
}  # fmt: skip
# Those of which a chain has several, with a number each.
_SEVERAL = {"dynamics.orderings": "N", "dynamics.slopes": "N", "dynamics.local_slopes": "N", "chain.local": "E"}
# Those of a process that was learned by moments. Axes: R directions, K knots, p coefficients, P one more.
_PROCESS_ARRAYS = {
    "basis.centre": ArraySpec("f", "q"), "basis.directions": ArraySpec("f", "Rq"), "basis.knots": ArraySpec("f", "RK"),
    "process.coefficients": ArraySpec("f", "p"), "process.covariance": ArraySpec("f", "PP"),
    "process.start": ArraySpec("f", "sq"), "process.start_weights": ArraySpec("f", "s"),
}  # fmt: skip

# The logarithm of a noise whose square is a number.
_LARGEST_LOG = 320.0

_NUMBER, _FLAG, _WORD, _WHOLE = one_of(int, float), one_of(bool), one_of(str), one_of(int)
_STRENGTH = one_of(int, float, type(None))
_FITTED = {
    "horizon_": _validation.positive, "loss_": _validation.number, "n_iter_": _WHOLE, "converged_": _FLAG,
    "interrupted_": _FLAG, "n_features_in_": _WHOLE, "smooth_ordering_": _STRENGTH, "smooth_noise_": _STRENGTH,
    "rotation_nats_": _STRENGTH, "tensor_nats_": _STRENGTH,
    "_level_deviation": _NUMBER, "times_known": _FLAG, "reasons": [_WORD],
    "moments": [(_NUMBER, _WHOLE, _WORD, _NUMBER, _NUMBER, _NUMBER)],
}  # fmt: skip
_STATES = {"spacing": _NUMBER, "dimension": _WHOLE, "radius": _NUMBER, "are_samples": _FLAG}
_CHAIN_META = {"states": _STATES, "eps": _validation.positive, "self_weight": _NUMBER, "alpha": _NUMBER}
_PROCESS_META = {"noise": _validation.positive, "step": _validation.positive}
_SETTINGS = ("start", "learn", "drift", "noise", "ordering", "states", "times", "smoothness", "solver", "progress",
             "random_state")  # fmt: skip


# Fitted attributes that are written by their own names: arrays, of which some may be None, and numbers.
FITTED_ARRAYS = tuple(name for name in _ARRAYS if name.endswith("_"))
FITTED_NUMBERS = tuple(name for name in _FITTED if name not in ("times_known", "reasons", "moments"))


def write(path: str | Path, model: Any) -> None:
    """Write a fitted `SnapshotSDE`: its settings, its process, and its fitted numbers and arrays by their names."""
    process = model._process
    members, meta = _chain_members(process) if isinstance(process, FittedChain) else _process_members(process)
    fitted = {name: getattr(model, name) for name in FITTED_ARRAYS}
    members |= {name: value for name, value in fitted.items() if value is not None}
    members |= _coordinate_arrays(model.coordinates_)
    members |= {"samples": model.samples_, "start": model.start_points_, "start_weights": model.start_weights_}
    numbers = {name: getattr(model, name) for name in FITTED_NUMBERS}
    numbers |= {"times_known": model._data.times is not None, "reasons": model.check_.reasons}
    numbers |= {"moments": [list(vars(row).values()) for row in model.check_.table]}
    meta |= {
        "format": _FORMAT, "kind": _KIND, "of": type(process).__name__,
        "settings": _plain_settings(model.get_params(deep=False)),
        "fitted": {name: _plain(value) for name, value in numbers.items()},
    }  # fmt: skip
    _archive.write(path, meta, members)


def _process_members(process: FittedProcess) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays and numbers of a process that was learned by moments."""
    basis = process.form.basis
    members = {f"basis.{name}": getattr(basis, name) for name in _OF_BASIS}
    members |= {
        "process.coefficients": process.form.coefficients, "process.covariance": process.covariance,
        "process.start": process.start, "process.start_weights": process.start_weights,
    }  # fmt: skip
    return members, {"noise": process.noise, "step": process.step}


def _process(meta: dict[str, Any], members: dict[str, Any]) -> FittedProcess:
    basis = RidgeBasis(*(members[f"basis.{name}"] for name in _OF_BASIS))
    form = RidgeOrdering(basis, members["process.coefficients"])
    covariance, start, weights = (members[f"process.{name}"] for name in ("covariance", "start", "start_weights"))
    return FittedProcess(form, meta["noise"], covariance, start, weights, meta["step"])


def _chain_members(chain: FittedChain) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays and numbers of a chain."""
    d, states = chain.dynamics, chain.states
    members: dict[str, Any] = {
        "states.points": states.points, "states.volumes": states.volumes, "states.start": states.start,
        "graph.indptr": states.graph.indptr, "graph.indices": states.graph.indices, "graph.sqdist": states.graph.sqdist,
        "dynamics.noise": d.noise, "dynamics.log_weight": d.log_weight, "chain.ordering": chain.ordering,
    }  # fmt: skip
    parts = {f"chain.{name}": getattr(chain, name) for name in _OF_CHAIN}
    members |= {name: value for name, value in parts.items() if value is not None}
    values = (d.orderings, d.slopes, d.local_slopes, chain.local_differences())
    for name, several in zip(_SEVERAL, values, strict=True):
        members |= {f"{name}.{k}": one for k, one in enumerate(several)}
    meta = {
        "states": {name: _plain(getattr(states, name)) for name in _OF_STATES},
        "eps": d.eps, "self_weight": d.self_weight, "alpha": chain.alpha,
    }  # fmt: skip
    return members, meta


@contextmanager
def told(path: str | Path) -> Iterator[None]:
    """Every failure to make a model of a file is one ValueError that names it."""
    with _archive.told(path, "a model saved by ordiff"):
        yield


def read(path: str | Path) -> tuple[dict[str, Any], FittedChain | FittedProcess, dict[str, Any], dict[str, Any]]:
    """Settings, process, numbers and arrays of a file; all are checked. To be called in `told`."""
    with _archive.opened(path) as archive:
        meta = archive.meta()
        if meta.get("kind") != _KIND:
            raise ValueError("it holds something else.")
        _check_format(meta.get("format"))
        is_chain = meta.get("of") == FittedChain.__name__
        common = {"format": _WHOLE, "kind": _WORD, "of": _WORD, "fitted": _FITTED, "settings": one_of(dict)}
        _archive.checked_json(meta, common | (_CHAIN_META if is_chain else _PROCESS_META), "meta")
        own = _CHAIN_ARRAYS | _numbered(archive.names()) if is_chain else _PROCESS_ARRAYS
        members, lengths = archive.arrays(_ARRAYS | own)
    _check_sizes(lengths, is_chain, meta["fitted"]["n_features_in_"])
    for name in ("unreached_", "early_"):
        if members[name].size:
            _validation.indices(members[name], lengths["m"], name)
    for name in ("noise_", "start_weights"):
        if not (members[name] > 0).all():
            raise ValueError(f"{name} must be positive.")
    reduced = {"centre", "forward", "back"} & {name.removeprefix("coordinates.") for name in members}
    if len(reduced) not in (0, 3) or (not reduced and lengths["n"] != lengths["q"]):
        raise ValueError("its coordinates do not fit.")
    process = (_chain if is_chain else _process)(meta, members)
    return _settings(meta["settings"]), process, meta["fitted"], members


def _check_sizes(lengths: dict[str, int], is_chain: bool, n_features: int) -> None:
    """Relations between the lengths of axes that their names do not tell."""
    if is_chain:
        fits = lengths["R"] == lengths["N"] + 1
    else:
        d, ridges = lengths["q"], lengths["R"] * (KNOTS - 1)
        n_functions = 2 * d + d * (d - 1) // 2 + ridges
        fits = lengths["K"] == KNOTS and lengths["p"] == n_functions and lengths["P"] == n_functions + 1
    if not fits or n_features != lengths["n"]:
        raise ValueError("the sizes of its arrays do not fit.")


def _check_format(found: Any) -> None:
    if type(found) is int and found > _FORMAT:
        raise ValueError(
            f"it was written by a newer version of ordiff (format {found}; this one reads format {_FORMAT}): "
            "update ordiff to read it."
        )
    if found != _FORMAT:
        raise ValueError(f"it has format {found}, but this version of ordiff reads format {_FORMAT}.")


def _numbered(names: list[str]) -> dict[str, ArraySpec]:
    """The specifications of arrays with a number, 0 and on without a gap."""
    specs: dict[str, ArraySpec] = {}
    for prefix, axes in _SEVERAL.items():
        n = sum(name.startswith(f"{prefix}.") for name in names)
        specs |= {f"{prefix}.{k}": ArraySpec("f", axes) for k in range(n)}
    return specs


def _chain(meta: dict[str, Any], members: dict[str, Any]) -> FittedChain:
    points = members["states.points"]
    graph = NeighborGraph(members["graph.indptr"], members["graph.indices"], members["graph.sqdist"], points)
    states = States(
        points, members["states.volumes"], start=members["states.start"], prebuilt_graph=graph, **meta["states"]
    )
    orderings, slopes, local_slopes, differences = (
        tuple(members[name] for name in sorted(_numbered_like(prefix, members), key=_number)) for prefix in _SEVERAL
    )
    dynamics = Dynamics(
        meta["eps"], members["dynamics.noise"], orderings, slopes, local_slopes, members["dynamics.log_weight"],
        meta["self_weight"],
    )  # fmt: skip
    given = tuple(Ordering.local(_StoredDifferences(graph.matrix(edges))) for edges in differences)
    parts = {name: members.get(f"chain.{name}") for name in _OF_CHAIN}
    chain = FittedChain(states, dynamics, given, members["chain.ordering"], meta["alpha"], **parts)
    n_local = len(chain.edge_differences()) + len(chain.edge_forms())
    dynamics.check(len(points), n_local)
    with np.errstate(all="ignore"):
        if not (np.abs(np.log(chain.noise)) < _LARGEST_LOG).all():
            raise ValueError("the noise of its chain is not positive, or too large.")
    return chain


def _numbered_like(prefix: str, names: Any) -> list[str]:
    return [name for name in names if name.startswith(f"{prefix}.")]


def _number(name: str) -> int:
    return int(name.rpartition(".")[2])


def _coordinate_arrays(coordinates: LinearCoordinates) -> dict[str, Any]:
    """The arrays of linear coordinates by their names in a file; none when they are the data's own."""
    return {f"coordinates.{name}": value for name, value in vars(coordinates).items() if value is not None}


def coordinates(arrays: dict[str, Any]) -> LinearCoordinates:
    """Those of a file."""
    return LinearCoordinates(*(arrays.get(f"coordinates.{name}") for name in ("centre", "forward", "back")))


def check(numbers: dict[str, Any]) -> FitCheck:
    """That of a file."""
    reasons = tuple(numbers["reasons"])
    return FitCheck(not reasons, reasons, tuple(Moment(*row) for row in numbers["moments"]))


class _StoredDifferences:
    """A local ordering by its stored differences."""

    def __init__(self, matrix: Any) -> None:
        self.matrix = matrix

    def __call__(self, i: IntArray, j: IntArray) -> Array:
        return np.asarray(self.matrix[i.ravel(), j.ravel()]).reshape(i.shape)


# ------------------------------------------------------------------------------------------ settings as JSON

_OF_SETTINGS = {kind.__name__: kind for kind in (*GROUPS.values(), DesignedStates, SampleStates)}


def _plain_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """What JSON holds of the settings: a group by its name and its plain members. Functions and arrays are left out."""
    out = {}
    for name, value in settings.items():
        if type(value).__name__ in _OF_SETTINGS:
            members = {key: _plain(one) for key, one in vars(value).items() if _is_plain(one)}
            out[name] = {"group": type(value).__name__, **members}
        elif _is_plain(value):
            out[name] = _plain(value)
    return out


def _settings(stored: dict[str, Any]) -> dict[str, Any]:
    unknown = sorted(stored.keys() - set(_SETTINGS))
    if unknown:
        raise ValueError(f"it has a setting {unknown[0]!r}, which is not known.")

    def one(value: Any) -> Any:
        if not isinstance(value, dict):
            return tuple(map(one, value)) if isinstance(value, list) else value
        kind = _OF_SETTINGS.get(str(value.get("group")))
        if kind is None:
            raise ValueError(f"it has settings of a group {value.get('group')!r}, which is not known.")
        return kind(**{key: one(member) for key, member in value.items() if key != "group"})

    return {name: one(value) for name, value in stored.items()}


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(one) for one in value)
    return value is None or isinstance(value, str | bool | int | float | np.number)


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value.item() if isinstance(value, np.generic) else value
