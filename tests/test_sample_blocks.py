"""Learning from Dask arrays: the fit in memory, whatever happens to a worker; what cannot be learned so is refused."""

from __future__ import annotations

import os
import pickle
import signal
import warnings

import numpy as np
import pytest

import ordiff as od

da = pytest.importorskip("dask.array")
pytest.importorskip("distributed")
from ordiff import _sample_blocks, distributed  # noqa: E402
from ordiff._sample_blocks import BlockObservation  # noqa: E402

M = 240
PLAIN = {"noise": 0.5, "drift": "gradient", "smoothness__ordering": 1e-6, "solver__n_starts": 1}


def model(start, **settings):
    return od.SnapshotSDE(None).set_params(start=start, **PLAIN | settings)


@pytest.fixture(scope="module")
def client():
    from dask.distributed import Client, LocalCluster

    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": 0}
    with LocalCluster(processes=True, **options) as cluster, Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def line():
    """Points of an Ornstein–Uhlenbeck process on a line from 1, and their times; some are of the start."""
    rng = np.random.default_rng(5)
    t = rng.uniform(0.1, 2.0, M)
    x = np.exp(-t) + 0.5 * np.sqrt(0.5 * (1 - np.exp(-2 * t))) * rng.standard_normal(M)
    x[::12], t[::12] = 1 + 0.1 * rng.standard_normal(M // 12), 0.0
    return x[:, None], t


@pytest.fixture(scope="module")
def arrays(line):
    return tuple(da.from_array(values, chunks=100) for values in line)


@pytest.fixture(scope="module")
def in_memory(line):
    return model([1.0]).fit(*line)


def same(found, expected):
    assert found.loss_ == pytest.approx(expected.loss_, abs=1e-8)
    for name in ("ordering_", "drift_", "ordering_std_"):
        a, b = getattr(found, name), getattr(expected, name)
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-8 * np.abs(b).max(), err_msg=name)


def during(monkeypatch, happens):
    """Have something happen in the middle of a fit."""
    evaluate, calls = BlockObservation.sums, []

    def sums(self, *arguments):
        calls.append(1)
        if len(calls) == 12:
            happens()
        return evaluate(self, *arguments)

    monkeypatch.setattr(BlockObservation, "sums", sums)


def test_without_a_client_it_is_said_how_to_make_one(arrays):
    with pytest.raises(ValueError, match="no Dask client is connected"):
        model([1.0]).fit(*arrays)


def test_a_fit_on_workers_is_that_in_memory(client, line, arrays, in_memory, tmp_path):
    found = model([1.0]).fit(*arrays)
    same(found, in_memory)
    np.testing.assert_array_equal(found.samples_, line[0])
    for name in ("predict", "predict_noise", "predict_drift", "predict_rotation"):
        lazy = getattr(found, name)(arrays[0])
        assert lazy.shape == getattr(found, name)(line[0]).shape
        np.testing.assert_array_equal(lazy.compute(), getattr(found, name)(line[0]))
    found.save(tmp_path / "model.npz")
    np.testing.assert_array_equal(od.load(tmp_path / "model.npz").ordering_, found.ordering_)
    assert pickle.loads(pickle.dumps(found)).loss_ == found.loss_
    assert found._data.elsewhere.session.placed is None  # the memory of the workers was given back
    with pytest.raises(ValueError, match="resampling needs samples in memory"):
        found.uncertainty(n_boot=2)


def test_a_worker_that_is_killed_during_a_fit_changes_nothing(client, arrays, in_memory, monkeypatch):
    during(monkeypatch, lambda: os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL))
    same(model([1.0]).fit(*arrays), in_memory)


