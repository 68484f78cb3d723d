"""`Preparation`: how the columns of a table became the coordinates of a model, kept beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ordiff import _archive
from ordiff._archive import ArraySpec, one_of
from ordiff._validation import Array

if TYPE_CHECKING:
    from ordiff.learning.check import Moment
    from ordiff.model import SnapshotSDE

FILE = "preparation.npz"
_KIND, _FORMAT = "ordiff.preparation", 1
# Axes: c columns, k components, m samples; a window of time has two ends.
_ARRAYS = {
    "mean": ArraySpec("f", "c"), "scale": ArraySpec("f", "c"), "components": ArraySpec("f", "kc", required=False),
    "share": ArraySpec("f", "k", required=False), "rows": ArraySpec("i", "m"),
    "times": ArraySpec("f", "m", required=False), "windows": ArraySpec("f", "mw", required=False),
    "start": ArraySpec("f", "n", required=False), "start_mass": ArraySpec("f", "m", required=False),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Preparation:
    """Coordinates z = ((x − mean)/scale) componentsᵀ of columns x, and what else a model's file does not hold."""

    columns: tuple[str, ...]
    mean: Array  # (c,)
    scale: Array  # (c,), 1 when nothing was standardised
    components: Array | None = None  # (k, c)
    share: Array | None = None  # (k,) of the variance of the columns that each component explains
    rows: Any = None  # (m,) rows of the table, from 0; None for all of them
    times: Array | None = None  # (m,) or (m, 2), as the fit had them
    start: Any = None  # as the fit had it
    length: str = ""  # units, for labels
    time: str = ""

    @classmethod
    def none(cls, names: tuple[str, ...]) -> Preparation:
        """The columns as they are."""
        return cls(names, np.zeros(len(names)), np.ones(len(names)))

    @property
    def standardised(self) -> bool:
        return bool((self.scale != 1).any())

    @property
    def names(self) -> tuple[str, ...]:
        """Of the coordinates in which results are written: the columns, or components of them."""
        return self.columns if self.components is None else tuple(f"PC{k + 1}" for k in range(len(self.components)))

    @property
    def labels(self) -> tuple[str, ...]:
        """The same with the share of all variance that a component explains."""
        if self.share is None:
            return self.names
        return tuple(f"{name} ({share:.0%} of variance)" for name, share in zip(self.names, self.share, strict=True))

    def transform(self, x: Array) -> Array:
        """Columns (p, c) to coordinates of the model."""
        z = (x - self.mean) / self.scale
        return z if self.components is None else np.asarray(z @ self.components.T)

    def points(self, z: Array) -> Array:
        """Points of the model, (..., n), in the units of the columns; components stay components."""
        return z if self.components is not None else np.asarray(z * self.scale + self.mean)

    def vectors(self, v: Array) -> Array:
        """Drifts (..., n) in the units of the columns per time."""
        return v if self.components is not None else np.asarray(v * self.scale)

    def noise(self, rho: Array) -> dict[str, Array]:
        """The noise as columns of a table: one, or one for each column that was standardised."""
        if self.components is not None or not self.standardised:
            return {"noise": rho}
        return {f"noise_{name}": rho * scale for name, scale in zip(self.names, self.scale, strict=True)}

    def drift(self, v: Array, name: str = "drift") -> dict[str, Array]:
        """The drift as columns of a table."""
        return {f"{name}_{one}": column for one, column in zip(self.names, self.vectors(v).T, strict=True)}

    def moments(self, model: SnapshotSDE) -> tuple[Moment, ...]:
        """The table of a model's check in the units of the columns, where it is of single columns."""
        if model.coordinates_.forward is not None or self.components is not None:
            return model.check_.table
        n, names = len(self.names), self.names
        known: dict[str, tuple[int, ...]] = {f"mean of {name}": (k,) for k, name in enumerate(names)}
        known |= {f"variance of {name}": (k, k) for k, name in enumerate(names)}
        known |= {f"covariance of {names[a]} and {names[b]}": (a, b) for a in range(n) for b in range(a + 1, n)}
        return tuple(self._moment(row, known.get(row.name, ())) for row in model.check_.table)

    def _moment(self, row: Moment, at: tuple[int, ...]) -> Moment:
        """One of these columns in their units; of none as it is."""
        factor = float(np.prod(self.scale[list(at)]))
        shift = float(self.mean[at[0]]) if len(at) == 1 else 0.0
        return replace(row, observed=shift + factor * row.observed, predicted=shift + factor * row.predicted)

    def sample_numbers(self, m: int) -> Any:
        """The row of the table, from 0, that each of m samples was."""
        return np.arange(m) if self.rows is None else self.rows

    def summary(self, model: SnapshotSDE) -> str:
        """What was learned, in words, with these units, and with samples called by their rows."""
        return model.summary(self.length, self.time, self.sample_numbers(len(model.ordering_)))

    def save(self, path: Path, m: int) -> None:
        """Write it beside a model of m samples."""
        arrays: dict[str, Any] = {"mean": self.mean, "scale": self.scale, "rows": self.sample_numbers(m)}
        arrays |= {} if self.components is None else {"components": self.components, "share": self.share}
        if self.times is not None:
            arrays["times" if self.times.ndim == 1 else "windows"] = self.times
        if self.start is not None:
            start = np.asarray(self.start)
            if start.dtype.kind == "f":
                arrays["start"] = start
            else:
                mass = np.zeros(m)
                mass[start] = 1.0
                arrays["start_mass"] = mass
        meta = {"kind": _KIND, "format": _FORMAT, "columns": list(self.columns), "length": self.length,
                "time": self.time}  # fmt: skip
        _archive.write(path, meta, {name: np.ascontiguousarray(array) for name, array in arrays.items()})

    @classmethod
    def load(cls, path: Path) -> Preparation:
        """Read what `save` wrote."""
        word = one_of(str)
        with _archive.told(path, "written by ordiff fit"), _archive.opened(path) as archive:
            meta = archive.meta()
            spec = {"kind": word, "format": one_of(int), "columns": [word], "length": word, "time": word}
            _archive.checked_json(meta, spec, "meta")
            if meta["kind"] != _KIND or meta["format"] != _FORMAT:
                raise ValueError("it holds something else, or was written by another version of ordiff.")
            arrays, lengths = archive.arrays(_ARRAYS)
            if lengths["c"] != len(meta["columns"]) or not (arrays["scale"] > 0).all():
                raise ValueError("its arrays do not fit its columns.")
        times, start = (arrays.get(a, arrays.get(b)) for a, b in (("times", "windows"), ("start", "start_mass")))
        return cls(
            tuple(meta["columns"]), arrays["mean"], arrays["scale"], arrays.get("components"), arrays.get("share"),
            arrays["rows"], times, start, meta["length"], meta["time"],
        )  # fmt: skip
