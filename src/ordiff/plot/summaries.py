"""One figure of several panels for a whole fit: of data, and of a process whose truth is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ordiff._validation import Array
from ordiff.plot.checks import check_scores, shortened
from ordiff.plot.curves import history, is_constant, noise, truth
from ordiff.plot.embedding import Layout, as_embedding, samples_of
from ordiff.plot.fields import drift, field, landscape, rotation_share
from ordiff.plot.style import RED, new_figure, noise_unit, units

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ordiff.experiments import Learned
    from ordiff.model import SnapshotSDE


def overview(
    model: SnapshotSDE, *, times: Array | None = None, length: str = "", time: str = "",
    embedding: Layout = None,
) -> Figure:  # fmt: skip
    """One picture of a fit: times or ordering, potential and drift, noise on the samples and against the ordering; of a
    noise that is the same everywhere its interval, and the check in place of a curve."""
    figure = new_figure(13, 7.4)
    axes = figure.subplots(2, 3)
    X = samples_of(model)
    at = as_embedding(embedding, X)
    if times is None:
        field(model, "ordering_std", axes[0, 0], title="ordering, standard deviation", embedding=at)
    else:
        since = f"time since the start{units(time)}"
        field(model, times, axes[0, 0], label=since, title="samples and their times", embedding=at)
    field(model, "ordering", axes[0, 1], label="ordering l", title="learned ordering (0 at the start)", embedding=at)
    landscape(model, axes[0, 2], embedding=at)
    axes[0, 2].set_title("learned potential", fontsize=10)
    if X.shape[1] == 1:  # the drift has an axis of its own
        axes[0, 1].clear()
        drift(model, axes[0, 1], length=length, time=time, embedding=at)
        axes[0, 1].set_title("learned drift", fontsize=10)
    else:
        drift(model, axes[0, 2], colour="w", samples=False, length=length, time=time, embedding=at)
        turns = " (it also turns)" if model.rotation_.any() else ""
        axes[0, 2].set_title(f"potential and drift{turns}", fontsize=10)
    unit = units(noise_unit(length, time))
    if is_constant(model):
        noise(model, axes[1, 0], length=length, time=time)
        check_scores(model, axes[1, 1], time=time)
    else:
        field(model, "noise", axes[1, 0], label=f"noise ρ{unit}", title="learned noise", embedding=at)
        noise(model, axes[1, 1], length=length, time=time)
        axes[1, 1].set_title("noise along the ordering", fontsize=10)
    history(model, axes[1, 2])
    _warn_above(figure, model)
    return figure


def _warn_above(figure: Figure, model: SnapshotSDE, most: int = 140) -> None:
    """Say above a figure that its model is not trusted, and the first reason."""
    if not model.check_.trusted:
        figure.suptitle("NOT TRUSTED: " + shortened(model.check_.reasons[0], most), fontsize=10, color=RED)


def fates(model: SnapshotSDE, probabilities: dict[str, Array], *, embedding: Layout = None) -> Figure:
    """The probability of each fate at the samples, one map a fate, by name."""
    rows, columns = -(-len(probabilities) // 3), min(3, len(probabilities))
    figure = new_figure(4.6 * columns, 3.8 * rows)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax, (name, values) in zip(axes, probabilities.items(), strict=False):
        field(model, values, ax, label="probability", title=name, embedding=embedding)
    for ax in axes[len(probabilities) :]:
        ax.axis("off")
    _warn_above(figure, model, 45 * columns)
    return figure


def rotation(model: SnapshotSDE, *, length: str = "", time: str = "", embedding: Layout = None) -> Figure:
    """The drift in its two parts: streamlines of the gradient and of the rotation, and the share of the rotation."""
    figure = new_figure(13, 4)
    axes = figure.subplots(1, 3)
    at = as_embedding(embedding, samples_of(model))
    for ax, part in zip(axes, ("gradient", "rotation"), strict=False):
        kind = "streamlines" if part == "gradient" or model.rotation_.any() else "arrows"
        drift(model, ax, kind=kind, part=part, length=length, time=time, embedding=at)
        ax.set_title({"gradient": "gradient ∇l", "rotation": "rotation w"}[part], fontsize=10)
    title = f"rotation, {100 * model.rotation_share():.0f}% of the squared drift"
    field(model, rotation_share(model), axes[2], label="share of the squared drift", title=title, embedding=at)
    return figure


def demo(run: Learned) -> Figure:
    """The NL process learned from snapshots: the data, what was learned, and how it compares with the truth."""
    model, p = run.model, run.problem
    figure = new_figure(13.4, 8)
    axes = figure.subplots(2, 3)
    true, _ = run.ordering
    radius = np.linalg.norm(p.X, axis=1)
    error = run.scores()["ordering, relative error"]
    assert p.times is not None
    field(model, p.times, axes[0, 0], label="time", title=f"1. Data: {len(p.X)} points, each observed once")
    landscape(model, axes[0, 1])
    drift(model, axes[0, 1], colour="w", samples=False)
    axes[0, 1].set_title("2. Learned potential −l and drift ∇l", fontsize=10)
    truth(true, model.ordering_, axes[0, 2], std=model.ordering_std_, name="ordering l")
    axes[0, 2].set_title(f"3. Ordering: relative error {error:.1%}", fontsize=10)
    title = "4. Learned noise: large at the start, small in the wells"
    field(model, "noise", axes[1, 0], label="noise ρ", title=title)
    noise(model, axes[1, 1], against=radius, xlabel="distance from the start", truth=p.noise)
    axes[1, 1].set_title("5. Noise against the distance from the start", fontsize=10)
    history(model, axes[1, 2])
    axes[1, 2].set_title("6. Fit: " + axes[1, 2].get_title(), fontsize=10)
    figure.suptitle("dx = ∇l dt + ρ dW, learned from snapshots of the NL process", fontsize=12)
    return figure
