from __future__ import annotations

import sys

import numpy as np
import pytest

import ordiff as od

pytest.importorskip("ripser")


def shapes(rng, m=800):
    angle = rng.uniform(0, 2 * np.pi, m)
    circle = np.stack([np.cos(angle), np.sin(angle)], 1)
    t = rng.uniform(0, 1, m)
    arms = np.array([[0, 1], [0.8, -0.6], [-0.8, -0.6]])[rng.integers(0, 3, m)]
    shift = np.where(rng.uniform(size=m) < 0.5, 1.0, -1.0)[:, None] * [1, 0]
    noise = lambda s: s * rng.normal(size=(m, 2))  # noqa: E731
    return {
        "circle": (circle + noise(0.1), 1),
        "figure-eight": (circle + shift + noise(0.06), 2),
        "branch": (t[:, None] * arms + noise(0.05), 0),
        "line": (np.stack([t, 0 * t], 1) + noise(0.03), 0),
        "blob": (noise(1.0), 0),
    }


@pytest.mark.parametrize("name", ["circle", "figure-eight", "branch", "line", "blob"])
def test_hint(name, rng):
    X, loops = shapes(rng)[name]
    hint = od.cyclic_hint(X)
    assert hint.needed == (loops > 0)
    assert hint.loops == loops
    assert hint.spread[0] <= hint.ratio <= hint.spread[1]
    assert str(hint).startswith("The data seem to have" if hint.needed else "No loop found")
    assert hint.ratio == pytest.approx(od.cyclic_hint(100 * X).ratio)  # it has no units


def test_few_noisy_samples_are_undecided():
    """120 samples of a wide ring: subsets differ, and the quartiles straddle the limit for some draws."""
    said = set()
    for seed in range(12):
        rng = np.random.default_rng(seed)
        angle = rng.uniform(0, 2 * np.pi, 120)
        X = np.stack([np.cos(angle), np.sin(angle)], 1) + 0.2 * rng.normal(size=(120, 2))
        hint = od.cyclic_hint(X)
        assert hint.spread[1] > hint.spread[0]
        said.add(str(hint).split(":")[0])
    assert "Undecided" in said


def test_the_missing_extra_is_named(monkeypatch, rng):
    monkeypatch.setitem(sys.modules, "ripser", None)
    with pytest.raises(od.MissingExtraError, match=r"cyclic_hint needs ripser: pip install 'ordiff\[topology\]'"):
        od.cyclic_hint(rng.normal(size=(50, 2)))
