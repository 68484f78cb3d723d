"""Pictures of the check, of one noise, of one dimension, and of a process without a chain."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest

import ordiff as od
from ordiff import plot, report
from ordiff.learning.check import FitCheck
from ordiff.learning.uncertainty import LikelihoodProfile
from small_model import small_model


@pytest.fixture(scope="module")
def without_chain():
    data = od.datasets.well_ou(250, random_state=0, dimension=4)
    with warnings.catch_warnings(action="ignore", category=od.OrdiffWarning):
        return od.SnapshotSDE(data.start, noise="constant", solver=od.Solver(max_iter=2)).fit(data.X, data.times)


def test_plot_is_there_after_import():
    code = "import sys, ordiff; assert 'matplotlib' not in sys.modules; print(ordiff.plot.check.__name__)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "check\n"


def test_the_check_shows_what_was_compared(fitted):
    _, model = fitted
    figure = plot.check(model)
    mean, deviation, scores = figure.axes[0], figure.axes[3], figure.axes[2]
    rows = [row for row in model.check_.table if row.name == "mean of x1"]
    np.testing.assert_allclose(mean.lines[0].get_ydata(), [row.predicted for row in rows])
    np.testing.assert_allclose(mean.lines[1].get_ydata(), [row.observed for row in rows])
    assert deviation.get_ylabel() == "standard deviation of x1"
    assert sum(len(line.get_xdata()) for line in scores.lines[1:]) == len(model.check_.table)


def test_a_check_that_failed_says_so(tmp_path):
    model = small_model()
    model.check_ = FitCheck(False, ("the start may be wrong.",), model.check_.table)
    assert "NOT TRUSTED" in plot.check(model).get_suptitle()
    assert "NOT TRUSTED" in plot.overview(model).get_suptitle()
    assert "Check: NOT TRUSTED." in report.write(model, tmp_path / "r.html").read_text(encoding="utf-8")


def test_one_noise_is_a_number_with_its_interval():
    model = small_model()
    ax = plot.noise(model)
    assert ax.get_title().startswith(f"ρ = {model.noise_[0]:.4g}, 95% interval")
    labels = [a.get_label() for a in plot.overview(model).axes]
    assert not any("noise ρ" in str(label) for label in labels)  # no map
    model.noise_ = model.noise_ * np.linspace(0.998, 1.002, len(model.noise_))
    assert plot.noise(model).get_title().startswith("ρ = ")  # nor of what hardly differs


def test_the_start_is_marked(fitted):
    data, model = fitted
    for ax in (plot.field(model, "noise"), plot.drift(model), plot.landscape(model)):
        (star,) = [line for line in ax.lines if line.get_label() == "start"]
        np.testing.assert_allclose(star.get_xydata()[0], data.start)


def test_axes_of_different_scales_show_arrows_of_both():
    rng = np.random.default_rng(0)
    Y = rng.uniform(size=(500, 2)) * [1000, 1]
    _, vectors, longest, width = plot.binning.grid_arrows(Y, np.tile([0.0, 1.0], (500, 1)), 10)
    drawn = vectors[0, 1] * 1.7 * width / longest  # in the units of the second axis
    assert 0.05 < drawn < 0.5
    np.testing.assert_array_equal(plot.binning.axis_scales(Y / [1000, 1]), [1, 1])


def test_points_in_the_units_of_the_columns(rng):
    x = rng.normal(size=(20, 2)) * [3, 100] + [1, 2]
    mean, scale = x.mean(axis=0), x.std(axis=0)
    at = plot.Embedding.prepared((x - mean) / scale, ("a", "b"), mean, scale)
    np.testing.assert_allclose(at.points((x - mean) / scale), x)
    assert at.names == ("a", "b")


def test_a_process_without_a_chain_has_pictures_and_a_report(without_chain, tmp_path):
    times, paths = without_chain.simulate(5)
    assert len(plot.paths(without_chain, times, paths).lines) == 7  # five paths, their ends, the start
    assert plot.history(without_chain).get_ylabel().startswith("misfit of the moments")
    text = report.write(without_chain, tmp_path / "r.html").read_text(encoding="utf-8")
    assert "without a chain, by moments" in text
    with pytest.raises(ValueError, match="without a chain"):
        without_chain.fate_probabilities({"a": lambda x: x[:, 0] > 0, "b": lambda x: x[:, 0] < 0})


def test_contours_of_coordinates_in_different_units_are_of_the_same_triangles(fitted):
    """Triangles are those of the fit's own coordinates: long ones across the axes would show stripes."""
    _, model = fitted
    usual = plot.landscape(model)
    scale = np.array([1.0, 1000.0])
    other = plot.landscape(model, embedding=plot.Embedding(np.zeros(2), np.diag(scale), ("a", "b")))
    for one, wide in zip(usual.collections[0].get_paths(), other.collections[0].get_paths(), strict=True):
        np.testing.assert_allclose(wide.vertices, one.vertices * scale)


def test_a_profile_crosses_its_level_where_its_interval_ends():
    levels = np.geomspace(0.5, 2, 9)
    result = LikelihoodProfile(levels, 40 * np.log(levels) ** 2, 1.0, (0.803, 1.245))
    curve = plot.profile(result).lines[0].get_xydata()
    for end in result.interval:
        assert abs(np.interp(end, *curve.T) - 1.92) < 0.05
