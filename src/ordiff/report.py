"""One HTML page of a fitted model, interactive and self-contained. plotly is imported in this file only.

The page holds the model's numbers twice: in words, and as JSON in ``<script type="application/json" id="summary">``.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

import ordiff
from ordiff import _validation
from ordiff._signals import deferred_interrupts
from ordiff._validation import Array
from ordiff.plot import BLUE, RED, Embedding, running, samples_of, units
from ordiff.plot.binning import axis_scales, grid_arrows, loss_range
from ordiff.plot.curves import is_constant, loss_label
from ordiff.plot.fields import rotation_share
from ordiff.plot.style import drift_unit, noise_unit

if TYPE_CHECKING:
    from ordiff.learning.check import Moment
    from ordiff.model import SnapshotSDE

# At most so many points are drawn; above the second number the browser draws them by WebGL.
MAX_POINTS = 20_000
_WEBGL_ABOVE = 5_000


def require() -> Any:
    """plotly's graph objects, or an error that says what to install."""
    try:
        with deferred_interrupts():
            import plotly.graph_objects as go
    except ImportError:
        raise _validation.missing_extra("plotly", "report", "a report") from None
    return go


def numbers(model: SnapshotSDE) -> dict[str, Any]:
    """The results as plain numbers, which are the JSON of the page; None for what is not finite."""
    low, middle, high = np.quantile(model.noise_, [0.05, 0.5, 0.95])
    values = {
        "samples": len(model.ordering_), "coordinates": model.n_features_in_, "horizon": model.horizon_,
        **_of_chain(model),
        "noise_median": middle, "noise_5": low, "noise_95": high,
        "drift_median": np.median(np.linalg.norm(model.drift_, axis=1)), "rotation_nats": model.rotation_nats_,
        "rotation_share": model.rotation_share(),
        "ordering_mean": model.ordering_.mean(), "ordering_span": np.ptp(model.ordering_),
        "ordering_std_median": np.median(model.ordering_std_), "noise_std_median": np.median(model.noise_std_),
        "smooth_ordering": model.smooth_ordering_, "smooth_noise": model.smooth_noise_, "loss": model.loss_,
        "evaluations": model.n_iter_, "converged": model.converged_, "unreached": len(model.unreached_),
        "trusted": model.check_.trusted, "reasons": list(model.check_.reasons), "worst_z": model.check_.worst_z,
        "ordiff": ordiff.__version__,
    }  # fmt: skip
    return {name: _plain(value) for name, value in values.items()}


def _of_chain(model: SnapshotSDE) -> dict[str, Any]:
    """States, their dimension and the step; none where a process was learned without a chain."""
    if not hasattr(model, "states_"):
        return {"states": None, "dimension": model.coordinates_.transform(model.samples_[:1]).shape[1], "eps": None}
    return {"states": len(model.states_.points), "dimension": model.states_.dimension, "eps": model.eps_}


def _plain(value: Any) -> Any:
    """A value that JSON can hold."""
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
    embedding: Embedding | None = None,
    moments: Sequence[Moment] | None = None,
    notes: str = "",
    random_state: int = 0,
) -> Path:
    """Write the page of a fitted model; the file appears only when it is complete. Returns its path.

    truth: true values at the samples, of "ordering" (0 at the start), "noise" or both. embedding: where samples are
    drawn (`ordiff.plot.Embedding`). length, time: the units of the coordinates and of the times, for labels. notes:
    more text. moments: the table of the check, when not in the model's units. Of more than 20,000 samples, 20,000 are
    drawn, chosen at random.
    """
    require()
    m, truth, rng = len(model.ordering_), truth or {}, _validation.generator(random_state)
    rows = np.arange(m)
    if m > MAX_POINTS:
        rows = np.sort(rng.choice(m, MAX_POINTS, replace=False))
        notes = f"{MAX_POINTS} of {m} samples are drawn, chosen at random; all were used in the fit.\n{notes}".rstrip()
    t = None if times is None else _validation.nodes(times, m, "times")
    figures = [_map(model, rows, t, length, time, embedding or Embedding.of(samples_of(model)))]
    if not is_constant(model):  # one number is in the settings
        figures.append(_noise(model, rows, truth.get("noise"), units(noise_unit(length, time))))
    if "ordering" in truth:
        figures.append(_truth(model, rows, _validation.nodes(truth["ordering"], m, "truth")))
    table = model.check_.table if moments is None else moments
    figures += [_check(table, time), _history(model)]
    summary = "\n".join(text for text in (model.summary(length, time), notes) if text)
    path = Path(path)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(_page(title, model, summary, figures, table, length, time), encoding="utf-8")
    partial.replace(path)
    return path


