"""A fit that was ended goes on from its checkpoint, with the same result."""

from __future__ import annotations

import numpy as np
import pytest

import ordiff as od
from ordiff.learning.checkpoint import Checkpoint
from small_model import small_model

SETTINGS = {"smoothness": od.Smoothness(basis=6), "solver": od.Solver(eps=0.1, max_iter=20, n_starts=1)}


@pytest.fixture(scope="module")
def whole() -> od.SnapshotSDE:
    return small_model(**SETTINGS)


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_a_killed_fit_goes_on(rounds, whole, tmp_path, monkeypatch):
    path, left, keep = tmp_path / "checkpoint.npz", [rounds], Checkpoint.keep

    def keep_and_die(self, found) -> None:
        keep(self, found)
        left[0] -= 1
        if left[0] == 0:
            raise MemoryError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "keep", keep_and_die)
        try:
            small_model(path, **SETTINGS)
        except MemoryError:
            assert path.exists()
    again = small_model(path, **SETTINGS)
    np.testing.assert_allclose(again.ordering_, whole.ordering_, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(again.noise_, whole.noise_, rtol=1e-6)
    assert again.smooth_ordering_ == pytest.approx(whole.smooth_ordering_, rel=1e-6)
    assert again.n_iter_ < whole.n_iter_


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
