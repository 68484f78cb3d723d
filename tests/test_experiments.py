from __future__ import annotations

import json
from itertools import islice

import numpy as np
import pytest

from ordiff import experiments as ex
from ordiff.experiments import Number


def test_the_spiral_is_as_long_as_the_paper_says():
    u = np.linspace(1, 2, 2_000_001)
    exact = np.trapezoid(np.sqrt(1 + (2 * np.pi * u) ** 2), u)
    assert abs(exact - ex.ARCLENGTH) < 1e-4
    assert round(ex.ARCLENGTH, 2) == 9.48


@pytest.mark.slow
def test_spiral_in_its_own_coordinates():
    result = ex.spiral()
    true = result.problem.intrinsic_drift[:, 0]
    for estimate in result.intrinsic.values():
        assert np.abs((estimate - true)[result.interior]).max() < 0.03
    numbers = {n.quantity: n for n in ex.spiral_numbers(result)}
    curvature = numbers["mean curvature, relative error far from edges"]
    assert curvature.ours[0] < 0.003
    velocity = numbers["velocity (covariance), relative error far from edges"]
    assert velocity.ours[0] == pytest.approx(0.00227, abs=1e-5)


@pytest.mark.slow
def test_the_torus_gives_the_papers_numbers():
    numbers = ex.torus_numbers(islice(ex.torus(), 4))  # those that the paper has
    compared = [n for n in numbers if n.paper is not None]
    assert len(compared) == 7
    for n in compared:
        if "as the paper" in n.quantity or "isotropic, ε" in n.quantity.replace("anisotropic", ""):
            assert n.ours[0] == pytest.approx(n.paper, rel=0.005)
    assert compared[-1].ours[0] == pytest.approx(5.36, abs=0.005)


@pytest.mark.filterwarnings("ignore:eps = ")
def test_all_schemes_on_a_small_torus():
    """Their accuracy is that of tests/test_operator.py."""
    rows = list(ex.torus(30))
    assert len({row.scheme for row in rows}) == 7
    for number in ex.torus_numbers(rows):
        assert np.isfinite(number.ours).all()


def test_table_says_where_we_are_worse():
    numbers = [
        Number("a", "noise, relative error", 0.1, (0.05, 0.07), 0.0),
        Number("a", "noise, correlation", 0.9, (0.8,), 1.0),
        Number("a", "ordering, correlation", 0.999, (0.9988,), 1.0),
        Number("b", "noise, upper end", None, (float("inf"),), 1.4, "open"),
        Number("b", "other", 0.03, (), None, "not computed"),
    ]
    assert [ex.worse(n) for n in numbers] == [False, True, False, False, False]
    lines = ex.as_markdown(numbers).splitlines()
    assert lines[2] == "| a | noise, relative error | 0.1 | 0.06 (0.05 to 0.07) | 0 |  |"
    assert "**0.8** worse" in lines[3]
    assert lines[6] == "| b | other | 0.03 | – | – | not computed |"
    assert {line.count("|") for line in lines} == {7}
    rows = json.loads(ex.as_json(numbers))
    assert rows[0]["ours"] == [0.05, 0.07]
    assert rows[1]["worse"] is True
    assert rows[3]["ours"] == [None]
