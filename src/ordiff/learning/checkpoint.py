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
from numpy.typing import NDArray

from ordiff import _archive, _validation
from ordiff._archive import ArraySpec, one_of
from ordiff._validation import Array
from ordiff.learning.data import Snapshots
from ordiff.learning.settings import FitSettings

_KIND, _FORMAT = "ordiff.checkpoint", 3
_ARRAYS = ("a", "losses", "functions")


@dataclass(frozen=True, eq=False)
class Round:
    """Where a stage is: the number of its next round, the coefficients, the strengths of each block, the losses of
    all evaluations so far and which function each is of; ``done`` when there is no next round, ``changed`` when the
    strengths are not those of the last loss."""

    number: int
    a: Array
    strengths: tuple[Array, ...]
    losses: Array
    functions: NDArray[np.int64]
    done: bool
    changed: bool = False


class Checkpoint:
    """The rounds of all stages so far, kept in a file.

    count: of the evaluations of the fit, its member ``n``; it goes on from that of the file.
    """

    def __init__(self, path: str | Path, settings: FitSettings, data: Snapshots, count: Any) -> None:
        self.path, self._digest = _validation.path(path, "checkpoint"), _digest(settings, data)
        if not self.path.parent.is_dir():
            raise FileNotFoundError(f"there is no folder {self.path.parent} for the checkpoint.")
        self._rounds: list[Round] = []
        self._counts: list[int] = []
        if self.path.exists():
            self._rounds, self._counts = _read(self.path, self._digest)
        self._stage, self._count = -1, count

    def next_stage(self) -> Round | None:
        """Turn to the next stage: where it was, if it is in the file."""
        self._stage += 1
        if self._stage >= len(self._rounds):
            return None
        self._count.n = self._counts[self._stage]
        return self._rounds[self._stage]

    def keep(self, found: Round) -> None:
        """Write what the present stage has come to."""
        self._rounds[self._stage :], self._counts[self._stage :] = [found], [self._count.n]
        stages = [
            {"number": r.number, "strengths": [s.tolist() for s in r.strengths], "done": r.done, "changed": r.changed,
             "evaluations": n}
            for r, n in zip(self._rounds, self._counts, strict=True)
        ]  # fmt: skip
        meta = {"kind": _KIND, "format": _FORMAT, "digest": self._digest, "stages": stages}
        arrays = {f"{name}.{k}": getattr(r, name) for k, r in enumerate(self._rounds) for name in _ARRAYS}
        _archive.write(self.path, meta, arrays)


def discard(path: Path) -> None:
    """Remove a checkpoint, and what a process that was killed while it wrote it has left."""
    path.unlink(missing_ok=True)
    _archive.remove_partial(path)


def _read(path: Path, digest: str) -> tuple[list[Round], list[int]]:
    with _archive.told(path, "a checkpoint of a fit"), _archive.opened(path) as archive:
        meta = archive.meta()
        if meta.get("kind") != _KIND or meta.get("format") != _FORMAT:
            raise ValueError("it holds something else, or was written by another version of ordiff.")
        stage = {"number": one_of(int), "strengths": [[one_of(int, float)]], "done": one_of(bool),
                 "changed": one_of(bool), "evaluations": one_of(int)}  # fmt: skip
        word = one_of(str)
        _archive.checked_json(meta, {"kind": word, "format": one_of(int), "digest": word, "stages": [stage]}, "meta")
        specs: dict[str, ArraySpec] = {}
        for k in range(len(meta["stages"])):
            own, common = chr(2 * k), chr(2 * k + 1)
            specs |= {f"a.{k}": ArraySpec("f", own), f"losses.{k}": ArraySpec("f", common, finite=False)}
            specs |= {f"functions.{k}": ArraySpec("i", common)}
        arrays, _ = archive.arrays(specs)
    if meta["digest"] != digest:
        raise ValueError(f"{path} is of other data or other settings: remove it, or choose another checkpoint.")
    rounds = [
        Round(
            number=stage["number"],
            a=arrays[f"a.{k}"],
            strengths=tuple(np.array(strengths, float) for strengths in stage["strengths"]),
            losses=arrays[f"losses.{k}"],
            functions=arrays[f"functions.{k}"],
            done=stage["done"],
            changed=stage["changed"],
        )
        for k, stage in enumerate(meta["stages"])
    ]
    return rounds, [stage["evaluations"] for stage in meta["stages"]]


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
