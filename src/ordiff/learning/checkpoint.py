"""What a fit has learned so far, in a file: a fit of the same data and settings goes on from it.

A fit learns one chain or several, one after the other, each in rounds of the optimiser. After every round the file has
the coefficients and strengths of each chain; all else follows from the data and the settings.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ordiff import _archive
from ordiff._archive import ArraySpec, one_of
from ordiff._validation import Array
from ordiff.learning.data import Snapshots
from ordiff.learning.settings import FitSettings

_KIND, _FORMAT = "ordiff.checkpoint", 1


@dataclass(frozen=True, eq=False)
class Round:
    """Where the optimiser of one chain is: the number of its next round, coefficients, and the strength of each block;
    ``done`` when there is none."""

    number: int
    a: Array
    strengths: tuple[float, ...]
    done: bool


class Checkpoint:
    """The rounds of all chains so far, kept in a file."""

    def __init__(self, path: str | Path, settings: FitSettings, data: Snapshots) -> None:
        self.path, self._digest = Path(path), _digest(settings, data)
        self._rounds: list[Round] = _read(self.path, self._digest) if self.path.exists() else []
        self._chain = -1

    def next_chain(self) -> Round | None:
        """Turn to the next chain: where it was, if it is in the file."""
        self._chain += 1
        return self._rounds[self._chain] if self._chain < len(self._rounds) else None

    def keep(self, found: Round) -> None:
        """Write what the present chain has come to."""
        self._rounds[self._chain :] = [found]
        chains = [{"number": r.number, "strengths": list(r.strengths), "done": r.done} for r in self._rounds]
        meta = {"kind": _KIND, "format": _FORMAT, "digest": self._digest, "chains": chains}
        _archive.write(self.path, meta, {f"a.{k}": r.a for k, r in enumerate(self._rounds)})


def _read(path: Path, digest: str) -> list[Round]:
    with _archive.told(path, "a checkpoint of a fit"), _archive.opened(path) as archive:
        meta = archive.meta()
        if meta.get("kind") != _KIND or meta.get("format") != _FORMAT:
            raise ValueError("it holds something else, or was written by another version of ordiff.")
        chain = {"number": one_of(int), "strengths": [one_of(int, float)], "done": one_of(bool)}
        word = one_of(str)
        _archive.checked_json(meta, {"kind": word, "format": one_of(int), "digest": word, "chains": [chain]}, "meta")
        specs = {f"a.{k}": ArraySpec("f", chr(ord("a") + k)) for k in range(len(meta["chains"]))}
        arrays, _ = archive.arrays(specs)
    if meta["digest"] != digest:
        raise ValueError(f"{path} is of other data or other settings: remove it, or choose another checkpoint.")
    return [
        Round(chain["number"], arrays[f"a.{k}"], tuple(map(float, chain["strengths"])), chain["done"])
        for k, chain in enumerate(meta["chains"])
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
        whole.update(repr((plain, sorted(settings.learn))).encode())
    return str(whole.hexdigest())
