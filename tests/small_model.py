"""A small fitted model that takes a fraction of a second: for what is done with models, not for what they learn."""

from __future__ import annotations

import warnings

import ordiff as od


def small_model(checkpoint=None, **changes) -> od.SnapshotSDE:
    data = od.datasets.ornstein_uhlenbeck(80, random_state=0)
    states = od.States.design(data.X, 0.5, start=data.start)
    settings = {
        "noise": "constant", "states": states, "smoothness": od.Smoothness(basis=4, ordering=0.01),
        "solver": od.Solver(eps=0.1, max_iter=5, n_starts=1),
    }  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", od.OrdiffWarning)  # five iterations are no optimum
        return od.SnapshotSDE(data.start, **settings | changes).fit(data.X, data.times, checkpoint=checkpoint)
