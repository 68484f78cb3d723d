"""One HTML page of a fitted model, interactive and self-contained. plotly is imported in `figures` only.

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
from ordiff._time_labels import plural
from ordiff.plot import as_embedding, samples_of
from ordiff.plot.curves import is_constant, one_noise
from ordiff.plot.embedding import Layout
from ordiff.plot.style import noise_unit
from ordiff.report import figures
from ordiff.report.figures import require

if TYPE_CHECKING:
    from ordiff.learning.check import Moment
    from ordiff.model import SnapshotSDE

__all__ = ["MAX_POINTS", "numbers", "require", "write"]

# At most so many points are drawn.
MAX_POINTS = 20_000


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
    embedding: Layout = None,
    moments: Sequence[Moment] | None = None,
    notes: str = "",
    sample_numbers: ArrayLike | None = None,
    random_state: int = 0,
) -> Path:
    """Write the page of a fitted model; the file appears only when it is complete. Returns its path.

    truth: true values at the samples, of "ordering" (0 at the start), "noise" or both. embedding: where samples are
    drawn (`ordiff.plot.Embedding`, or an array (m, 2) such as a UMAP). length, time: the units of the coordinates and
    of the times, for labels. notes: more text. moments: the table of the check, when not in the model's units.
    sample_numbers: what the samples are called, (m,), such as rows of a table; from 0 by default. Of more than 20,000
    samples, 20,000 are drawn, chosen at random.
    """
    require()
    m, truth, rng = len(model.ordering_), truth or {}, _validation.generator(random_state)
    rows = np.arange(m)
    if m > MAX_POINTS:
        rows = np.sort(rng.choice(m, MAX_POINTS, replace=False))
        notes = f"{MAX_POINTS} of {m} samples are drawn, chosen at random; all were used in the fit.\n{notes}".rstrip()
    t = None if times is None else _validation.nodes(times, m, "times")
    numbers = _validation.sample_numbers(sample_numbers, m)
    called = np.arange(m) if numbers is None else numbers
    at, unit = as_embedding(embedding, samples_of(model)), {"length": length, "time": time}
    drawn = {"Samples and learned drift": figures.samples(model, rows, t, at, called, **unit)}
    if model.n_features_in_ > 1:
        drawn["Potential −l, and simulated paths"] = figures.potential(model, at, random_state)
    if not is_constant(model):  # one number is in the settings
        drawn["Noise along the ordering"] = figures.noise(model, rows, truth.get("noise"), **unit)
    if "ordering" in truth:
        drawn["Ordering: truth and estimate"] = figures.truth(
            model, rows, _validation.nodes(truth["ordering"], m, "truth")
        )
    table = model.check_.table if moments is None else moments
    drawn["Check: observed − predicted, in standard errors"] = figures.check(table, time)
    ended = "converged" if model.converged_ else "NOT converged"
    drawn[f"Fit: {model.n_iter_} evaluations, {ended}"] = figures.history(model)
    summary = "\n".join(text for text in (model.summary(length, time, called), notes) if text)
    path = Path(path)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(_page(title, model, summary, drawn, table, length, time), encoding="utf-8")
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
:root {{ color-scheme: light dark; --text: #222; --page: #fff; --box: #f4f4f4; --line: #ddd; --good: #00664b;
--bad: #a63c00; }}
@media (prefers-color-scheme: dark) {{
:root {{ --text: #ddd; --page: #1b1b1b; --box: #2a2a2a; --line: #444; --good: #4ec9a4; --bad: #ff8f4f; }} }}
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 1100px; padding: 0 1em; color: var(--text);
background: var(--page); }}
h1 {{ font-size: 1.6em; overflow-wrap: anywhere; }} h2 {{ font-size: 1.15em; margin: 1.6em 0 0.4em; }}
pre {{ background: var(--box); padding: 1em; white-space: pre-wrap; overflow-wrap: anywhere; font-size: 13px; }}
.check {{ border-left: 6px solid; padding: 0.2em 1em; background: var(--box); }}
.check ul {{ padding-left: 1.2em; }}
.passed {{ border-color: var(--good); }} .failed {{ border-color: var(--bad); }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: 14px; }}
th, td {{ text-align: left; padding: 0.25em 1em 0.25em 0; vertical-align: top; border-bottom: 1px solid var(--line); }}
td.number {{ text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }}
summary {{ cursor: pointer; margin: 0.6em 0; }}
@media (max-width: 600px) {{ body {{ margin: 1em auto; padding: 0 0.6em; }} table {{ font-size: 12px; }}
pre {{ font-size: 11px; padding: 0.6em; }}
th, td {{ padding-right: 0.6em; }} }}
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
<details open><summary>Summary</summary><pre>{summary}</pre></details>
<details><summary>Means and covariances, observed and predicted</summary><div class="wide">{moments}</div></details>
{figures}
<p>Drag to zoom, double-click to reset, hover over a sample for its values.</p>
<script>
const dark = matchMedia("(prefers-color-scheme: dark)");
function paint() {{
  const [text, line] = dark.matches ? ["#ddd", "#444"] : ["#222", "#ddd"];
  const axes = {{}};
  for (const axis of ["xaxis", "yaxis"]) {{
    axes[axis + ".gridcolor"] = line;
    axes[axis + ".zerolinecolor"] = line;
  }}
  const drawn = document.querySelectorAll(".plotly-graph-div");
  for (const one of drawn) Plotly.relayout(one, {{"font.color": text, ...axes}});
}}
paint();
dark.addEventListener("change", paint);
</script>
</body>
</html>
"""


def _page(
    title: str,
    model: SnapshotSDE,
    summary: str,
    drawn: dict[str, Any],
    moments: Sequence[Moment],
    length: str,
    time: str,
) -> str:
    """The HTML; plotly's code is in it once, before the first figure."""
    config = {"displaylogo": False, "responsive": True}
    parts = {
        name: figure.to_html(full_html=False, include_plotlyjs=k == 0, default_width="100%", config=config)
        for k, (name, figure) in enumerate(drawn.items())
    }
    return _PAGE.format(
        title=html.escape(title),
        check=_verdict(model),
        settings=_table(_settings(model, length, time)),
        moments=_table(_moments(moments)),
        summary=html.escape(summary),
        json=json.dumps(numbers(model), indent=1, allow_nan=False).replace("<", "\\u003c"),
        figures="\n".join(f"<section><h2>{html.escape(name)}</h2>{part}</section>" for name, part in parts.items()),
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
        level, low, high = one_noise(model)
        interval = f" (95%: {low:.4g} to {high:.4g})" if math.isfinite(low) else ""
        noise = f"{level:.4g}{interval} {unit}".rstrip() + ", the same everywhere"
    turns = "turns" if model.rotation_.any() else "is a gradient"
    chain = "without a chain, by moments" if values["states"] is None else f"{values['states']} states, "
    chain += "" if values["states"] is None else f"ε = {values['eps']:.4g} {plural(time)}".rstrip()
    return [
        [
            "samples",
            f"{values['samples']} in {values['coordinates']} coordinates, horizon {values['horizon']:.4g} "
            + plural(time),
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
