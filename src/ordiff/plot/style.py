"""What all figures share: matplotlib's Figure, colours, sizes of markers, and units in labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ordiff import _validation
from ordiff._signals import deferred_interrupts
from ordiff._time_labels import singular

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SEQUENTIAL, DIVERGING = "viridis", "PuOr"
# Okabe–Ito, safe for colour-blind readers
BLUE, RED, GREEN, ORANGE, PURPLE = "#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7"
# of the estimates of a velocity
COLOURS = {"displacement": RED, "symmetric": ORANGE, "projected": PURPLE, "covariance": BLUE}


def require() -> type[Figure]:
    """matplotlib's Figure, or an error that says what to install."""
    try:
        with deferred_interrupts():
            from matplotlib.figure import Figure
    except ImportError:
        raise _validation.missing_extra("matplotlib", "plot", "drawing") from None
    return Figure


def new_figure(width: float, height: float) -> Figure:
    """A figure of this size in inches, without pyplot's global state."""
    return require()(figsize=(width, height), layout="constrained", dpi=130)


def axes_or_new(ax: Any, width: float = 5.2, height: float = 4.2) -> Any:
    """The Axes that were given, or those of a new figure."""
    return new_figure(width, height).subplots() if ax is None else ax


def marker_size(m: int) -> float:
    """The area of a marker, in square points, that suits m samples."""
    return float(np.clip(12000 / m, 1.5, 14))


def units(*parts: str) -> str:
    """' (a b)' of the parts that are given; nothing when none is."""
    text = " ".join(part for part in parts if part)
    return f" ({text})" if text else ""


def drift_unit(length: str, time: str) -> str:
    """Length per time; '' when no unit of time was given."""
    time = singular(time)
    return (f"{length}/{time}" if length else f"per {time}") if time else ""


def noise_unit(length: str, time: str) -> str:
    """Length per square root of time; '' when no unit of time was given."""
    time = singular(time)
    return (f"{length}/√{time}" if length else f"per √{time}") if time else ""
