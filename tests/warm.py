"""Compiles the loops that most tests use into one cache, of which every worker takes a copy: make check runs it."""

from __future__ import annotations

import warnings
from unittest import mock

import numpy as np

import chain_reference
import ordiff as od
import smoke
from ordiff.learning.scores import Directions, scores


def steps() -> None:
    """Steps of several functions and what is read off an operator."""
    X = np.random.default_rng(0).normal(size=(300, 2))
    op = od.Kernel(X[:, 0], noise=0.5).operator(od.NeighborGraph.build(X, k=60), 0.02, density="knn")
    op.backward(X, 2)
    op.forward(X, 2)
    op.adjoint(X)
    od.local_moments(op)
    od.velocity(op, "symmetric")


def forms() -> None:
    """Likelihoods of every form, with two orderings and a local one, and their scores in both precisions."""
    for form in chain_reference.FORMS:
        rng = np.random.default_rng(0)
        case, U = chain_reference.make(rng, form=form), rng.normal(size=(50, 2))
        likelihood, changes = case.likelihood(), Directions((U, U), (U, U), (U,), U)
        likelihood.value_and_gradient(case.dynamics)
        for dtype in (np.float32, np.float64):
            scores(likelihood, case.dynamics, changes, dtype=dtype)


def fits() -> None:
    """A noise field, with times known and unknown."""
    data = od.datasets.ornstein_uhlenbeck(200, random_state=0)
    options = {"smoothness": od.Smoothness(basis=10), "solver": od.Solver(max_iter=3, n_starts=1)}
    od.SnapshotSDE(data.start, noise="field", **options).fit(data.X, data.times)
    density = od.TimeDensity("uniform", data.horizon)
    od.SnapshotSDE(data.start, noise="constant", times=density, **options).fit(data.X)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # three iterations do not converge
    smoke.check_operator()
    smoke.check_fit()
    steps()
    with mock.patch("ordiff._compiled.csr.index_dtype", return_value=np.int64):  # as on graphs of 2³¹ edges
        steps()
    forms()
    fits()
