"""A column that is a phase."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from ordiff.cli.cycle import PhaseOrdering, parse_cycle
from ordiff.cli.parser import make_parser
from ordiff.cli.samples import read_samples


@pytest.fixture
def ring():
    angle = np.random.default_rng(0).uniform(0, 2 * np.pi, 400)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1), angle


def test_a_phase_is_carried_to_points_across_its_end(ring):
    X, angle = ring
    order = PhaseOrdering("phase", X, 24 * angle / (2 * np.pi), 24.0)
    at = np.array([-0.02, 0.02, 1.0])
    found = order(np.stack([np.cos(at), np.sin(at)], axis=1))
    differences = found.form.fn(np.array([0, 1]), np.array([1, 2]))
    np.testing.assert_allclose(differences, 24 / (2 * np.pi) * np.array([0.04, 0.98]), atol=0.1)


def test_the_rate_of_going_round_is_told(ring):
    X, angle = ring
    model = SimpleNamespace(drift_=2.0 * np.stack([-X[:, 1], X[:, 0]], axis=1))  # two radians per unit of time
    said = PhaseOrdering("phase", X, angle, 2 * np.pi).describe(model, "hours")
    rate = float(said.split("changes by ")[1].split()[0])
    assert rate == pytest.approx(2.0, rel=0.02)
    assert "once round takes 3.1" in said


@pytest.mark.parametrize(
    ("option", "found"),
    [("phase", ("phase", 2 * np.pi)), ("phase:24", ("phase", 24.0)), ("a:b", ("a:b", 2 * np.pi))],
)
def test_a_period_may_be_given(option, found):
    assert parse_cycle(option) == found


def test_a_phase_is_no_coordinate(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("hours,a,b,phase\n" + "".join(f"{k},{k},{-k},{k}\n" for k in range(6)))

    def read(*options):
        return read_samples(
            make_parser().parse_args(["fit", str(path), "--times", "hours", *options]), times_required=True
        )

    samples = read("--cycle", "phase:6")
    assert samples.names == ("a", "b")
    np.testing.assert_array_equal(samples.cycle.phase, np.arange(6))
    with pytest.raises(ValueError, match="more than a period of 4"):
        read("--cycle", "phase:4")
    assert read("--exclude", "phase").cycle is None
