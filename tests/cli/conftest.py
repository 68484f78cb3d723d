from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

import ordiff as od
from ordiff.cli import main
from ordiff.experiments import Learned
from ordiff.learning.uncertainty import LikelihoodProfile


@pytest.fixture(scope="session")
def quick() -> list[str]:
    """Options of a fit that is good enough to be written."""
    return ["--max-iter", "30", "--noise", "constant", "--drift", "gradient", "--quiet"]


@pytest.fixture
def error_line(capsys):
    """Returns the error that was printed, which is one line."""

    def read() -> str:
        printed = capsys.readouterr().err
        assert printed.startswith("ordiff: ")
        assert printed.count("\n") == 1
        return printed

    return read


@pytest.fixture(scope="session")
def data():
    return od.datasets.ornstein_uhlenbeck(150, random_state=0)


@pytest.fixture(scope="session")
def table(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "ou.csv"
    rows = np.column_stack([data.times, data.X])
    path.write_text("hours,a,b,who\n" + "".join(f"{t},{a},{b},cell\n" for t, a, b in rows))
    return path


@pytest.fixture(scope="session")
def fitted(table, quick, tmp_path_factory):
    out = tmp_path_factory.mktemp("fit") / "new" / "deeper"
    assert main(["fit", str(table), "--times", "hours", "--start", "5,5", "--out", str(out), *quick]) == 0
    return out


@pytest.fixture(scope="session")
def learned(data):
    """A run of the learned cases: of a small problem, quickly."""
    problem = replace(data, noise=1.4 + 0.01 * data.X[:, 0])
    with warnings.catch_warnings(action="ignore", category=od.OrdiffWarning):
        model = od.SnapshotSDE(data.start, noise="constant", solver=od.Solver(max_iter=30)).fit(data.X, data.times)
    levels = np.array([1.0, 1.4, 2.0])
    profile = LikelihoodProfile(levels, np.array([3.0, 0.0, 4.0]), 1.4, (1.1, float("inf")))
    return Learned("designed states", 0, problem, model, problem.noise + 0.01, 1.0, profile)
