"""The file of a fitted model: arrays and JSON in one NPZ archive, no pickle. It appears only when it is whole."""

from __future__ import annotations

import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from ordiff._coordinates import LinearCoordinates
from ordiff._validation import Array, IntArray
from ordiff.graph import NeighborGraph
from ordiff.kernel.ordering import Ordering
from ordiff.learning.likelihood import Dynamics
from ordiff.learning.result import FittedChain
from ordiff.learning.settings import GROUPS, DesignedStates, SampleStates
from ordiff.states import States

# The layout of files.
_FORMAT = 4
_KIND = "ordiff.SnapshotSDE"
_OF_STATES = ("spacing", "dimension", "radius", "are_samples")
_OF_CHAIN = ("log_noise_shift", "rotation", "metric")
_SEVERAL = ("orderings", "slopes", "local_slopes")


def write(
    path: str | Path, settings: dict[str, Any], chain: FittedChain, numbers: dict[str, Any], arrays: dict[str, Any]
) -> None:
    """Write a model: the settings of the estimator, the chain, and its fitted numbers and arrays by their names."""
    d, states = chain.dynamics, chain.states
    members: dict[str, Any] = {name: np.asarray(value) for name, value in arrays.items()} | {
        "states.points": states.points, "states.volumes": states.volumes, "states.start": states.start,
        "graph.indptr": states.graph.indptr, "graph.indices": states.graph.indices, "graph.sqdist": states.graph.sqdist,
        "dynamics.noise": d.noise, "dynamics.log_weight": d.log_weight, "chain.ordering": chain.ordering,
    }  # fmt: skip
    for name in _SEVERAL:
        members |= {f"dynamics.{name}.{k}": value for k, value in enumerate(getattr(d, name))}
    parts = {f"chain.{name}": getattr(chain, name) for name in _OF_CHAIN}
    members |= {name: value for name, value in parts.items() if value is not None}
    members |= {f"chain.local.{k}": values for k, values in enumerate(chain.local_differences())}
    meta = {
        "format": _FORMAT, "kind": _KIND, "settings": _plain_settings(settings),
        "fitted": {name: _plain(value) for name, value in numbers.items()},
        "states": {name: _plain(getattr(states, name)) for name in _OF_STATES},
        "eps": d.eps, "self_weight": d.self_weight, "alpha": chain.alpha,
    }  # fmt: skip
    members["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    path = Path(path)
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        np.savez_compressed(file, **members)
    partial.replace(path)


def read(path: str | Path) -> tuple[dict[str, Any], FittedChain, dict[str, Any], dict[str, Any]]:
    """Settings, chain, numbers and arrays, as `write` had them."""
    try:
        with Path(path).open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            members = {name: file[name] for name in file.files}
        meta = json.loads(bytes(members.pop("meta")))
        known = meta["kind"] == _KIND
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} is not a model saved by ordiff, or is damaged ({type(error).__name__}).") from None
    if not known or meta["format"] != _FORMAT:
        raise ValueError(f"{path} has format {meta.get('format')}, but this version of ordiff reads format {_FORMAT}.")
    return _settings(meta["settings"]), _chain(meta, members), meta["fitted"], members


def _chain(meta: dict[str, Any], members: dict[str, Any]) -> FittedChain:
    points = members["states.points"]
    graph = NeighborGraph(members["graph.indptr"], members["graph.indices"], members["graph.sqdist"], points)
    states = States(
        points, members["states.volumes"], start=members["states.start"], prebuilt_graph=graph, **meta["states"]
    )

    def several(prefix: str) -> tuple[Array, ...]:
        n = sum(key.startswith(f"{prefix}.") for key in members)
        return tuple(members[f"{prefix}.{k}"] for k in range(n))

    orderings, slopes, local_slopes = (several(f"dynamics.{name}") for name in _SEVERAL)
    dynamics = Dynamics(
        meta["eps"], members["dynamics.noise"], orderings, slopes, local_slopes, members["dynamics.log_weight"],
        meta["self_weight"],
    )  # fmt: skip
    given = tuple(Ordering.local(_StoredDifferences(graph.matrix(edges))) for edges in several("chain.local"))
    parts = {name: members.get(f"chain.{name}") for name in _OF_CHAIN}
    return FittedChain(states, dynamics, given, members["chain.ordering"], meta["alpha"], **parts)


def coordinate_arrays(coordinates: LinearCoordinates) -> dict[str, Any]:
    """The arrays of linear coordinates by their names in a file; none when they are the data's own."""
    return {f"coordinates.{name}": value for name, value in vars(coordinates).items() if value is not None}


def coordinates(arrays: dict[str, Any]) -> LinearCoordinates:
    """Those of a file."""
    return LinearCoordinates(*(arrays.get(f"coordinates.{name}") for name in ("centre", "forward", "back")))


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
    def one(value: Any) -> Any:
        if not isinstance(value, dict):
            return tuple(value) if isinstance(value, list) else value
        return _OF_SETTINGS[value["group"]](**{key: member for key, member in value.items() if key != "group"})

    return {name: one(value) for name, value in stored.items()}


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(one) for one in value)
    return value is None or isinstance(value, str | bool | int | float | np.number)


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value.item() if isinstance(value, np.generic) else value
