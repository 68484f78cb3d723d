"""Does the data need a local ordering? Loops in the data, by persistent homology."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ordiff import _validation
from ordiff._signals import deferred_interrupts
from ordiff._validation import Array

# Ratio death/birth above which a loop is significant: those of random point clouds die by twice the scale of birth.
_SIGNIFICANT = 2.5


class CyclicHint(NamedTuple):
    """How clearly the data has a loop: the ratio death/birth of its most persistent one, over resampled subsets."""

    ratio: float  # the median over the subsets
    spread: tuple[float, float]  # the lower and upper quartile
    loops: int  # loops with a ratio above 2.5, in the median subset
    needed: bool
    text: str

    def __str__(self) -> str:
        return self.text


def cyclic_hint(X: ArrayLike, n_points: int = 300, n_subsets: int = 9, random_state: int | None = 0) -> CyclicHint:
    """Whether the data has a loop, on which no global ordering exists: a hint, not a proof.

    Persistent homology (ripser, extra ``topology``) of random subsets. A loop is born at the scale at which it closes
    and dies at that at which it is filled; death over birth has no units. The hint is yes when the median of the
    largest ratio over the subsets is above 2.5.

    >>> import numpy as np, ordiff as od
    >>> angle = np.linspace(0, 2 * np.pi, 500)
    >>> hint = od.cyclic_hint(np.stack([np.cos(angle), np.sin(angle)], axis=1))
    >>> hint.needed, hint.loops
    (True, 1)
    """
    try:
        with deferred_interrupts():
            from ripser import ripser
    except ImportError:
        raise _validation.missing_extra("ripser", "topology", "cyclic_hint") from None
    X = _validation.points(X, minimum=10)
    n_points = min(_validation.count(n_points, "n_points", 10), max(9, 2 * len(X) // 3))  # subsets must differ
    rng = _validation.generator(random_state)
    largest, loops = [], []
    for _ in range(_validation.count(n_subsets, "n_subsets", 1)):
        subset = X[rng.choice(len(X), n_points, replace=False)]
        ratios = _ratios(ripser(_farthest_points(subset, n_points))["dgms"][1])
        largest.append(ratios.max(initial=1.0))
        loops.append(int((ratios > _SIGNIFICANT).sum()))
    ratio, low, high = np.quantile(largest, [0.5, 0.25, 0.75]).tolist()
    needed, count = ratio > _SIGNIFICANT, round(float(np.median(loops)))
    return CyclicHint(ratio, (low, high), count, needed, _text(ratio, low, high, count))


def _text(ratio: float, low: float, high: float, loops: int) -> str:
    many = "a loop" if loops <= 1 else f"{loops} loops"
    found = f"the most persistent loop lives to {ratio:.1f} times its birth scale (quartiles {low:.1f} to {high:.1f})"
    advice = "use a local ordering (Ordering.cyclic, piecewise or local)"
    if low <= _SIGNIFICANT <= high:
        return (
            f"Undecided: {found}, and {_SIGNIFICANT} would be a loop. With a loop, {advice}; more samples would tell."
        )
    if ratio > _SIGNIFICANT:
        return f"The data seem to have {many}: {found}; {advice}."
    return (
        f"No loop found: {found}, as in data without one. A global ordering should do, unless noise in many "
        "coordinates hides a loop: then try the leading principal components."
    )


def _ratios(diagram: Array) -> Array:
    """Death over birth of the loops of a persistence diagram (loops, 2)."""
    finite = diagram[np.isfinite(diagram).all(axis=1) & (diagram[:, 0] > 0)]
    return finite[:, 1] / finite[:, 0]


def _farthest_points(points: Array, n_points: int) -> Array:
    """Farthest point sampling: half of the points, each the farthest from those before it, evenly spread."""
    with deferred_interrupts():
        from sklearn.metrics import pairwise_distances

    D = pairwise_distances(points)
    chosen = [0]
    nearest = D[0].copy()
    for _ in range(max(9, n_points // 2)):
        chosen.append(int(np.argmax(nearest)))
        nearest = np.minimum(nearest, D[chosen[-1]])
    return points[chosen]
