"""A whole fit: what it asks for, and that it asks once."""

from __future__ import annotations

import numpy as np
import pytest

import ordiff as od
from ordiff.learning import optimise as optimise_module
from ordiff.learning.data import Snapshots
from ordiff.learning.fit import fit
from ordiff.learning.progress import EvaluationCount
from ordiff.learning.settings import DesignedStates, FitSettings, Smoothness, TimeDensity


class Asked:
    """Every point at which scores, or the loss, were asked for; with what they were asked of."""

    def __init__(self, monkeypatch) -> None:
        self.scores: list[tuple[object, ...]] = []
        self.losses: list[tuple[object, ...]] = []
        self._alive: list[object] = []  # an id is that of one object while it lives
        scores, problem = optimise_module.scores, optimise_module.PenalisedLikelihood
        value_and_gradient = problem.value_and_gradient

        def counted_scores(likelihood, dynamics, directions, rows=None):
            self._alive.append(likelihood)
            arrays = (dynamics.noise, *dynamics.orderings, *dynamics.slopes)
            self.scores.append((id(likelihood), *(array.tobytes() for array in arrays)))
            return scores(likelihood, dynamics, directions, rows)

        def counted_losses(problem, a, workspace=None):
            self._alive.append(problem.likelihood)
            strengths = tuple(block.strength for block in problem.parameters.blocks)
            self.losses.append((id(problem.likelihood), strengths, a.tobytes()))
            return value_and_gradient(problem, a, workspace)

        monkeypatch.setattr(optimise_module, "scores", counted_scores)
        monkeypatch.setattr(problem, "value_and_gradient", counted_losses)


@pytest.mark.parametrize("noise", ["constant", "field", 1.4])
def test_no_point_is_asked_twice(noise, monkeypatch):
    """The Fisher information of a solution is carried by it, from stage to stage."""
    asked = Asked(monkeypatch)
    process = od.datasets.ornstein_uhlenbeck(200, random_state=0)
    model = od.SnapshotSDE(
        process.start, noise=noise, smoothness=Smoothness(basis=12), states=DesignedStates(max_states=200)
    )
    settings = FitSettings.of(model)
    result = fit(settings, Snapshots.of(process.start, settings.times, process.X, process.times, None))
    assert len(set(asked.scores)) == len(asked.scores) > 3
    assert len(set(asked.losses)) == len(asked.losses)
    before = len(asked.scores)
    np.testing.assert_array_equal(result.solution.fisher, result.solution.information)
    assert len(asked.scores) == before
    assert result.losses[-1] < result.losses[0]


def test_an_interrupt_of_the_first_look_ends_a_fit(monkeypatch):
    process = od.datasets.ornstein_uhlenbeck(200, random_state=0)
    settings = FitSettings.of(od.SnapshotSDE(process.start, noise="constant"))
    data = Snapshots.of(process.start, TimeDensity(), process.X, process.times, None)

    class Interrupting(EvaluationCount):
        def __call__(self, loss):
            super().__call__(loss)
            if self.n == 4:
                raise KeyboardInterrupt

    result = fit(settings, data, Interrupting())
    assert result.solution.interrupted
    assert not result.converged
    assert result.solution.loss == min(result.losses)
    assert len(result.losses) == 4
