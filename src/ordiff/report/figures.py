"""The figures of the page, by plotly: what `ordiff.plot` draws, to be zoomed into and hovered over."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ordiff import _validation
from ordiff._signals import deferred_interrupts
from ordiff._validation import Array
from ordiff.plot import BLUE, ORANGE, RED, running, samples_of, units
from ordiff.plot.binning import axis_scales, grid_arrows, stages
from ordiff.plot.curves import COLOURS_OF_BRANCHES, by_branch, is_constant, loss_label
from ordiff.plot.embedding import AnyEmbedding
from ordiff.plot.fields import rotation_share
from ordiff.plot.style import drift_unit, noise_unit
from ordiff.plot.surface import potential_surface

if TYPE_CHECKING:
    from ordiff.learning.check import Moment
    from ordiff.model import SnapshotSDE

# With more points than this the browser draws them by WebGL.
_WEBGL_ABOVE = 5_000
# Paths on the potential.
_PATHS = 15


def require() -> Any:
    """plotly's graph objects, or an error that says what to install."""
    try:
        with deferred_interrupts():
            import plotly.graph_objects as go
    except ImportError:
        raise _validation.missing_extra("plotly", "report", "a report") from None
    return go


def _figure(height: int, x: str, y: str, **layout: Any) -> Any:
    """An empty figure that suits a narrow screen and any background: titles are the page's own."""
    figure = require().Figure()
    figure.update_layout(
        height=height, template="plotly_white", xaxis_title=x, yaxis_title=y,
        paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)", margin={"l": 50, "r": 10, "t": 35, "b": 45},
        legend={"orientation": "h", "x": 0, "y": -0.18, "yanchor": "top"}, modebar_bgcolor="rgba(0,0,0,0)", **layout,
    )  # fmt: skip
    figure.update_xaxes(automargin=True)
    figure.update_yaxes(automargin=True)
    return figure


def _markers(m: int) -> Any:
    """The trace for m points."""
    go = require()
    return go.Scattergl if m > _WEBGL_ABOVE else go.Scatter


def _rounded(values: Array) -> Array:
    """Six digits are more than a screen shows, and half the page."""
    return np.array([float(f"{v:.6g}") for v in np.asarray(values, dtype=np.float64).ravel()]).reshape(values.shape)


def _plane(embedding: AnyEmbedding, Y: Array, height: int) -> Any:
    """A figure over the two coordinates of an embedding, of one scale where that fits a screen."""
    figure = _figure(height, *(name.replace("$", "").replace("_", "") for name in embedding.names))
    if (axis_scales(Y) == 1).all() and np.ptp(Y[:, 1]) > 0:
        figure.update_yaxes(scaleanchor="x", scaleratio=1)
    return figure


def _start(model: SnapshotSDE, embedding: AnyEmbedding) -> Any:
    x, y = np.average(embedding.points(model.start_points_), axis=0, weights=model.start_weights_)
    marker = {"symbol": "star", "size": 14, "color": RED, "line": {"color": "white", "width": 1}}
    return require().Scatter(x=[float(x)], y=[float(y)], mode="markers", marker=marker, showlegend=False, name="start")


def samples(
    model: SnapshotSDE, rows: Any, times: Array | None, embedding: AnyEmbedding, called: Any, length: str, time: str
) -> Any:  # fmt: skip
    """The samples over two coordinates, coloured by what the reader chooses; arrows of the drift above them."""
    X = samples_of(model)
    Y = _rounded(embedding.points(X)[rows])
    colourings = _colourings(model, rows, times, length, time)
    figure = _plane(embedding, Y, 620)
    for trace in _coloured_points(model, rows, Y, colourings, called):
        figure.add_trace(trace)
    n_rest = 1
    if X.shape[1] > 1:
        W = embedding.vectors(X[rows], model.drift_[rows])
        arrows, longest = _arrows(Y, W)
        n_rest += len(arrows)
        for trace in arrows:
            figure.add_trace(trace)
        if (axis_scales(Y) == 1).all():  # else no length fits both axes
            said = f"longest arrows: {longest:.2g} {drift_unit(length, time)}".rstrip() + " or more"
            figure.add_annotation(
                text=said, x=1, y=1, xref="paper", yref="paper", xanchor="right", yanchor="top", showarrow=False,
                bgcolor="rgba(128,128,128,0.15)",
            )  # fmt: skip
    figure.add_trace(_start(model, embedding))
    n = len(colourings)
    buttons = [
        {"label": name, "method": "restyle", "args": ["visible", [*(j == k for j in range(n)), *[True] * n_rest]]}
        for k, name in enumerate(colourings)
    ]
    menu = {"buttons": buttons, "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom", "showactive": True,
            "bgcolor": "white", "font": {"color": "#222"}}  # fmt: skip
    figure.update_layout(updatemenus=[menu], margin_t=60)
    return figure


