"""One HTML page of a fitted model, interactive and self-contained. plotly is imported in this file only.

The page holds the model's numbers twice: in words, and as JSON in ``<script type="application/json" id="summary">``.
"""

from __future__ import annotations

import html
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

import ordiff
from ordiff import _check
from ordiff._check import Array
from ordiff.plot import BLUE, RED, Embedding, cells, running, samples_of, units

if TYPE_CHECKING:
    from ordiff.model import SnapshotSDE

# Points drawn at most, and the number above which the browser draws them by WebGL.
MOST_POINTS = 20_000
_BY_WEBGL = 5_000


def require() -> Any:
    """plotly's graph objects, or an error that says what to install."""
    try:
        import plotly.graph_objects as go
    except ImportError:
        raise _check.missing_extra("plotly", "report", "a report") from None
    return go


def numbers(model: SnapshotSDE) -> dict[str, Any]:
    """What was learned as plain numbers, the JSON of the page. What is not finite is None."""
    low, middle, high = np.quantile(model.noise_, [0.05, 0.5, 0.95])
    values = {
        "samples": len(model.ordering_), "coordinates": model.n_features_in_, "horizon": model.horizon_,
        "states": len(model.states_.points), "dimension": model.states_.dimension, "eps": model.eps_,
        "noise_median": middle, "noise_5": low, "noise_95": high,
        "drift_median": np.median(np.linalg.norm(model.drift_, axis=1)),
        "ordering_mean": model.ordering_.mean(), "ordering_span": np.ptp(model.ordering_),
        "ordering_std_median": np.median(model.ordering_std_), "noise_std_median": np.median(model.noise_std_),
        "smooth_ordering": model.smooth_ordering_, "smooth_noise": model.smooth_noise_, "loss": model.loss_,
        "evaluations": model.n_iter_, "converged": model.converged_, "unreached": len(model.unreached_),
        "ordiff": ordiff.__version__,
    }  # fmt: skip
    return {name: _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write(
    model: SnapshotSDE,
    path: str | Path,
    *,
    times: ArrayLike | None = None,
    title: str = "Dynamics from snapshots",
    length: str = "",
    time: str = "",
    truth: dict[str, ArrayLike] | None = None,
    columns: tuple[str, ...] | None = None,
    notes: str = "",
    random_state: int = 0,
) -> Path:
    """Write the page of a fitted model; the file appears only when it is whole. Returns its path.

    truth: true values at the samples, of "ordering" (0 at the start), "noise" or both. columns: the names of the
    coordinates. notes: more text. Of more than 20,000 samples so many are drawn, at random.
    """
    require()
    m = len(model.ordering_)
    rows = np.arange(m)
    if m > MOST_POINTS:
        rows = np.sort(np.random.default_rng(random_state).choice(m, MOST_POINTS, replace=False))
    t = None if times is None else _check.nodes(times, m, "times")
    figures = [
        _map(model, rows, t, length, time, columns),
        _noise(model, rows, length, time, None if truth is None else truth.get("noise")),
    ]
    if truth is not None and "ordering" in truth:
        figures.append(_truth(model, rows, _check.nodes(truth["ordering"], m, "truth")))
    figures.append(_history(model))
    parts = [
        figure.to_html(full_html=False, include_plotlyjs=k == 0, default_width="100%", config={"displaylogo": False})
        for k, figure in enumerate(figures)
    ]
    drawn = "" if m <= MOST_POINTS else f"{MOST_POINTS} of {m} samples are drawn, chosen at random; all were learned.\n"
    page = _PAGE.format(
        title=html.escape(title),
        summary=html.escape("\n".join(text for text in (model.summary(length, time), drawn.strip(), notes) if text)),
        json=json.dumps(numbers(model), indent=1, allow_nan=False).replace("<", "\\u003c"),
        figures="\n".join(f"<section>{part}</section>" for part in parts),
    )
    path = Path(path)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(page, encoding="utf-8")
    partial.replace(path)
    return path


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 1100px; padding: 0 1em; color: #222; }}
pre {{ background: #f4f4f4; padding: 1em; white-space: pre-wrap; }}
</style>
<script type="application/json" id="summary">
{json}
</script>
</head>
<body>
<h1>{title}</h1>
<pre>{summary}</pre>
{figures}
<p>Drag to zoom, double-click to reset, point at a sample for its numbers.</p>
</body>
</html>
"""


def _dots(m: int) -> Any:
    go = require()
    return go.Scattergl if m > _BY_WEBGL else go.Scatter


def _rounded(values: Array) -> Array:
    """Six digits are more than a screen shows, and half the page."""
    return np.array([float(f"{v:.6g}") for v in np.asarray(values, dtype=np.float64).ravel()]).reshape(values.shape)


def _map(
    model: SnapshotSDE, rows: Any, times: Array | None, length: str, time: str, columns: tuple[str, ...] | None
) -> Any:
    """The samples over two coordinates, coloured by what the reader chooses; arrows of the drift."""
    go = require()
    X = samples_of(model)
    place = Embedding.of(X, columns)
    Y = _rounded(place.points(X[rows]))
    speed = np.linalg.norm(model.drift_, axis=1)
    choices = {
        "ordering": model.ordering_, "ordering, standard deviation": model.ordering_std_,
        f"noise{units(length, f'/√{time}' if time else '')}": model.noise_,
        "noise, standard deviation": model.noise_std_, f"drift, size{units(length, f'/{time}' if time else '')}": speed,
    }  # fmt: skip
    if times is not None:
        choices = {f"time{units(time)}": times, **choices}
    choices = {name: _rounded(v[rows]) for name, v in choices.items() if np.isfinite(v).all()}
    hover = np.stack([model.ordering_, model.noise_, speed], axis=1)[rows]
    figure = go.Figure()
    for k, (name, values) in enumerate(choices.items()):
        low, high = np.quantile(values, [0.005, 0.995])
        marker = {"color": values, "colorscale": "Viridis", "cmin": low, "cmax": high, "size": 5, "showscale": True,
                  "colorbar": {"title": {"text": name.split(" (")[0].split(",")[0]}}}  # fmt: skip
        figure.add_trace(_dots(len(rows))(
            x=Y[:, 0], y=Y[:, 1], mode="markers", marker=marker, name=name, visible=k == 0, showlegend=False,
            customdata=_rounded(np.column_stack([rows, hover])),
            hovertemplate="sample %{customdata[0]}<br>ordering %{customdata[1]:.4g}<br>noise %{customdata[2]:.4g}"
                          "<br>drift %{customdata[3]:.4g}<extra></extra>",
        ))  # fmt: skip
    figure.add_trace(_arrows(Y, place.vectors(model.drift_[rows])))
    n = len(choices)
    buttons = [
        {"label": name, "method": "restyle", "args": ["visible", [*(j == k for j in range(n)), True]]}
        for k, name in enumerate(choices)
    ]
    figure.update_layout(
        title="Samples and learned drift", height=620, template="plotly_white",
        xaxis_title=place.names[0].replace("$", ""), yaxis_title=place.names[1].replace("$", ""),
        updatemenus=[{"buttons": buttons, "x": 1.0, "xanchor": "right", "y": 1.12, "showactive": True}],
    )  # fmt: skip
    return figure


def _arrows(Y: Array, W: Array, bins: int = 22) -> Any:
    """Mean drift in the cells of a grid as one line trace: shaft and head of each arrow."""
    centres, mean, count = cells(Y, W, bins)
    there = count >= min(2, count.max())
    at, step = np.stack(np.meshgrid(*centres, indexing="ij"), axis=-1)[there], mean[there]
    sizes = np.linalg.norm(step, axis=1)
    width = float(np.mean([np.ptp(c) for c in centres])) / bins
    step = step * 1.6 * width / (float(np.quantile(sizes, 0.95)) or 1.0)
    tip = at + step
    side = np.stack([-step[:, 1], step[:, 0]], axis=1)
    gap = np.full_like(at, np.nan)
    path = np.stack([at, tip, tip - 0.3 * step + 0.18 * side, tip, tip - 0.3 * step - 0.18 * side, gap], axis=1)
    x, y = (
        [None if math.isnan(v) else float(f"{v:.5g}") for v in path[:, :, c].ravel()] for c in (0, 1)
    )  # no NaN in JSON
    return require().Scatter(
        x=x, y=y, mode="lines", line={"color": "black", "width": 1.2}, name="drift", hoverinfo="skip", showlegend=False
    )


def _noise(model: SnapshotSDE, rows: Any, length: str, time: str, truth: ArrayLike | None) -> Any:
    go = require()
    order = rows[np.argsort(model.ordering_[rows])]
    x, y = _rounded(model.ordering_[order]), _rounded(model.noise_[order])
    figure = go.Figure()
    spread = model.log_noise_std_[order]
    if np.isfinite(spread).all() and (spread > 0).any():
        at, low, high = running(x, y * np.exp(-2 * spread), y * np.exp(2 * spread))
        figure.add_trace(go.Scatter(
            x=np.concatenate([at, at[::-1]]), y=np.concatenate([high, low[::-1]]), fill="toself", mode="lines",
            line={"width": 0}, fillcolor="rgba(0,114,178,0.2)", name="±2 standard deviations", hoverinfo="skip",
        ))  # fmt: skip
    marker = {"color": BLUE, "size": 4, "opacity": 0.5}
    figure.add_trace(_dots(len(rows))(x=x, y=y, mode="markers", marker=marker, name="learned"))
    if truth is not None:
        true = _rounded(_check.nodes(truth, len(model.noise_), "truth")[order])
        marker = {"color": RED, "size": 3}
        figure.add_trace(_dots(len(rows))(x=x, y=true, mode="markers", marker=marker, name="truth"))
    figure.update_layout(
        title="Noise along the ordering", xaxis_title="ordering", height=460, template="plotly_white",
        yaxis_title=f"noise{units(length, f'/√{time}' if time else '')}", yaxis_rangemode="tozero",
    )  # fmt: skip
    return figure


def _truth(model: SnapshotSDE, rows: Any, true: Array) -> Any:
    go = require()
    x, y = _rounded(true[rows]), _rounded(model.ordering_[rows])
    ends = [float(min(x.min(), y.min())), float(max(x.max(), y.max()))]
    figure = go.Figure(_dots(len(rows))(x=x, y=y, mode="markers", marker={"color": BLUE, "size": 4}, name="samples"))
    figure.add_trace(go.Scatter(x=ends, y=ends, mode="lines", line={"color": RED, "dash": "dash"}, name="exact"))
    figure.update_layout(
        title="Ordering: truth against estimate", xaxis_title="true ordering", yaxis_title="learned ordering",
        height=520, template="plotly_white",
    )  # fmt: skip
    return figure


def _history(model: SnapshotSDE) -> Any:
    loss = np.asarray(model.history_, dtype=np.float64)
    figure = require().Figure(require().Scatter(y=_rounded(loss), mode="lines+markers", line={"color": BLUE}))
    figure.update_layout(
        title=f"Fit: {model.n_iter_} evaluations, {'converged' if model.converged_ else 'NOT converged'}",
        xaxis_title="evaluation", yaxis_title="loss (nats per sample)", height=380, template="plotly_white",
    )  # fmt: skip
    if loss.size:
        low, high = np.nanmin(loss), np.nanquantile(loss, 0.9)
        margin = 0.1 * (high - low) or 1e-3
        figure.update_yaxes(range=[low - margin, high + margin])
    return figure
