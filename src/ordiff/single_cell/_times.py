"""Columns of ``obs`` as numbers: times with their unit, read from numbers, durations or labels such as "day 2"."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ordiff._time_labels import are_times, times_from_labels
from ordiff._validation import Array
from ordiff.single_cell._key import PSEUDOTIME
from ordiff.single_cell._read import check_anndata, finite_values, quote_names

if TYPE_CHECKING:
    from anndata import AnnData

# What else to do about labels that are no times.
_ADVICE = ", map them to numbers, adata.obs[...].map({}), or make them an ordered categorical"


class Times(NamedTuple):
    """Times as numbers, (m,), and their unit: "hour", "day", …, or "" if no unit was given."""

    values: Array
    unit: str


def read_times(adata: AnnData, key: str) -> Times:
    """A column of ``obs`` as times: numbers, durations, or labels such as "24h", "day 2", "D2.5", "E8.5", "10 dpf".

    Labels that share one unit keep it; labels of several units are all converted to the smallest. The unit is "" if no
    unit was given.

    >>> import anndata, numpy as np, ordiff as od
    >>> cells = anndata.AnnData(np.zeros((3, 1), np.float32), obs={"stage": ["12h", "day 1", "36 hr"]})
    >>> od.single_cell.read_times(cells, "stage")
    Times(values=array([12., 24., 36.]), unit='hour')
    """
    return numeric_column(check_anndata(adata), key, "time")


def numeric_column(adata: AnnData, key: str, what: str) -> Times:
    """A column of obs as numbers, with their unit; ``what`` it holds is for the messages.

    Labels of an ordered categorical that are no times count 0, 1, 2, … in their order; durations are in hours.
    """
    if key not in adata.obs:
        raise ValueError(_missing_column(adata, key, what))
    column = adata.obs[key]
    dtype = column.dtype
    name = f"obs[{key!r}]"
    if hasattr(column, "cat") and column.cat.ordered and not are_times(column.cat.categories):
        codes = np.asarray(column.cat.codes, dtype=np.float64)
        values, unit = np.where(codes < 0, np.nan, codes), ""
    elif hasattr(column, "cat") or dtype.kind in "OUST":
        values, unit = times_from_labels(list(column), name, _ADVICE)
    elif dtype.kind == "m":
        values, unit = np.asarray(column.dt.total_seconds(), dtype=np.float64) / 3600, "hour"
    elif dtype.kind in "iuf":
        values, unit = np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan)), ""
    else:
        raise ValueError(f"{name} holds {dtype}, which is no {what}: give numbers, or labels such as 'day 2'.")
    return Times(finite_values(adata, values, name), unit)


def _missing_column(adata: AnnData, key: str, what: str) -> str:
    numeric = [name for name in adata.obs.columns if getattr(adata.obs[name].dtype, "kind", "O") in "iuf"]
    run = " Run scanpy.tl.dpt(adata) first, or give" if key == PSEUDOTIME else " Give"
    there = f"numeric columns: {quote_names(numeric)}" if numeric else "no column is numeric"
    other = ", by Velocity, Lineages or Cycle, or as an array." if what == "ordering" else "."
    return f"adata.obs has no {key!r}.{run} the {what} by another column ({there}){other}"
