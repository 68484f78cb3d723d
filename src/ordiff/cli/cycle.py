"""``--cycle``: a column that holds a phase, along which the process goes round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.neighbors import NearestNeighbors

from ordiff._time_labels import plural, singular
from ordiff._validation import Array
from ordiff.kernel.ordering import Ordering

if TYPE_CHECKING:
    from ordiff.model import SnapshotSDE

_NEIGHBOURS = 8


@dataclass(frozen=True, eq=False)
class PhaseOrdering:
    """The local ordering of a phase that is known at samples; elsewhere it is that of the samples around.

    The mean of phases is that of points on a circle, so that 0 and the period are the same.
    """

    column: str
    X: Array  # (m, n)
    phase: Array  # (m,)
    period: float

    @property
    def circle(self) -> Array:
        """The samples on a circle of radius 1, (m, 2)."""
        angle = 2 * np.pi / self.period * self.phase
        return np.stack([np.cos(angle), np.sin(angle)], axis=1)

    def __call__(self, points: Array) -> Ordering:
        k = min(_NEIGHBOURS, len(self.X))
        distance, near = NearestNeighbors(n_neighbors=k).fit(self.X).kneighbors(points)
        weight = 1 / np.maximum(distance, 1e-9 * max(float(distance.max()), np.finfo(float).tiny))
        x, y = np.einsum("pk,pkc->cp", weight, self.circle[near])
        return Ordering.cyclic(np.arctan2(y, x) * self.period / (2 * np.pi), period=self.period)

    def describe(self, model: SnapshotSDE, time: str) -> str:
        """How fast the samples of a model go round: the rate is that of the circle's points by local regression."""
        from ordiff.plot.embedding import LocalEmbedding

        moved = LocalEmbedding(self.X, self.circle).vectors(self.X, model.drift_)
        along = np.stack([-self.circle[:, 1], self.circle[:, 0]], axis=1)
        rate = float((moved * along).sum(axis=1).mean()) * self.period / (2 * np.pi)
        took = f"once round takes {abs(self.period / rate):.3g} {plural(time)}".rstrip() if rate else ""
        once = took or "it does not go round"
        per = f" per {singular(time)}" if time else ""
        return f"Cycle: {self.column!r} changes by {rate:.4g}{per} on average; {once}."


def parse_cycle(option: str) -> tuple[str, float]:
    """``COLUMN`` or ``COLUMN:PERIOD``; without a period it is 2π."""
    name, colon, period = option.rpartition(":")
    if not colon:
        return option, 2 * np.pi
    try:
        value = float(period)
    except ValueError:
        return option, 2 * np.pi  # a name that has a colon
    if not 0 < value < np.inf:
        raise ValueError(f"--cycle {option!r}: the period must be positive.")
    return name, value


def check_phase(column: str, phase: Array, period: float) -> Any:
    """Refuse a phase that takes more than one period, as one in other units does."""
    if np.ptp(phase) > 1.001 * period:
        raise ValueError(
            f"--cycle: column {column!r} runs from {phase.min():.4g} to {phase.max():.4g}, more than a period of "
            f"{period:.4g}: give its period, as --cycle {column}:24."
        )
    return phase