def _colourings(model: SnapshotSDE, rows: Any, times: Array | None, length: str, time: str) -> dict[str, Array]:
    """What the samples can be coloured by, under its label; without what is not known."""
    fields = {} if times is None else {f"time since the start{units(time)}": times}
    fields |= {
        "ordering": model.ordering_, "ordering, standard deviation": model.ordering_std_,
        f"drift, magnitude{units(drift_unit(length, time))}": np.linalg.norm(model.drift_, axis=1),
    }  # fmt: skip
    if not is_constant(model):
        fields |= {
            f"noise{units(noise_unit(length, time))}": model.noise_, "noise, standard deviation": model.noise_std_
        }  # fmt: skip
    if model.rotation_.any():
        fields["rotation, share of the squared drift"] = rotation_share(model)
    return {label: _rounded(values[rows]) for label, values in fields.items() if np.isfinite(values).all()}


def _coloured_points(
    model: SnapshotSDE, rows: Any, Y: Array, colourings: dict[str, Array], called: Any
) -> list[Any]:  # fmt: skip
    """A trace for each colouring, of which the first is shown."""
    hover = np.column_stack([model.ordering_, model.noise_, np.linalg.norm(model.drift_, axis=1)])[rows]
    hover = _rounded(np.column_stack([called[rows], hover]))
    traces = []
    for k, (label, values) in enumerate(colourings.items()):
        low, high = np.quantile(values, [0.005, 0.995])
        marker = {"color": values, "colorscale": "Viridis", "cmin": low, "cmax": high, "size": 5, "showscale": True,
                  "colorbar": {"thickness": 14, "xpad": 4}}  # fmt: skip
        traces.append(_markers(len(rows))(
            x=Y[:, 0], y=Y[:, 1], mode="markers", marker=marker, name=label, visible=k == 0, showlegend=False,
            customdata=hover,
            hovertemplate="sample %{customdata[0]}<br>ordering %{customdata[1]:.4g}<br>noise %{customdata[2]:.4g}"
                          "<br>drift %{customdata[3]:.4g}<extra></extra>",
        ))  # fmt: skip
    return traces


def _arrows(Y: Array, W: Array, bins: int = 15) -> tuple[list[Any], float]:
    """Mean drift in the cells of a grid as lines, shaft and head of each arrow, with a white edge; and the size of the
    longest."""
    at, step, longest, width = grid_arrows(Y, W, bins)
    step = step * 1.8 * width / longest
    tip = at + step
    x_scale, y_scale = axis_scales(Y)  # at right angles on the screen
    side = np.stack([-step[:, 1] * x_scale / y_scale, step[:, 0] * y_scale / x_scale], axis=1)
    gap = np.full_like(at, np.nan)
    path = np.stack([at, tip, tip - 0.35 * step + 0.2 * side, tip, tip - 0.35 * step - 0.2 * side, gap], axis=1)
    x, y = (
        [None if math.isnan(v) else float(f"{v:.5g}") for v in path[:, :, c].ravel()] for c in (0, 1)
    )  # no NaN in JSON
    lines = ({"color": "white", "width": 2.6}, {"color": "black", "width": 1.2})
    common = {"x": x, "y": y, "mode": "lines", "name": "drift", "hoverinfo": "skip", "showlegend": False}
    return [require().Scatter(line=line, **common) for line in lines], longest


