"""The verb `fates`: probabilities of the terminal states of every cell, from a stored operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ordiff.single_cell._key import Keys
from ordiff.single_cell._read import quote_names
from ordiff.single_cell._stored import stored_operator
from ordiff.single_cell._write import check_writable, views_become_copies, write_target

if TYPE_CHECKING:
    from anndata import AnnData


def fates(adata: AnnData, terminal: Any, key: str = "ordiff", *, continuous: bool = False, copy: bool = False) -> Any:
    """The probability of every cell to end in each terminal set, (m, fates) with the names as columns.

    Parameters
    ----------
    adata
        The cells, with a result of `operator` or `fit`.
    terminal
        A column of ``obs``, missing where a cell is not terminal (such as CellRank's "term_states_fwd"), a dict of
        names and cells (a mask, numbers, or their names), or what `ordiff.fate_probabilities` takes.
    key
        The name of the result to follow.
    continuous
        As in `ordiff.fate_probabilities`.
    copy
        Write to a copy of ``adata`` and return that instead.

    Returns
    -------
    DataFrame
        The probabilities, also written to ``obsm["ordiff_fates"]``.
    """
    from pandas import DataFrame

    from ordiff.passage import fate_probabilities, terminal_sets

    op = stored_operator(adata, key)
    check_writable(adata, copy)
    terminal = _terminal_cells(adata, terminal)
    names = [str(name) for name in terminal_sets(terminal, op.graph.n_points)]
    probabilities = fate_probabilities(op, terminal, continuous=continuous)
    frame = DataFrame(probabilities, index=adata.obs_names, columns=names)
    target = write_target(adata, copy)
    with views_become_copies():
        target.obsm[Keys(key).fates] = frame
    return target if copy else frame


def _terminal_cells(adata: AnnData, terminal: Any) -> Any:
    """The terminal sets as `ordiff.fate_probabilities` takes them: labels (m,), None if missing, or cells by name."""
    if isinstance(terminal, str):
        if terminal not in adata.obs:
            raise ValueError(f"adata.obs has no {terminal!r}, it has {quote_names(adata.obs.columns)}.")
        column = adata.obs[terminal].astype(object)
        return column.where(column.notna(), None).to_numpy()
    if isinstance(terminal, Mapping):
        return {str(name): _cell_indices(adata, cells, str(name)) for name, cells in terminal.items()}
    return terminal


def _cell_indices(adata: AnnData, cells: Any, fate: str) -> Any:
    """Indices of cells from their names; masks and indices are returned as they are."""
    array = np.asarray(cells)
    if array.dtype.kind not in "OUT":
        return cells
    indices = adata.obs_names.get_indexer_for(array)
    if (indices < 0).any():
        raise ValueError(f"the fate {fate!r} has cells that adata has not: {quote_names(array[indices < 0])}.")
    return indices
