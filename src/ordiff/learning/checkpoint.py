"""What a fit has learned so far, in a file: a fit of the same data and settings goes on from it, with the same result.

A fit has stages, one after the other: the optima of the chains that it learns, of a drift with and without rotation,
or the searches of a fit by moments. An optimum is found in rounds. After every round the file has the coefficients,
the strengths and the losses of each stage; all else follows from the data and the settings.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ordiff import _archive, _validation
from ordiff._archive import ArraySpec, one_of
from ordiff._validation import Array, IntArray
from ordiff.learning.data import Snapshots
from ordiff.learning.settings import FitSettings

_KIND, _FORMAT = "ordiff.checkpoint", 3
_OF_ROUND = ("a", "losses", "stages")


@dataclass(frozen=True, eq=False)
class Round:
    """Where a stage is: the number of its next round, the coefficients, the strengths of each block, the losses of all
    evaluations so far, and the ``count`` of those of the whole fit; ``done`` when there is no next round."""

    number: int
    a: Array
    strengths: tuple[Array, ...]
    losses: Array
    stages: IntArray  # the function that each loss is of, and that of the next
    stage: int
    count: int
    done: bool


class Checkpoint:
    """The rounds of all stages so far, kept in a file."""

    def __init__(self, path: str | Path, settings: FitSettings, data: Snapshots) -> None:
        self.path, self._digest = _validation.path(path, "checkpoint"), _digest(settings, data)
        if not self.path.parent.is_dir():
            raise FileNotFoundError(f"there is no folder {self.path.parent} for the checkpoint.")
        self._rounds: list[Round] = _read(self.path, self._digest) if self.path.exists() else []
        self._stage = -1

    def next_stage(self) -> Round | None:
        """Turn to the next stage: where it was, if it is in the file."""
        self._stage += 1
        return self._rounds[self._stage] if self._stage < len(self._rounds) else None

    def keep(self, found: Round) -> None:
        """Write what the present stage has come to."""
        self._rounds[self._stage :] = [found]
        stages = [
            {
                "number": r.number,
                "strengths": [s.tolist() for s in r.strengths],
                "stage": r.stage,
                "count": r.count,
                "done": r.done,
            }
            for r in self._rounds
        ]
        meta = {"kind": _KIND, "format": _FORMAT, "digest": self._digest, "stages": stages}
        arrays = {f"{name}.{k}": getattr(r, name) for k, r in enumerate(self._rounds) for name in _OF_ROUND}
        _archive.write(self.path, meta, arrays)


def discard(path: Path) -> None:
    """Remove a checkpoint, and what a process that was killed while it wrote it has left."""
    path.unlink(missing_ok=True)
    _archive.remove_partial(path)


def _read(path: Path, digest: str) -> list[Round]:
    with _archive.told(path, "a checkpoint of a fit"), _archive.opened(path) as archive:
        meta = archive.meta()
        if meta.get("kind") != _KIND or meta.get("format") != _FORMAT:
            raise ValueError("it holds something else, or was written by another version of ordiff.")
        number = one_of(int)
        stage = {"number": number, "strengths": [[one_of(int, float)]], "stage": number, "count": number,
                 "done": one_of(bool)}  # fmt: skip
        word = one_of(str)
        _archive.checked_json(meta, {"kind": word, "format": one_of(int), "digest": word, "stages": [stage]}, "meta")
        specs: dict[str, ArraySpec] = {}
        for k in range(len(meta["stages"])):
            of_a, of_losses = chr(2 * k), chr(2 * k + 1)
            specs |= {f"a.{k}": ArraySpec("f", of_a), f"losses.{k}": ArraySpec("f", of_losses, finite=False)}
            specs[f"stages.{k}"] = ArraySpec("i", of_losses)
        arrays, _ = archive.arrays(specs)
    if meta["digest"] != digest:
        raise ValueError(f"{path} is of other data or other settings: remove it, or choose another checkpoint.")
    return [
        Round(
            number=stage["number"],
            a=arrays[f"a.{k}"],
            strengths=tuple(np.array(strengths, float) for strengths in stage["strengths"]),
            losses=arrays[f"losses.{k}"],
            stages=arrays[f"stages.{k}"],
            stage=stage["stage"],
            count=stage["count"],
            done=stage["done"],
        )
        for k, stage in enumerate(meta["stages"])
    ]


def _digest(settings: FitSettings, data: Snapshots) -> str:
    """Of all that a fit depends on, but for functions, which are told apart by their names only."""
    whole: Any = hashlib.sha256()
    ordering = settings.ordering
    for value in (*vars(data).values(), ordering):
        array = np.asarray(value)
        whole.update(repr((array.dtype.str, array.shape)).encode())
        whole.update(array.tobytes() if array.dtype.kind in "biuf" else type(value).__name__.encode())
    plain = replace(settings, ordering=None, learn=frozenset())
    with np.printoptions(threshold=10**7, precision=17):
        words = repr((plain, sorted(settings.learn)))
    whole.update(re.sub(r" at 0x[0-9a-f]+", "", words).encode())  # addresses of functions
    return str(whole.hexdigest())
