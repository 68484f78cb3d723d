"""Fits give the numbers that they gave before the core was made plain (commit c9a9a23): seven problems, to rounding.

The values were made by that commit's `SnapshotSDE`. They are of fits with given strengths of smoothness, those that it
had chosen, since the choice itself depends on where a first, loose optimisation stops, by up to 10⁻³ under changes of
the points by 10⁻¹³, then as now; a fit with given strengths depends on them by less than 10⁻⁶.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ordiff as od

VALUES = Path(__file__).parent / "reference_fits.npz"
D = od.datasets


def phase(points: np.ndarray) -> od.Ordering:
    return od.Ordering.cyclic(np.arctan2(points[:, 1], points[:, 0]), period=2 * np.pi)


def windows(times: np.ndarray) -> np.ndarray:
    first = np.floor(times * 4) / 4
    return np.stack([first, first + 0.25], axis=1).clip(0, 2)


Case = tuple[D.Problem, Any, dict[str, Any], dict[str, Any]]  # data, times, settings, options of fit


def nonlinear() -> Case:
    data = D.nonlinear(800, random_state=3)
    return data, data.times, {}, {}


def constant() -> Case:
    data = D.ornstein_uhlenbeck(500, random_state=1)
    return data, data.times, {"noise": "constant"}, {}


def windows_and_weights() -> Case:
    data = D.ornstein_uhlenbeck(500, random_state=3)
    return data, windows(data.times), {"noise": "constant"}, {"sample_weight": np.where(data.X[:, 0] > 1, 1.5, 0.75)}


def unknown_times() -> Case:
    data = D.ornstein_uhlenbeck(400, random_state=2)
    return data, None, {"noise": "constant", "times": od.TimeDensity(data.time_density, data.horizon)}, {}


def samples() -> Case:
    data = D.nonlinear(300, random_state=4)
    return data, data.times, {"states": "samples", "smoothness": od.Smoothness(basis=20)}, {}


def cycle() -> Case:
    data = D.limit_cycle(500, random_state=5)
    settings = {"learn": ("ordering", "speed", "noise"), "ordering": phase, "noise": "constant"}
    return data, data.times, {**settings, "solver": od.Solver(eps=0.2), "smoothness": od.Smoothness(basis=10)}, {}


def sphere() -> Case:
    data = D.sphere(500, random_state=6)
    return data, data.times, {}, {}


@pytest.mark.slow
@pytest.mark.parametrize("case", [nonlinear, constant, windows_and_weights, unknown_times, samples, cycle, sphere])
def test_fitted_values_are_those_of_before(case: Callable[[], Case]) -> None:
    with np.load(VALUES) as file:
        (ordering, noise), strengths = file[f"{case.__name__}.values"], file[f"{case.__name__}.strengths"]
    data, times, settings, options = case()
    names = ("smoothness__ordering", "smoothness__noise")[: len(strengths)]
    model = od.SnapshotSDE(data.start, **settings).set_params(**dict(zip(names, strengths.tolist(), strict=True)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", od.OrdiffWarning)  # of a sample that is not reached, then as now
        model.fit(data.X, times, **options)
    np.testing.assert_allclose(model.ordering_, ordering, rtol=0, atol=1e-5 * np.ptp(ordering))
    np.testing.assert_allclose(model.noise_, noise, rtol=1e-4)