def potential(model: SnapshotSDE, embedding: AnyEmbedding, random_state: int) -> Any:
    """The potential −l over two coordinates, and some simulated paths on it."""
    go = require()
    Y = embedding.points(samples_of(model))
    (x, y), z = potential_surface(Y, -model.ordering_)
    figure = _plane(embedding, Y, 560)
    colour_bar = {"thickness": 14, "xpad": 4}
    figure.add_trace(go.Contour(
        x=_rounded(x), y=_rounded(y), z=[[None if math.isnan(v) else float(f"{v:.5g}") for v in row] for row in z.T],
        colorscale="Cividis", ncontours=20, line={"width": 0.5}, colorbar=colour_bar, name="potential",
        hovertemplate="potential %{z:.4g}<extra></extra>",
    ))  # fmt: skip
    _, paths = model.simulate(_PATHS, random_state=random_state)
    lines = embedding.points(paths[:, :: max(1, paths.shape[1] // 100)])
    path = np.concatenate([lines, np.full((len(lines), 1, 2), np.nan)], axis=1).reshape(-1, 2)
    px, py = ([None if math.isnan(v) else float(f"{v:.5g}") for v in path[:, c]] for c in (0, 1))
    figure.add_trace(go.Scatter(
        x=px, y=py, mode="lines", line={"color": "white", "width": 1}, hoverinfo="skip", showlegend=False, name="paths"
    ))  # fmt: skip
    ends = embedding.points(paths[:, -1])
    marker = {"color": ORANGE, "size": 7, "line": {"color": "black", "width": 1}}
    figure.add_trace(go.Scatter(
        x=_rounded(ends[:, 0]), y=_rounded(ends[:, 1]), mode="markers", marker=marker, name="ends of paths"
    ))  # fmt: skip
    figure.add_trace(_start(model, embedding))
    return figure


def noise(model: SnapshotSDE, rows: Any, truth: ArrayLike | None, length: str, time: str) -> Any:
    """The noise against the ordering, branch by branch, with bands of ±2 standard deviations, and the truth."""
    go = require()
    figure = _figure(460, "ordering", f"noise{units(noise_unit(length, time))}", yaxis_rangemode="tozero")
    std = model.log_noise_std_
    known = bool(np.isfinite(std).all() and (std > 0).any())
    for members, colour, name in by_branch(model):
        shown = np.intersect1d(members, rows)
        x, y = model.ordering_[members], model.noise_[members]
        if known:
            at, low, high = running(x, y * np.exp(-2 * std[members]), y * np.exp(2 * std[members]))
            figure.add_trace(go.Scatter(
                x=_rounded(np.concatenate([at, at[::-1]])), y=_rounded(np.concatenate([high, low[::-1]])),
                fill="toself", mode="lines", line={"width": 0}, fillcolor=colour, opacity=0.2,
                hoverinfo="skip", showlegend=False,
            ))  # fmt: skip
        figure.add_trace(_markers(len(rows))(
            x=_rounded(model.ordering_[shown]), y=_rounded(model.noise_[shown]), mode="markers", name=f"learned{name}",
            marker={"color": colour, "size": 4, "opacity": 0.5},
        ))  # fmt: skip
    if truth is not None:
        at, middle = running(model.ordering_, _validation.nodes(truth, len(model.noise_), "truth"))
        line = {"color": "gray", "dash": "dash"}
        figure.add_trace(go.Scatter(x=_rounded(at), y=_rounded(middle), mode="lines", line=line, name="truth, median"))
    top = 1.15 * float(np.quantile(model.noise_, 0.995))  # not the range of one outlier
    figure.update_yaxes(range=[0, top if truth is None else max(top, 1.1 * float(middle.max()))])
    return figure


def truth(model: SnapshotSDE, rows: Any, true: Array) -> Any:
    """True against learned ordering, with the diagonal."""
    go = require()
    x, y = _rounded(true[rows]), _rounded(model.ordering_[rows])
    ends = [float(min(x.min(), y.min())), float(max(x.max(), y.max()))]
    figure = _figure(520, "true ordering", "learned ordering")
    figure.add_trace(_markers(len(rows))(x=x, y=y, mode="markers", marker={"color": BLUE, "size": 4}, name="samples"))
    figure.add_trace(go.Scatter(x=ends, y=ends, mode="lines", line={"color": RED, "dash": "dash"}, name="exact"))
    return figure


def check(table: Sequence[Moment], time: str) -> Any:
    """z of all moments that were compared, against the time."""
    at = [0.0 if math.isnan(row.time) else row.time for row in table]
    figure = _figure(380, f"time since the start{units(time)}", "z")
    figure.add_trace(require().Scatter(
        x=at, y=[row.z for row in table], mode="markers", showlegend=False,
        marker={"color": [RED if abs(row.z) > 4 else BLUE for row in table], "size": 7},
        text=[f"{row.name}: observed {row.observed:.4g}, predicted {row.predicted:.4g}" for row in table],
        hovertemplate="%{text}<br>z = %{y:.1f}<extra></extra>",
    ))  # fmt: skip
    figure.add_hrect(y0=-4, y1=4, fillcolor="gray", opacity=0.15, line_width=0)
    return figure


def history(model: SnapshotSDE) -> Any:
    """What the optimiser minimised, above its minimum: a line for each choice of the strengths of smoothness."""
    figure = _figure(380, "evaluation, on the final states", f"{loss_label(model)}, above its minimum")
    lines = stages(np.asarray(model.history_, dtype=np.float64), model.history_stages_)
    for k, (at, above) in enumerate(lines):
        figure.add_trace(require().Scatter(
            x=at, y=_rounded(above), mode="lines+markers", marker={"size": 4}, showlegend=False,
            line={"color": COLOURS_OF_BRANCHES[k % len(COLOURS_OF_BRANCHES)], "width": 1}, name=f"strengths {k + 1}",
        ))  # fmt: skip
    figure.update_yaxes(type="log", exponentformat="power", dtick=2)
    return figure
