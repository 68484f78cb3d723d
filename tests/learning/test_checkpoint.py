"""A fit that was ended goes on from its checkpoint, with the same result."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import ordiff as od
from ordiff.learning.checkpoint import Checkpoint
from small_model import small_model

SPLINES = od.Smoothness(basis=24)  # whose noise has several strengths
SETTINGS = {"smoothness": od.Smoothness(basis=6), "solver": od.Solver(eps=0.1, max_iter=20, n_starts=1)}


def four_dimensions(checkpoint=None) -> od.SnapshotSDE:
    """By moments: a search, one with functions of directions, and the result, of few particles."""
    data = od.datasets.well_ou(500, random_state=0, dimension=4)
    with pytest.MonkeyPatch.context() as patch:
        for name, few in {"SEARCH": 800, "FINAL": 800, "STEPS": 20, "SENSITIVE": (100, 100)}.items():
            patch.setattr(f"ordiff.learning.moments._{name}", few)
        with warnings.catch_warnings(action="ignore", category=od.OrdiffWarning):
            return od.SnapshotSDE(data.start).fit(data.X, data.times, checkpoint=checkpoint)


def two_chains(checkpoint=None) -> od.SnapshotSDE:
    """A coarse chain and one on the states that it asks for."""
    data = od.datasets.ornstein_uhlenbeck(300, random_state=0)
    model = od.SnapshotSDE(data.start, noise="constant", solver=od.Solver(eps=0.1, max_iter=20, n_starts=1))
    with warnings.catch_warnings(action="ignore", category=od.OrdiffWarning):
        return model.fit(data.X, data.times, checkpoint=checkpoint)


FITS = {
    "constant noise": lambda path=None: small_model(path, **SETTINGS),
    "noise field": lambda path=None: small_model(path, noise="field", **SETTINGS | {"smoothness": SPLINES}),
    "rotation": lambda path=None: small_model(path, noise="field", drift="general", **SETTINGS),
    "density": lambda path=None: small_model(path, learn=("ordering", "noise", "density")),  # without the curvature
    "moments": four_dimensions,
    "two chains": two_chains,
}


class KilledError(Exception):
    pass


@pytest.mark.parametrize("kind", FITS)
def test_a_fit_that_is_killed_after_every_round_has_the_same_result(kind, tmp_path, monkeypatch):
    fit, path, keep, kept = FITS[kind], tmp_path / "checkpoint.npz", Checkpoint.keep, []

    def keep_and_die(self, found) -> None:
        keep(self, found)
        kept.append(found)
        raise KilledError

    whole = fit()
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "keep", keep_and_die)
        while True:
            try:
                again = fit(path)
                break
            except KilledError:
                assert len(kept) < 30
    assert len(kept) >= {"density": 1, "moments": 2, "rotation": 5}.get(kind, 3)
    for name in (
        "ordering_",
        "noise_",
        "drift_",
        "rotation_",
        "drift_std_",
        "log_noise_std_",
        "history_",
        "history_stages_",
    ):
        np.testing.assert_array_equal(getattr(again, name), getattr(whole, name), err_msg=name)
    assert (again.smooth_noise_, again.n_iter_) == (whole.smooth_noise_, whole.n_iter_)


def test_a_resumed_fit_that_is_interrupted_at_once_is_where_it_was(tmp_path, monkeypatch):
    path, keep, kept = tmp_path / "checkpoint.npz", Checkpoint.keep, []

    def keep_and_die(self, found) -> None:
        keep(self, found)
        kept.append(found)
        if len(kept) > 1 and kept[-1].a.size != kept[0].a.size:  # of the second chain
            raise KilledError

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "keep", keep_and_die)
        with pytest.raises(KilledError):
            two_chains(path)
    monkeypatch.setattr("ordiff.learning.optimise.minimise", interrupted)
    model = two_chains(path)
    assert model.interrupted_
    np.testing.assert_array_equal(model._result.solution.a, kept[-1].a)


def test_a_checkpoint_of_other_data_or_settings_is_refused(tmp_path):
    path = tmp_path / "checkpoint.npz"
    small_model(path)
    with pytest.raises(ValueError, match="other data or other settings"):
        small_model(path, **SETTINGS)
    path.write_bytes(b"something else")
    with pytest.raises(ValueError, match=r"checkpoint\.npz is not a checkpoint"):
        small_model(path)


def test_an_interrupt_after_the_coarse_chain_leaves_a_model(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("ordiff.learning.fit.design", interrupted)
    data = od.datasets.ornstein_uhlenbeck(300, random_state=0)
    model = od.SnapshotSDE(data.start, noise="constant", solver=od.Solver(n_starts=1))
    with pytest.warns(od.OrdiffWarning):
        model.fit(data.X, data.times)
    assert model.interrupted_
    assert not model.converged_
    assert np.isfinite(model.predict(data.X)).all()
