"""Weights of time slices: lines are reproduced, densities integrated."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from chain_reference import slices_of
from ordiff.learning.observation import Observation, sparse_rows, time_quadrature, time_weights, window_weights


def test_time_weights_interpolate(rng):
    slices = slices_of((0.5, 1.0), 0.3)
    t = np.concatenate([rng.uniform(0, slices[-1], 40), slices])
    W = time_weights(t, slices)
    np.testing.assert_allclose(W.sum(axis=1), 1.0)
    np.testing.assert_allclose(W @ slices, t, atol=1e-14)
    assert np.diff(W.indptr).max() == 2
    assert (np.diff(W.indptr)[40:] == 1).all()
    late = time_weights(t, slices, first=2)
    np.testing.assert_allclose(late @ slices, np.maximum(t, slices[2]), atol=1e-14)
    assert late.indices.min() == 2
    np.testing.assert_allclose(time_weights(t, slices, first=slices.size - 1).toarray()[:, -1], 1.0)


def test_time_quadrature_integrates():
    slices = np.array([0.0, 0.1, 0.4, 1.0])
    weights = time_quadrature(lambda t: 2 * t, slices)
    assert weights.sum() == pytest.approx(1.0)
    # the hat functions reproduce lines: Σ w t is the mean of the density
    assert weights @ slices == pytest.approx(2 / 3)
    fine = np.linspace(0, 1, 200_001)
    for s, w in enumerate(weights):
        hat = np.interp(fine, slices, np.eye(4)[s])
        assert w == pytest.approx(np.mean((2 * fine * hat)[1:] + (2 * fine * hat)[:-1]) / 2, abs=1e-6)


def test_windows_are_means_over_their_times(rng):
    slices = slices_of((0.5, 1.0), 0.3)
    begin = rng.uniform(0, 0.7 * slices[-1], 30)
    windows = np.column_stack([begin, begin + rng.uniform(0, 0.3 * slices[-1], 30)])
    W = window_weights(windows, slices)
    np.testing.assert_allclose(W.sum(axis=1), 1.0)
    np.testing.assert_allclose(W @ slices, windows.mean(axis=1), atol=1e-14)
    # ∫ hat(t) dt over the window, by many more times
    fine = window_mean(windows, slices)
    np.testing.assert_allclose(W.toarray(), fine, atol=0.01)
    points = np.column_stack([begin, begin])
    np.testing.assert_allclose(window_weights(points, slices).toarray(), time_weights(begin, slices).toarray())
    assert window_weights(windows, slices, first=3).indices.min() >= 3


def window_mean(windows, slices, n=4000):
    share = (np.arange(n) + 0.5) / n
    times = windows[:, :1] + share * (windows[:, 1:] - windows[:, :1])
    return np.stack([np.interp(times, slices, one).mean(axis=1) for one in np.eye(slices.size)], axis=1)


def test_times_that_are_wrong_say_so():
    with pytest.raises(ValueError, match="times must be within"):
        time_weights([2.0], [0.0, 1.0])
    with pytest.raises(ValueError, match="ascending"):
        time_weights([0.5], [1.0, 0.0])
    with pytest.raises(ValueError, match="density of times"):
        time_quadrature(lambda t: 0 * t, [0.0, 1.0])
    with pytest.raises(ValueError, match="slice_times must be two or more"):
        time_quadrature(np.ones_like, [0.0])
    with pytest.raises(ValueError, match="first must be at most 1"):
        time_weights([0.5], [0.0, 1.0], first=2)


def test_sparse_weights_are_a_clean_copy():
    given = sp.coo_array(([0.5, 0.0, 1.0, 0.25], ([0, 0, 1, 0], [2, 1, 0, 2])), shape=(2, 3))
    rows = sparse_rows(given, (2, 3), "places")
    np.testing.assert_array_equal(rows.toarray(), [[0, 0, 0.75], [1, 0, 0]])
    assert rows.nnz == 2
    rows.data[:] = 0.0
    assert given.data.any()
    with pytest.raises(ValueError, match=r"places must have shape \(2, 4\); got \(2, 3\)"):
        sparse_rows(given, (2, 4), "places")
    with pytest.raises(ValueError, match="places has values that are NaN or infinite"):
        sparse_rows(given * np.nan, (2, 3), "places")


def test_every_sample_sees_a_time_slice():
    W = sp.csr_array(np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]))
    with pytest.raises(ValueError, match="row 1 of times has no time slice"):
        Observation(W).time_matrix(3)
    with pytest.raises(ValueError, match="weights that are not negative"):
        Observation(-W).time_matrix(3)
