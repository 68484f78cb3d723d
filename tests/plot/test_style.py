from __future__ import annotations

import pytest

from ordiff.plot.style import drift_unit, noise_unit, units


@pytest.mark.parametrize(
    ("length", "time", "drift", "noise"),
    [
        ("µm", "h", " (µm/h)", " (µm/√h)"),
        ("", "h", " (per h)", " (per √h)"),
        ("µm", "", "", ""),
        ("", "", "", ""),
    ],
)
def test_a_unit_that_is_not_known_is_left_out(length, time, drift, noise):
    assert units(drift_unit(length, time)) == drift
    assert units(noise_unit(length, time)) == noise