def test_a_scheduler_lost_during_a_fit_is_told_and_leaves_the_best_so_far(arrays, in_memory, monkeypatch):
    from dask.distributed import Client, LocalCluster

    options = {"processes": False, "n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(**options) as cluster, Client(cluster, set_as_default=False) as client:
        monkeypatch.setattr(distributed, "_client", lambda _: client)
        during(monkeypatch, lambda: (cluster.close(), client.close()))
        estimator = model([1.0])
        with warnings.catch_warnings(action="ignore"), pytest.raises(ConnectionError, match="holds the best so far"):
            estimator.fit(*arrays)
    assert estimator.interrupted_
    assert not estimator.check_.trusted
    assert np.corrcoef(estimator.ordering_, in_memory.ordering_)[0, 1] > 0.9


def test_versions_that_differ_are_refused_by_a_fit(client, arrays, monkeypatch):
    import importlib.metadata

    here = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.0" if name == "scipy" else here(name))
    with pytest.raises(ValueError, match=r"has other versions than the client: scipy .* \(here 0\.0\)"):
        model([1.0]).fit(*arrays)


def test_a_start_at_several_samples_weights_and_windows(inline, line, arrays):
    X, t = line
    mask, weights = t == 0, np.where(np.arange(M) % 5 == 0, 0.0, 1.0)
    windows = np.column_stack([t, t + 0.05])
    windows[mask] = 0.0
    expected = model(mask, drift="gradient").fit(X, windows, weights)
    same(model(da.from_array(mask)).fit(arrays[0], windows, da.from_array(weights)), expected)
    assert expected.start_points_.shape == (M // 12, 1)


def test_of_many_samples_some_are_in_memory_and_all_are_learned_from(inline, line, arrays, in_memory, monkeypatch):
    monkeypatch.setattr(_sample_blocks, "MOST_HERE", 150)
    found = model([1.0]).fit(*arrays)
    assert found.samples_.shape == found.drift_.shape == (150, 1)
    assert np.isin(found.samples_, line[0]).all()
    problem = found._result.solution.problem
    assert problem.n_samples == pytest.approx(M * (found._result.used.mean()))
    np.testing.assert_allclose(found.predict_drift(line[0]), in_memory.drift_, atol=0.25 * in_memory.drift_.std())


def test_cells_without_a_sample_in_memory_are_filled_from_blocks(inline, rng):
    X = rng.uniform(-1, 1, (500, 2))
    X[40:50] = [3.0, 0.0] + 0.01 * rng.random((10, 2))  # a place of some samples, and one of a single one
    X[60] = [0.0, 9.0]
    blocks, *_ = _sample_blocks.in_blocks(da.from_array(X, chunks=45), np.ones(500), None)
    here = X[np.setdiff1d(np.arange(500), [*range(40, 50), 60])]
    found = blocks.outside(here[::2])
    assert (np.abs(found - [3.0, 0.0]).max(axis=1) < 0.02).any()
    assert not (found[:, 1] > 8).any()
    assert blocks.outside(X).shape == (0, 2)
    np.testing.assert_array_equal(blocks[np.array([77, 3, 499])], X[[77, 3, 499]])


def test_what_needs_samples_in_memory_is_refused(inline, line, arrays, in_memory):
    X, t = arrays
    with pytest.raises(ValueError, match="need known times"):
        model([1.0]).fit(X)
    with pytest.raises(ValueError, match="with designed states"):
        model([1.0], states="samples").fit(X, t)
    with pytest.raises(ValueError, match="must be a function of points"):
        model([1.0], ordering=line[0][:, 0]).fit(X, t)
    with pytest.raises(ValueError, match=r"not be negative.*See row 150"):
        model([1.0]).fit(X, np.where(np.arange(M) == 150, -1.0, 1.0))
    with pytest.raises(ValueError, match="NaN or infinite"):
        model([1.0]).fit(da.where(X > 1.2, np.nan, X), t)
    with pytest.raises(ValueError, match=r"one value per sample, shape \(240,\)"):
        model([1.0]).fit(X, t[:50])
    wide = da.from_array(np.random.default_rng(0).normal(size=(300, 5)), chunks=100)
    with pytest.raises(ValueError, match="by the moments of samples in memory"):
        od.SnapshotSDE(np.zeros(5)).fit(wide, np.linspace(0.1, 1, 300))
    with pytest.raises(ValueError, match="has 2 coordinates; the model was learned from 1"):
        in_memory.predict(wide[:, :2])
