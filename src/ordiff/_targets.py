"""Sets of states as users give them: masks, indices, labels, masses."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence, Sized
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ordiff import _validation
from ordiff._polynomials import kd_tree
from ordiff._validation import Array
from ordiff.graph.search import query_tree
from ordiff.states import States


def members(values: ArrayLike, m: int, name: str) -> NDArray[np.bool_]:
    """A set of states, not empty, as a mask (m,): from a mask, or from one index or several."""
    array = _validation.as_array(values, name)
    if array.dtype.kind == "b":
        if array.shape != (m,):
            raise ValueError(f"{name}, a mask, must have one value per state, shape ({m},); got shape {array.shape}.")
        mask = array.copy()
    elif array.size:
        if array.shape == (m,) and m > 2 and array.dtype.kind in "iu" and np.isin(array, (0, 1)).all():
            raise ValueError(
                f"{name} has a 0 or 1 for each of the {m} states: write a mask as booleans, .astype(bool), and states "
                "by their indices, np.flatnonzero(...)."
            )
        mask = np.zeros(m, bool)
        mask[_validation.indices(values, m, name)] = True
    if not array.size or not mask.any():
        raise ValueError(f"{name} holds no state: give at least one.")
    return mask


def disjoint(masks: Sequence[NDArray[np.bool_]], names: Sequence[str]) -> None:
    """Sets of states without a common one."""
    count = np.sum(masks, axis=0)
    if count.max() > 1:
        at = int(np.argmax(count > 1))
        shared = [name for mask, name in zip(masks, names, strict=True) if mask[at]]
        raise ValueError(
            f"{shared[0]} and {shared[1]} have {int((count > 1).sum())} state(s) in common, the first is {at}: a state "
            "can be in one of the sets only."
        )


def some_left(inside: NDArray[np.bool_]) -> None:
    """Is a state left outside the targets?"""
    if inside.all():
        raise ValueError(f"all {inside.size} states are targets: none is left to start from.")


def named_sets(terminal: Any, m: int) -> dict[Hashable, Any]:
    """Terminal states by name: from a dict, a list of sets (named 0, 1, …), or one label per state."""
    if isinstance(terminal, Mapping):
        named = dict(terminal)
    elif isinstance(terminal, str) or not isinstance(terminal, Iterable):
        raise ValueError(f"terminal must be a dict, a list of sets of states, or ({m},) labels; got {terminal!r}.")
    else:
        entries = list(terminal)
        if len(entries) != m or any(isinstance(entry, Sized) and not isinstance(entry, str) for entry in entries):
            named = dict(enumerate(entries))
        else:
            named = _labelled(entries)
    if not named:
        raise ValueError("terminal has no set of states: give at least one.")
    return named


def _labelled(entries: Sequence[Any]) -> dict[Hashable, Any]:
    """The states of each label, in sorted order of the labels."""
    if all(isinstance(entry, bool | np.bool_) for entry in entries):
        raise ValueError("terminal is one mask: give a list of masks, or a dict, with one for each fate.")
    found: dict[Any, list[int]] = {}
    for at, entry in enumerate(entries):
        if not _is_missing(entry):
            found.setdefault(entry, []).append(at)
    return {label: found[label] for label in sorted(found, key=lambda label: (isinstance(label, str), label))}


def _is_missing(label: Any) -> bool:
    """None, NaN and NA, "", and numbers below 0 say that a state has no label."""
    if isinstance(label, str):
        return not label
    if isinstance(label, int | float | np.number):
        return not label >= 0  # NaN too
    return label is None or type(label).__name__ in ("NAType", "NaTType")


def start_mass(values: ArrayLike, m: int, name: str = "start") -> Array:
    """A probability mass (m,): as given, or shared equally by a mask, an index or several."""
    array = _validation.as_array(values, name)
    if array.dtype.kind in "biu":
        mask = members(array, m, name)
        return mask / mask.sum()
    mass = _validation.nodes(values, m, name)
    if mass.min() < 0 or abs(mass.sum() - 1.0) > 1e-6:
        raise ValueError(
            f"{name} must be a probability mass, not negative and of total 1; its least value is {mass.min():g} and "
            f"its total {mass.sum():g}."
        )
    return mass


def states_of(members: dict[Any, Any], samples: Array, states: States) -> list[Any]:
    """The states of each set of samples: those to which one of it is the nearest, or, if there is none, the nearest."""
    fate = np.full(len(samples), -1)
    for k, rows in enumerate(members.values()):
        fate[rows] = k
    of_state = fate[query_tree(kd_tree(samples), states.points, 1)[1]]
    for k, (name, rows) in enumerate(members.items()):
        if not (of_state == k).any():
            near = np.unique(states.nearest(samples[rows]))
            near = near[of_state[near] < 0]
            if near.size == 0:
                raise ValueError(f"terminal set {name!r} is too small: no state of the chain lies in it.")
            of_state[near] = k
    return [np.flatnonzero(of_state == k) for k in range(len(members))]