# ------------------------------------------------------------------------------------------------- page

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --text: #222; --page: #fff; --box: #f4f4f4; --good: #00664b; --bad: #a63c00; }}
@media (prefers-color-scheme: dark) {{
:root {{ --text: #ddd; --page: #1b1b1b; --box: #2a2a2a; --good: #4ec9a4; --bad: #ff8f4f; }} }}
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 1100px; padding: 0 1em; color: var(--text);
background: var(--page); }}
pre {{ background: var(--box); padding: 1em; white-space: pre-wrap; overflow-wrap: anywhere; }}
section {{ background: #fff; margin: 1em 0; }}
.check {{ border-left: 6px solid; padding: 0.2em 1em; background: var(--box); }}
.passed {{ border-color: var(--good); }} .failed {{ border-color: var(--bad); }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: 14px; }}
th, td {{ text-align: left; padding: 0.15em 1em 0.15em 0; vertical-align: top; }}
td.number {{ text-align: right; font-variant-numeric: tabular-nums; }}
summary {{ cursor: pointer; }}
</style>
<script type="application/json" id="summary">
{json}
</script>
</head>
<body>
<h1>{title}</h1>
{check}
<h2>Settings and results</h2>
<div class="wide">{settings}</div>
<pre>{summary}</pre>
<details><summary>Means and covariances, observed and predicted</summary><div class="wide">{moments}</div></details>
{figures}
<p>Drag to zoom, double-click to reset, hover over a sample for its values.</p>
</body>
</html>
"""


def _page(
    title: str, model: SnapshotSDE, summary: str, figures: list[Any], moments: Sequence[Moment], length: str, time: str
) -> str:  # fmt: skip
    """The HTML; plotly's code is in it once, before the first figure."""
    parts = [
        figure.to_html(full_html=False, include_plotlyjs=k == 0, default_width="100%", config={"displaylogo": False})
        for k, figure in enumerate(figures)
    ]
    return _PAGE.format(
        title=html.escape(title),
        check=_verdict(model),
        settings=_table(_settings(model, length, time)),
        moments=_table(_moments(moments)),
        summary=html.escape(summary),
        json=json.dumps(numbers(model), indent=1, allow_nan=False).replace("<", "\\u003c"),
        figures="\n".join(f"<section>{part}</section>" for part in parts),
    )


def _verdict(model: SnapshotSDE) -> str:
    """Whether the fit is trusted, and if not, why."""
    check = model.check_
    if check.trusted:
        return f'<div class="check passed"><p><b>{html.escape(str(check))}</b></p></div>'
    reasons = "".join(f"<li>{html.escape(reason)}</li>" for reason in check.reasons)
    return f'<div class="check failed"><p><b>Check: NOT TRUSTED.</b></p><ul>{reasons}</ul></div>'


def _settings(model: SnapshotSDE, length: str, time: str) -> list[list[Any]]:
    """Rows of what was asked for, and what was found."""
    values, unit = numbers(model), noise_unit(length, time)
    noise = str(model.noise)
    if is_constant(model):
        level, spread = float(model.noise_[0]), float(model.log_noise_std_[0])
        interval = f" (95%: {level * math.exp(-1.96 * spread):.4g} to {level * math.exp(1.96 * spread):.4g})"
        noise = f"{level:.4g}{interval if math.isfinite(spread) and spread > 0 else ''} {unit}, the same everywhere"
    turns = "turns" if model.rotation_.any() else "is a gradient"
    chain = "without a chain, by moments" if values["states"] is None else f"{values['states']} states, "
    chain += "" if values["states"] is None else f"ε = {values['eps']:.4g} {time}".rstrip()
    return [
        [
            "samples",
            f"{values['samples']} in {values['coordinates']} coordinates, horizon {values['horizon']:.4g} {time}",
        ],
        ["start", f"{len(model.start_points_)} point{'s' if len(model.start_points_) > 1 else ''}"],
        ["drift", f"{model.drift}: it {turns}"],
        ["noise", noise],
        ["learned", chain],
        ["random_state", str(model.random_state)],
        ["ordiff", values["ordiff"]],
    ]


def _moments(table: Sequence[Moment]) -> list[list[Any]]:
    rows = [[row.time, row.n, row.name, row.observed, row.predicted, row.z] for row in table]
    return [["time", "samples", "moment", "observed", "predicted", "z"], *rows]


def _table(rows: list[list[Any]]) -> str:
    """Rows as HTML; numbers to four digits, the first row bold where it is a header."""
    out = []
    for row in rows:
        cells = [
            f"<td>{html.escape(value)}</td>" if isinstance(value, str) else f'<td class="number">{value:.4g}</td>'
            for value in row
        ]
        out.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table>{''.join(out)}</table>"


# ------------------------------------------------------------------------------------------------- figures


def _markers(m: int) -> Any:
    """The trace for m points."""
    go = require()
    return go.Scattergl if m > _WEBGL_ABOVE else go.Scatter


def _rounded(values: Array) -> Array:
    """Six digits are more than a screen shows, and half the page."""
    return np.array([float(f"{v:.6g}") for v in np.asarray(values, dtype=np.float64).ravel()]).reshape(values.shape)


def _map(model: SnapshotSDE, rows: Any, times: Array | None, length: str, time: str, embedding: Embedding) -> Any:
    """The samples over two coordinates, coloured by what the reader chooses; arrows of the drift."""
    X = samples_of(model)
    Y = _rounded(embedding.points(X[rows]))
    colourings = _colourings(model, rows, times, length, time)
    figure = require().Figure()
    for trace in _coloured_points(model, rows, Y, colourings):
        figure.add_trace(trace)
    figure.add_trace(_arrows(Y, embedding.vectors(model.drift_[rows])))
    start = np.average(embedding.points(model.start_points_), axis=0, weights=model.start_weights_)
    marker = {"symbol": "star", "size": 14, "color": RED, "line": {"color": "white", "width": 1}}
    figure.add_trace(require().Scatter(
        x=[float(start[0])], y=[float(start[1])], mode="markers", marker=marker, showlegend=False, name="start"
    ))  # fmt: skip
    n = len(colourings)
    buttons = [
        {"label": name, "method": "restyle", "args": ["visible", [*(j == k for j in range(n)), True, True]]}
        for k, name in enumerate(colourings)
    ]
    figure.update_layout(
        title="Samples and learned drift", height=620, template="plotly_white",
        xaxis_title=embedding.names[0].replace("$", ""), yaxis_title=embedding.names[1].replace("$", ""),
        updatemenus=[{"buttons": buttons, "x": 1.0, "xanchor": "right", "y": 1.12, "showactive": True}],
    )  # fmt: skip
    if (axis_scales(Y) == 1).all() and X.shape[1] > 1:  # the same scale, where that fits a screen
        figure.update_yaxes(scaleanchor="x", scaleratio=1)
    return figure


def _colourings(model: SnapshotSDE, rows: Any, times: Array | None, length: str, time: str) -> dict[str, Array]:
    """What the samples can be coloured by, under its label; without what is not known."""
    fields = {} if times is None else {f"time{units(time)}": times}
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


def _coloured_points(model: SnapshotSDE, rows: Any, Y: Array, colourings: dict[str, Array]) -> list[Any]:
    """A trace for each colouring, of which the first is shown."""
    hover = np.column_stack([model.ordering_, model.noise_, np.linalg.norm(model.drift_, axis=1)])[rows]
    hover = _rounded(np.column_stack([rows, hover]))
    traces = []
    for k, (label, values) in enumerate(colourings.items()):
        low, high = np.quantile(values, [0.005, 0.995])
        marker = {"color": values, "colorscale": "Viridis", "cmin": low, "cmax": high, "size": 5, "showscale": True,
                  "colorbar": {"title": {"text": label.split(" (")[0].split(",")[0]}}}  # fmt: skip
        traces.append(_markers(len(rows))(
            x=Y[:, 0], y=Y[:, 1], mode="markers", marker=marker, name=label, visible=k == 0, showlegend=False,
            customdata=hover,
            hovertemplate="sample %{customdata[0]}<br>ordering %{customdata[1]:.4g}<br>noise %{customdata[2]:.4g}"
                          "<br>drift %{customdata[3]:.4g}<extra></extra>",
        ))  # fmt: skip
    return traces


def _arrows(Y: Array, W: Array, bins: int = 22) -> Any:
    """Mean drift in the cells of a grid as one line trace: shaft and head of each arrow."""
    at, step, longest, width = grid_arrows(Y, W, bins)
    step = step * 1.6 * width / longest
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


def _noise(model: SnapshotSDE, rows: Any, truth: ArrayLike | None, unit: str) -> Any:
    """The noise against the ordering, its band of ±2 standard deviations, and the truth if known."""
    go = require()
    order = rows[np.argsort(model.ordering_[rows])]
    x, y = _rounded(model.ordering_[order]), _rounded(model.noise_[order])
    figure = go.Figure()
    std = model.log_noise_std_[order]
    if np.isfinite(std).all() and (std > 0).any():
        at, low, high = running(x, y * np.exp(-2 * std), y * np.exp(2 * std))
        figure.add_trace(go.Scatter(
            x=np.concatenate([at, at[::-1]]), y=np.concatenate([high, low[::-1]]), fill="toself", mode="lines",
            line={"width": 0}, fillcolor="rgba(0,114,178,0.2)", name="±2 standard deviations", hoverinfo="skip",
        ))  # fmt: skip
    marker = {"color": BLUE, "size": 4, "opacity": 0.5}
    figure.add_trace(_markers(len(rows))(x=x, y=y, mode="markers", marker=marker, name="learned"))
    if truth is not None:
        true = _rounded(_validation.nodes(truth, len(model.noise_), "truth")[order])
        marker = {"color": RED, "size": 3}
        figure.add_trace(_markers(len(rows))(x=x, y=true, mode="markers", marker=marker, name="truth"))
    figure.update_layout(
        title="Noise along the ordering", xaxis_title="ordering", yaxis_title=f"noise{unit}", yaxis_rangemode="tozero",
        height=460, template="plotly_white",
    )  # fmt: skip
    return figure


def _truth(model: SnapshotSDE, rows: Any, true: Array) -> Any:
    """True against learned ordering, with the diagonal."""
    go = require()
    x, y = _rounded(true[rows]), _rounded(model.ordering_[rows])
    ends = [float(min(x.min(), y.min())), float(max(x.max(), y.max()))]
    marker = {"color": BLUE, "size": 4}
    figure = go.Figure(_markers(len(rows))(x=x, y=y, mode="markers", marker=marker, name="samples"))
    figure.add_trace(go.Scatter(x=ends, y=ends, mode="lines", line={"color": RED, "dash": "dash"}, name="exact"))
    figure.update_layout(
        title="Ordering: truth against estimate", xaxis_title="true ordering", yaxis_title="learned ordering",
        height=520, template="plotly_white",
    )  # fmt: skip
    return figure


def _check(table: Sequence[Moment], time: str) -> Any:
    """z of all moments that were compared, against the time."""
    go = require()
    at = [0.0 if math.isnan(row.time) else row.time for row in table]
    figure = go.Figure(go.Scatter(
        x=at, y=[row.z for row in table], mode="markers", marker={"color": BLUE, "size": 7},
        text=[f"{row.name}: observed {row.observed:.4g}, predicted {row.predicted:.4g}" for row in table],
        hovertemplate="%{text}<br>z = %{y:.1f}<extra></extra>",
    ))  # fmt: skip
    figure.add_hrect(y0=-4, y1=4, fillcolor="black", opacity=0.06, line_width=0)
    figure.update_layout(
        title="Check: observed − predicted, in standard errors", xaxis_title=f"time{units(time)}", yaxis_title="z",
        height=380, template="plotly_white",
    )  # fmt: skip
    return figure


def _history(model: SnapshotSDE) -> Any:
    """The loss over the evaluations; the axis leaves out the steps of a line search that went far."""
    loss = np.asarray(model.history_, dtype=np.float64)
    figure = require().Figure(require().Scatter(y=_rounded(loss), mode="lines+markers", line={"color": BLUE}))
    figure.update_layout(
        title=f"Fit: {model.n_iter_} evaluations, {'converged' if model.converged_ else 'NOT converged'}",
        xaxis_title="evaluation", yaxis_title=loss_label(model), height=380, template="plotly_white",
    )  # fmt: skip
    if loss.size:
        figure.update_yaxes(range=loss_range(loss))
    return figure
