"""Writing to AnnData: the arrays of a result by slot, to the object or to a copy of it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from ordiff._validation import Array
from ordiff.operator import MarkovOperator
from ordiff.single_cell._key import Keys
from ordiff.single_cell._read import check_anndata

if TYPE_CHECKING:
    from anndata import AnnData


def check_writable(adata: Any, copy: bool) -> None:
    """Raise unless results can be written to ``adata``, or go to a copy."""
    if check_anndata(adata).isbacked and adata.is_view and not copy:
        raise ValueError(
            "adata is a view of a backed file, to which nothing can be written: use adata = adata.to_memory() first, "
            "or copy=True."
        )


def write_target(adata: AnnData, copy: bool) -> AnnData:
    """The object to write to: ``adata``, or a copy of it in memory."""
    if not copy:
        return adata
    return adata.to_memory() if adata.isbacked else adata.copy()


@contextmanager
def views_become_copies() -> Iterator[None]:
    """Writing to a view turns it into an object of its own, as `operator` documents: without anndata's warning."""
    from anndata import ImplicitModificationWarning

    with warnings.catch_warnings(action="ignore", category=ImplicitModificationWarning):
        yield


def transition_matrix(op: MarkovOperator) -> sp.csr_matrix:
    """P as the csr_matrix that CellRank takes, a copy."""
    P = op.matrix
    return sp.csr_matrix((P.data.copy(), P.indices.copy(), P.indptr.copy()), shape=P.shape)


def scalar_setting(value: Any) -> str | float:
    """A string or a number as it is, "given" for an array: files take no objects in uns."""
    return value if isinstance(value, str) else "given" if np.ndim(value) else float(np.asarray(value))


@dataclass(frozen=True, eq=False)
class SlotArrays:
    """The arrays of one result by slot, and the settings for uns."""

    obs: dict[str, Any]
    obsm: dict[str, Array]
    obsp: dict[str, Any]
    settings: dict[str, Any]

    def write(self, adata: AnnData, keys: Keys, copy: bool) -> AnnData:
        """Write to ``adata``, or to a copy, and return what was written to; slots of an earlier result are removed."""
        target = write_target(adata, copy)
        with views_become_copies():
            for place in ("obs", "obsm", "obsp"):
                for stale in [name for name in getattr(target, place) if keys.own(name)]:
                    del getattr(target, place)[stale]
                for name, values in getattr(self, place).items():
                    getattr(target, place)[name] = values
            target.uns[keys.settings] = self.settings
        return target
