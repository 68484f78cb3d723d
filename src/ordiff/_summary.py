"""What a fit says of itself: its summary in words, and its warnings."""

from __future__ import annotations

from typing import Any

import numpy as np

from ordiff import _validation
from ordiff._time_labels import plural, singular
from ordiff._validation import IntArray
from ordiff.learning.check import STEADY, expected_error


def summary(model: Any, length: str = "", time: str = "", sample_numbers: IntArray | None = None) -> str:
    """What was learned, in words; ``length`` and ``time`` are the units of X and of the times, if known.

    sample_numbers: what the samples are called, (m,), such as rows of a table; from 0 by default.
    """
    T, per_time, per_root_time = "", "", ""
    if time:
        over = f" {length}/" if length else " per "
        T, per_time, per_root_time = f" {plural(time)}", f"{over}{singular(time)}", f"{over}√{singular(time)}"
    low, middle, high = np.quantile(model.noise_, [0.05, 0.5, 0.95])
    drift = float(np.median(np.linalg.norm(model.drift_, axis=1)))
    spread = model._level_deviation
    lines = [
        str(model.check_),
        f"{len(model.ordering_)} samples in {model.n_features_in_} coordinates, "
        + (f"learned in {model._data.X.shape[1]} components of them, " if model.coordinates_.reduced else "")
        + f"horizon {model.horizon_:.4g}{T}.",
        model._process.describe(T),
        (
            f"Noise: {middle:.4g}{per_root_time}, the same everywhere"
            if high - low <= 1e-9 * high
            else f"Noise: median {middle:.4g}, 5% to 95% {low:.4g} to {high:.4g}{per_root_time}"
        )
        + (
            f"; its level is known to ±{200 * spread:.0f}% (two standard deviations)."
            if spread > 0 and model.check_.trusted
            else "."
        )
        if isinstance(model.noise, str)
        else f"Noise: {middle:.4g}{per_root_time}, as given.",
        *_of_the_direction(model),
        f"Drift: median {drift:.4g}{per_time}{_known_to(model)}; the ordering spans {np.ptp(model.ordering_):.4g}.",
        *_of_the_rotation(model),
        f"Loss {model.loss_:.6g} after {model.n_iter_} evaluations; "
        + ("converged." if model.converged_ else "NOT converged."),
    ]
    if model.unreached_.size:
        n, called = model.unreached_.size, model.unreached_
        called = called if sample_numbers is None else sample_numbers[called]
        samples = f"{n} sample{'s' if n > 1 else ''}"
        lines.append(f"The process does not reach {samples}, which hardly count: {_some(called)}.")
    if model.early_.size:
        lines.append(f"Samples seen before the first step, and not used: {model.early_.size}.")
    return "\n".join(lines)


def _known_to(model: Any) -> str:
    """How well the drift is known."""
    share = expected_error(model.drift_, model.drift_std_) if model.check_.trusted else 0.0
    return f", known to ±{200 * share:.0f}% (two standard deviations)" if 0 < share < 5 else ""


def _of_the_direction(model: Any) -> list[str]:
    """The axes of a noise with a direction; or that one was looked for, and not found."""
    nats = model.tensor_nats_
    if model.noise_tensor_ is None:
        if nats is None:
            return []
        more = "more" if nats > 0 else "less"
        return [f"It has no direction: one is {abs(nats):.1f} nats {more} likely (it is taken from 3 nats more on)."]
    values, vectors = np.linalg.eigh(model.noise_tensor_)
    axis = ", ".join(f"{one:.2f}" for one in vectors[:, -1])
    likely = "" if nats is None else f", which is {nats:.0f} nats more likely than the same in all directions"
    return [f"Its variance is {values[-1] / values[0]:.3g} times as large along ({axis}) as where it is least{likely}."]


def _of_the_rotation(model: Any) -> list[str]:
    """Whether the drift turns, and by how many nats; nothing where that was not asked, or where a noise with a
    direction makes a gradient turn."""
    nats = model.rotation_nats_
    if nats is None or model.noise_tensor_ is not None:
        return []
    if any(STEADY in reason for reason in model.check_.reasons):
        return [
            "Rotation: near a steady state, as here, neither a drift that turns nor the common level of drift and "
            "noise can be told."
        ]
    if model.rotation_.any():
        share = 100 * model.rotation_share()
        return [
            f"Rotation: the drift turns, which is {nats:.0f} nats more likely than a gradient; {share:.0f}% of its "
            "square is rotation."
        ]
    more = "more" if nats > 0 else "less"
    found = f"Rotation: none; a drift that turns is {abs(nats):.1f} nats {more} likely than a gradient"
    allowed = " Standard deviations allow for one." if model.rotation_std_.any() else ""
    return [f"{found} (it is taken from 3 nats more on).{allowed}"]


def warn_of_fit(model: Any) -> None:
    """Say what the data cannot tell: the first reason why the fit is not trusted, and samples that do not count."""
    reasons = model.check_.reasons
    if reasons:
        more = f" ({len(reasons) - 1} more: see model.check_)" if len(reasons) > 1 else ""
        _validation.warn(f"this fit is not trusted: {reasons[0]}{more}")
    if model.unreached_.size:
        _validation.warn(
            f"the process does not reach {model.unreached_.size} of {len(model.ordering_)} samples "
            f"({_some(model.unreached_)}): they hardly count in the fit. Check whether they are outliers."
        )


def _some(indices: Any, most: int = 5) -> str:
    named = ", ".join(str(int(i)) for i in indices[:most])
    return named + (f" and {len(indices) - most} more" if len(indices) > most else "")
