"""Warnings of a step that a graph does not resolve: too long for its neighbourhoods, or too short for its sampling."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ordiff import _validation
from ordiff._validation import Array


def warn_if_cut(reach: Array, variance: Array, eps: float, dimension: int) -> None:
    """Warn when the graph cuts off more than half of a gaussian step's second moment at the median sample.

    Beyond the radius r lies the share Γ(1 + d/2, r²/2σ²)/Γ(1 + d/2) of the second moment of N(0, σ²I_d).
    """
    from scipy.special import gammaincc, gammainccinv

    ratio = reach / (2 * variance)
    half, enough = gammainccinv(1 + dimension / 2, [0.5, 0.01]).tolist()
    if _most(ratio < half):
        x = float(np.median(ratio))
        loss = float(gammaincc(1 + dimension / 2, x))
        _validation.warn(
            f"the graph is too small for eps = {eps:g}: at the median sample its farthest neighbour is "
            f"{np.sqrt(2 * x):.1f} standard deviations of a step away, so about {loss:.0%} of the "
            f"diffusion is cut off. Use eps up to {eps * x / enough:.2g}, or a graph of radius "
            f"{np.sqrt(2 * enough * np.median(variance)):.2g}."
        )


def warn_if_stuck(staying: Array, eps: float, spacing: Array) -> None:
    """Warn when a step stays where it is, at the median sample: the generator would come out as 0."""
    if _most(staying > 0.9):
        _validation.warn(
            f"eps = {eps:g} is too small for the sampling: at the median sample a step stays put with probability "
            f"{np.median(staying):.4g}, so drift and diffusion come out near 0. Use eps of about "
            f"{np.median(spacing):.2g} or more."
        )


def _most(which: NDArray[np.bool_]) -> bool:
    """Whether more than half are, as the median is then. To find that out takes a tenth of the time of a median."""
    return 2 * int(np.count_nonzero(which)) > which.size
