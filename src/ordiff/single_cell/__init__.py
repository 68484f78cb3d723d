"""Single cells: operators and models from AnnData and back, and a kernel for CellRank. Extra ``single-cell``.

    operator          representation + ordering (+ scanpy's neighbours) → MarkovOperator, written to ``key_added`` slots
    stored_operator   the operator read back from its slots, for instance after reading a file
    fates             probabilities of the terminal states of every cell, from a stored operator
    fit               representation + sampling times → SnapshotSDE, with its ordering, noise and drift written
    read_times        "day 2", "24h", "E8.5": numbers and their unit
    OrdiffKernel      the same operator as a CellRank kernel (defined on first access, because it needs cellrank)

The ordering of the cells is a column of ``obs``, or `Velocity`, `Lineages` or `Cycle`, or a list of these. The strength
of the drift along it is one number, ``forward``: see `operator`. Only this package imports anndata and CellRank, and
only inside functions. Each function above is in the file of its name; the names of all slots are in ``_key``, checked
reading in ``_read``, writing in ``_write``, and the parts of an operator in ``_graph``, ``_ordering``, ``_step`` and
``_tilt``.
"""

from typing import Any

from ordiff.single_cell._fates import fates
from ordiff.single_cell._fit import fit
from ordiff.single_cell._key import Keys
from ordiff.single_cell._operator import operator
from ordiff.single_cell._ordering import Cycle, Lineages, OrderingLike, Velocity
from ordiff.single_cell._read import read_arrays
from ordiff.single_cell._stored import stored_operator
from ordiff.single_cell._times import Times, read_times

Source = OrderingLike  # an alias, for annotations that import it

__all__ = [
    "Cycle", "Keys", "Lineages", "OrderingLike", "Source", "Times", "Velocity", "fates", "fit", "operator",
    "read_arrays", "read_times", "stored_operator",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """`OrdiffKernel` derives from a class of CellRank, so it is defined when it is first asked for."""
    if name == "OrdiffKernel":
        from ordiff.single_cell._cellrank import define_kernel

        globals()[name] = define_kernel()
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
