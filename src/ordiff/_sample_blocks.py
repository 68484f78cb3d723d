"""Snapshots as Dask arrays: samples in blocks on workers, for a fit whose chain is here.

    in_blocks       from Dask arrays to `SampleBlocks` and the part of the samples that a fit has in memory
    SampleBlocks    all samples: for `ordiff.learning`, what it asks of samples that are elsewhere

A block is read, and its observation weights are made, where it is; it stays there until another chain is looked at.
Tasks depend on their arguments alone, and sums are added in a fixed order, so that a worker that is lost changes
nothing. All calls of Dask are in `distributed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordiff import _validation, distributed
from ordiff._coordinates import LinearCoordinates
from ordiff._validation import Array
from ordiff.learning.blocks_elsewhere import ChainView, ObservedBlock, SampleFilter, SampleRows, added
from ordiff.learning.settings import DesignedStates, FitSettings
from ordiff.learning.slices import BlockSchedule

# The samples that a fit has in memory, at most: for the design of states, the Fisher information and the check.
MOST_HERE = 100_000
# Sums that are added in one task.
_TOGETHER = 8
# Cells along the longest side of the samples in memory: where none of these lies, points of other blocks are asked for,
# if there are so many in a cell and the data have up to so many dimensions.
_CELLS, _FEWEST_IN_CELL, _MOST_DIMENSIONS = 64, 3, 3


class Session:
    """The client, and what is on its workers at the moment: one observed chain. A copy connects anew."""

    def __init__(self, client: Any = None) -> None:
        self._client = client
        self.lost: ConnectionError | None = None
        self.placed: _Placed | None = None

    @property
    def client(self) -> Any:
        if self._client is None:
            self._client = distributed._client(None)
        return self._client

    def __reduce__(self) -> Any:
        return Session, ()


@dataclass(frozen=True, eq=False)
class _Placed:
    """The blocks of one observed chain on the workers, and the weight of their samples."""

    of: BlockObservation
    rank: NDArray[np.uint32]
    schedule: BlockSchedule
    blocks: tuple[Any, ...]
    weight: float


def in_blocks(X: Any, times: Any, sample_weight: Any) -> tuple[SampleBlocks, Array, Array, Array]:
    """All samples of Dask arrays in blocks, and points, times and weights of those that a fit has in memory: all, or a
    random part of them."""
    if times is None:
        raise ValueError("samples in a Dask array need known times: pass them to fit(X, times).")
    client = distributed._client(None)
    chunks = distributed.row_chunks(X, times, sample_weight)
    number, parts = 0, []
    for size, arrays in chunks:
        parts.append((number, arrays))
        number += size
    session = Session(client)
    chosen = np.arange(number)
    if number > MOST_HERE:
        chosen = np.sort(np.random.default_rng(0).choice(number, MOST_HERE, replace=False))
    starts = [first for first, _ in parts]
    cut = np.split(chosen, np.searchsorted(chosen, starts[1:]))
    rows = _read(session, parts)
    found = distributed._gather(client, distributed._map(client, _taken, rows, cut))
    here = [np.concatenate([one[k] for one in found]) for k in range(3)]
    weight, latest = sum(one[3] for one in found), max(one[4] for one in found)
    if not latest > 0:
        raise ValueError("all times are 0: there is nothing to learn from the start alone.")
    if not weight > 0:
        raise ValueError("sample_weight must not be all zero.")
    shape = (number, here[0].shape[1])
    blocks = SampleBlocks(session, tuple(parts), shape, float(weight), float(here[2].sum()), float(latest))
    return blocks, here[0], here[1], here[2]


def _read(session: Session, parts: Sequence[Any]) -> list[Any]:
    """Futures of the `SampleRows` of all blocks."""
    client = session.client
    return [
        distributed._submit(client, _rows, number, *distributed.computed(client, arrays)) for number, arrays in parts
    ]


def _rows(number: int, X: Array, times: Array, weights: Array | None = None) -> SampleRows:
    """The rows of a block, checked."""
    X = _validation.points(X, minimum=1)
    t = _validation.finite(_validation.as_float(times, "times"), "times")
    w = np.ones(len(X)) if weights is None else _validation.nodes(weights, len(X), "sample_weight")
    earliest = t if t.ndim == 1 else t[:, 0]
    for bad, words in (
        (earliest < 0, "times must not be negative: the start is at time 0"),
        (w < 0, "sample_weight must not be negative"),
        (np.zeros(len(X), bool) if t.ndim == 1 else t[:, 1] < t[:, 0], "a window of time ends before it begins"),
    ):
        if bad.any():
            raise ValueError(f"{words}. See row {number + int(np.argmax(bad))}.")
    return SampleRows(X, t, w, number)


def _taken(rows: SampleRows, chosen: NDArray[np.intp]) -> tuple[Array, Array, Array, float, float]:
    """The chosen rows, the weight of all, and their latest time."""
    at = chosen - rows.number
    return rows.X[at], rows.times[at], rows.weights[at], float(rows.weights.sum()), float(rows.times.max())


@dataclass(frozen=True, eq=False)
class SampleBlocks:
    """All samples, in blocks: those that are used, in the coordinates in which a chain lives.

    parts: the number of the first row and the arrays of each block, to be read. weight, weight_here: of all samples,
    and of those in memory.
    """

    session: Session
    parts: tuple[Any, ...]
    shape: tuple[int, int]
    weight: float
    weight_here: float
    latest: float
    chosen: SampleFilter = field(default_factory=SampleFilter)

    def check(self, settings: FitSettings) -> None:
        """Refuse settings that need all samples in memory."""
        if not isinstance(settings.states, DesignedStates):
            raise ValueError("samples in a Dask array are learned from with designed states: leave `states` as it is.")
        if settings.ordering is not None and not callable(settings.ordering):
            raise ValueError(
                "an ordering of samples in a Dask array must be a function of points that returns an Ordering on them."
            )

    def refuse_moments(self) -> None:
        raise ValueError(
            "from four dimensions on a process is learned by the moments of samples in memory: learn from a part of "
            "them, X[rows].compute(), or from the leading two or three principal components."
        )

    def in_coordinates(self, coordinates: LinearCoordinates) -> SampleBlocks:
        return replace(self, chosen=replace(self.chosen, coordinates=coordinates))

    def only(self, farthest: float, earliest: float) -> SampleBlocks:
        return replace(self, chosen=replace(self.chosen, farthest=farthest, earliest=earliest))

    def observed(self, view: ChainView) -> BlockObservation:
        states = view.states.with_radius(view.states.radius)  # without what it has cached
        return BlockObservation(self, replace(view, states=states))

    def __getitem__(self, rows: NDArray[np.intp]) -> Array:
        """The points of some samples, or of a random part of very many, in the user's coordinates."""
        if len(rows) > MOST_HERE:
            raise ValueError(
                f"the start has {len(rows)} samples, and up to {MOST_HERE} are held in memory: mark a part of them."
            )
        starts = [number for number, _ in self.parts]
        order = np.argsort(rows, kind="stable")
        cut = np.split(np.asarray(rows)[order], np.searchsorted(np.asarray(rows)[order], starts[1:]))
        client = self.session.client
        found = distributed._gather(client, distributed._map(client, _taken, _read(self.session, self.parts), cut))
        out = np.empty((len(rows), self.shape[1]))
        out[order] = np.concatenate([one[0] for one in found])
        return out

    def outside(self, X: Array) -> Array:
        """A point of every cell of space that holds some samples but none of those in memory, X (p, d): (q, d)."""
        if len(X) == self.shape[0] or X.shape[1] > _MOST_DIMENSIONS:
            return X[:0]
        low, width = X.min(axis=0), float(np.ptp(X, axis=0).max()) / _CELLS
        known = np.unique(_cells(X, low, width), axis=0)
        client, rows = self.session.client, _read(self.session, self.parts)
        options = {"coordinates": self.chosen.coordinates, "known": known, "low": low, "width": width}
        found = distributed._gather(client, distributed._map(client, _unknown_cells, rows, **options))
        points, counts = (np.concatenate([one[k] for one in found]) for k in range(2))
        _, first, of = np.unique(_cells(points, low, width), axis=0, return_index=True, return_inverse=True)
        return points[first[np.bincount(of.ravel(), counts, len(first)) >= _FEWEST_IN_CELL]]

    def end(self) -> None:
        """The end of a fit: what is on the workers is let go; if they were lost, that is told."""
        self.session.placed = None
        if self.session.lost is not None:
            raise ConnectionError(f"{self.session.lost} The model holds the best so far.") from self.session.lost


