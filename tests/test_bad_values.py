"""Every parameter of every public function refuses what it cannot use, in words."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import bad_values
import ordiff as od
from bad_values import TABLE, cases, outcome
from ordiff import tuning

# What users get, not make; what has no parameter; and what is a module, or an abstract class to subclass.
RESULTS = {"Eigenbasis", "Moments", "PassageTime", "ReactiveFlux", "Product", "Extrapolation"}
NO_CALLS = {"Gaussian", "SuperGaussian", "Profile", "datasets", "single_cell", "tuning", "plot"}
# Checked by tests of their own, on settings that only show in a fit (below), or where they are used (test_states.py).
ELSEWHERE = {"SnapshotSDE", "States", "TangentSpaces"}
# Classes whose methods users call.
METHODS = ("SnapshotSDE", "MarkovOperator", "TangentSpaces", "NeighborGraph")
# What hands values on, or is for other modules of ordiff.
INTERNAL = {
    "SnapshotSDE.get_params", "SnapshotSDE.set_params", "TangentSpaces.gradient_from", "NeighborGraph.usual_degree",
    "NeighborGraph.matrix", "NeighborGraph.sources",
}  # fmt: skip


def public() -> dict[str, Any]:
    names = {name: getattr(od, name) for name in od.__all__ if name not in RESULTS | NO_CALLS | ELSEWHERE}
    found = {
        name: value for name, value in names.items() if not (inspect.isclass(value) and issubclass(value, Exception))
    }
    for kind in METHODS:
        members = {f"{kind}.{name}": getattr(getattr(od, kind), name) for name in dir(getattr(od, kind))}
        found |= {
            name: value
            for name, value in members.items()
            if "._" not in name
            and name not in INTERNAL
            and getattr(value, "__module__", "").startswith("ordiff.")
            and parameters(value)
        }
    own = {name: value for name, value in vars(tuning).items() if inspect.isfunction(value) and name[0] != "_"}
    return found | {f"tuning.{name}": f for name, f in own.items() if f.__module__ == "ordiff.tuning"}


def parameters(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters) - {"self"} if callable(function) else set()


@pytest.mark.parametrize("name", public())
def test_the_table_has_every_parameter(name):
    assert parameters(public()[name]) == set(TABLE[name][2]), f"add the parameters of {name} to tests/bad_values.py"


@pytest.mark.parametrize("name", TABLE)
def test_bad_values_are_refused_in_words(name):
    found = [(at, repr(value)[:60], *outcome(name, at, value)) for one, at, value in cases() if one == name]
    assert not [one for one in found if one[2] != "refused"]


FIT = {
    "states": [None, "other", 3, np.array(["designed"])], "learn": [None, (), "other", 3],
    "noise": [None, "other", np.nan, -1.0, 0.0, np.array(["field"])], "times": ["x", 3], "smoothness": ["x", 3],
    "solver": ["x", 3], "start": [None, "x", np.nan, [1e9, 1e9], 1j, np.ma.masked_array([1.0, 2.0], [True, False])],
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in FIT.items() for value in values])
def test_bad_settings_are_refused_before_a_fit(name, value):
    data = od.datasets.ornstein_uhlenbeck(80, random_state=0)
    settings = {"start": data.start} | {name: value}
    with pytest.raises(ValueError, match=name):
        od.SnapshotSDE(**settings).fit(data.X, data.times)


def test_masks_and_dates_are_not_dropped():
    model = bad_values.model()
    X, times = model.samples_, np.linspace(0.1, 1, 80)
    masked = np.ma.masked_array(X, np.arange(X.size).reshape(X.shape) == 3)
    dates = np.full(X.shape, np.datetime64("2020-01-01"))
    for bad, said in ((masked, "X has 1 masked"), (dates, "dates"), (X * 1j, "complex")):
        for ask in (model.predict, model.predict_noise, model.predict_drift, lambda Y: model.score(Y, times)):
            with pytest.raises(ValueError, match=said):
                ask(bad)
        with pytest.raises(ValueError, match=said):
            od.SnapshotSDE(0).fit(bad, times)
    with pytest.raises(ValueError, match="times has 1 masked"):
        od.SnapshotSDE(0).fit(X, np.ma.masked_array(times, times == 1))


def test_what_does_not_fit_into_memory_is_refused():
    model = bad_values.model()
    with pytest.raises(ValueError, match="GB of memory"):
        model.simulate(10, horizon=1e9)
    with pytest.raises(ValueError, match="check the units of the times"):
        model.score(model.samples_, np.full(80, 1e9))
