from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import warnings
from html.parser import HTMLParser

import numpy as np
import pytest

import ordiff as od
from ordiff import report


class Page(HTMLParser):
    """The summary JSON, the words, and everything that a page would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.inside, self.json, self.words, self.loads = "", "", "", []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.inside = "json" if found.get("id") == "summary" else tag
        self.loads += [found[key] for key in ("src", "href") if key in found]

    def handle_endtag(self, tag):
        self.inside = ""

    def handle_data(self, data):
        if self.inside == "json":
            self.json += data
        elif self.inside == "pre":
            self.words += data


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    data = od.datasets.ornstein_uhlenbeck(300, random_state=0)
    with warnings.catch_warnings(action="ignore", category=od.OrdiffWarning):
        settings = {"smoothness": od.Smoothness(basis=30), "solver": od.Solver(max_iter=40, n_starts=1)}
        model = od.SnapshotSDE(data.start, **settings).fit(data.X, data.times)
    path = tmp_path_factory.mktemp("report") / "report.html"
    truth = {"ordering": data.ordering - data.ordering_at(data.start[None])[0], "noise": data.noise}
    assert report.write(model, path, times=data.times, truth=truth, title="a < b", notes="seen & done") == path
    return model, path


def test_the_numbers_in_the_page_are_those_of_the_model(written):
    model, path = written
    page = Page(path.read_text(encoding="utf-8"))
    found = json.loads(page.json)
    assert found == report.numbers(model)
    assert found["samples"] == 300
    assert found["noise_median"] == np.median(model.noise_)
    assert found["loss"] == model.loss_
    assert found["converged"] == model.converged_
    assert page.words == model.summary() + "\nseen & done"


def test_the_page_needs_nothing_else(written):
    page = Page(written[1].read_text(encoding="utf-8"))
    assert page.loads == ["data:,"]
    assert not list(written[1].parent.glob("*.partial"))


def test_many_samples_are_drawn_in_part(written, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "MAX_POINTS", 100)
    text = report.write(written[0], tmp_path / "few.html").read_text(encoding="utf-8")
    assert "100 of 300 samples are drawn" in text
    assert len(re.findall(r'"customdata"', text)) >= 4
    assert len(text) < written[1].stat().st_size


def test_what_is_not_finite_is_null(written):
    assert report._plain(np.float64("nan")) is None
    assert report._plain(np.int64(3)) == 3


def test_without_plotly_it_says_what_to_install(written, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "plotly.graph_objects", None)
    with pytest.raises(od.MissingExtraError, match=r"ordiff\[report\]"):
        report.write(written[0], tmp_path / "no.html")


@pytest.mark.slow
def test_a_browser_shows_it_without_an_error(written, tmp_path):
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        if os.environ.get("ORDIFF_NEEDS_BROWSER"):
            pytest.fail("there is no chromium")
        pytest.skip("there is no chromium: make test-browser installs it")
    model, path = written
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--enable-logging=stderr",
        "--v=0", f"--user-data-dir={tmp_path}", "--virtual-time-budget=20000", "--dump-dom", path.as_uri(),
    ]  # fmt: skip
    shown = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    console = [line for line in shown.stderr.splitlines() if "CONSOLE" in line]
    assert console == []
    assert json.loads(Page(shown.stdout).json) == report.numbers(model)
    assert shown.stdout.count('class="main-svg"') >= 4  # plotly has drawn every figure


def test_heads_of_arrows_are_upright_on_the_screen_where_units_differ(rng):
    """In units of the axes' scales, both sides of a head are as far from its shaft."""
    Y, W = rng.uniform(size=(400, 2)) * [1, 1e4], rng.normal(size=(400, 2)) * [1, 1e4]
    line = report.figures._arrows(Y, W)[0][0]
    path = np.column_stack([np.array(axis, dtype=float) for axis in (line.x, line.y)]) / [1, 1e4]
    at, tip, left, _, right, _ = (path[k::6] for k in range(6))
    for side in (left, right):
        along = ((side - tip) * (tip - at)).sum(axis=1) / ((tip - at) ** 2).sum(axis=1)
        np.testing.assert_allclose(along, -0.35, atol=0.01)


def test_samples_are_called_by_their_numbers(written, tmp_path):
    text = report.write(written[0], tmp_path / "rows.html", sample_numbers=np.arange(300) + 7000)
    assert "7299" in text.read_text(encoding="utf-8")