def _cells(X: Array, low: Array, width: float) -> NDArray[np.int64]:
    return np.floor((X - low) / width).astype(np.int64)


def _unknown_cells(
    rows: SampleRows, coordinates: LinearCoordinates, known: NDArray[np.int64], low: Array, width: float
) -> tuple[Array, NDArray[np.intp]]:
    """A point of each cell that is not known, and the number of samples there."""
    X = coordinates.transform(rows.X)
    cells, first, count = np.unique(_cells(X, low, width), axis=0, return_index=True, return_counts=True)
    together = np.concatenate([known, cells])
    _, at = np.unique(together, axis=0, return_index=True)
    new = at[at >= len(known)] - len(known)
    return X[first[new]], count[new]


@dataclass(frozen=True, eq=False)
class BlockObservation:
    """What all samples see of one chain."""

    samples: SampleBlocks
    view: ChainView

    def sums(self, masses: Array, rank: NDArray[np.uint32], schedule: BlockSchedule) -> tuple[float, Array]:
        """The loss, and its derivative by the masses of all time slices, (S, N, F)."""
        session = self.samples.session
        try:
            placed, client = self._placed(rank, schedule), session.client
            sent = distributed._submit(client, _itself, masses)
            parts = distributed._map(
                client, ObservedBlock.sums, placed.blocks, [sent] * len(placed.blocks), total=placed.weight
            )
            while len(parts) > 1:
                groups = [parts[k : k + _TOGETHER] for k in range(0, len(parts), _TOGETHER)]
                parts = [distributed._submit(client, added, *group) for group in groups]
            loss, source = distributed._gather(client, parts)[0]
        except ConnectionError as error:
            session.lost = error
            raise
        return loss, source

    def _placed(self, rank: NDArray[np.uint32], schedule: BlockSchedule) -> _Placed:
        """The blocks on the workers; those of another chain are let go."""
        samples, session = self.samples, self.samples.session
        now = session.placed
        if now is None or now.of is not self or now.schedule != schedule or not np.array_equal(now.rank, rank):
            session.placed = now = None
            client = session.client
            view = distributed._submit(client, _itself, self.view)
            rows, options = _read(session, samples.parts), {"chosen": samples.chosen, "rank": rank}
            blocks = distributed._map(client, ObservedBlock.of, rows, [view] * len(rows), schedule=schedule, **options)
            weights = distributed._gather(client, distributed._map(client, _weight, blocks))
            now = _Placed(self, rank, schedule, tuple(blocks), float(sum(weights)))
            session.placed = now
        return now


def _itself(value: Any) -> Any:
    return value


def _weight(block: ObservedBlock) -> float:
    return block.weight
