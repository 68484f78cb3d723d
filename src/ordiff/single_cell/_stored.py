"""The verb `stored_operator`: the operator read back from its slots."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from ordiff.graph import NeighborGraph
from ordiff.operator import MarkovOperator
from ordiff.single_cell._key import Keys
from ordiff.single_cell._read import check_anndata, representation

if TYPE_CHECKING:
    from anndata import AnnData


def stored_operator(adata: AnnData, key: str = "ordiff") -> MarkovOperator:
    """The operator that `operator` wrote under this key: steps, generator and passage times as before.

    It knows its cells, step and density, but not the kernel it came from: `velocity` of the kind "displacement" only,
    the others are in ``obsm``.
    """
    keys = Keys(key)
    check_anndata(adata)
    settings = adata.uns.get(keys.settings)
    if settings is None or keys.transitions not in adata.obsp:
        raise ValueError(
            f"adata has no result {key!r}: there is no uns[{keys.settings!r}] with obsp[{keys.transitions!r}]. "
            f"Run ordiff.single_cell.operator(adata, ..., key_added={key!r}) first."
        )
    P = sp.csr_array(adata.obsp[keys.transitions])
    P.sort_indices()
    rows = np.repeat(np.arange(P.shape[0]), np.diff(P.indptr))
    total = np.asarray(P.sum(axis=1)).ravel()
    if (rows == P.indices).sum() < P.shape[0] or not np.allclose(total, 1.0, rtol=0, atol=1e-6):
        raise ValueError(
            f"obsp[{keys.transitions!r}] is no longer the matrix that was written: its rows do not sum to 1, or lack "
            "their diagonal. After taking a subset of cells run ordiff.single_cell.operator again."
        )
    X = representation(adata, str(settings["use_rep"]), int(settings["n_pcs"]))
    lengths = np.linalg.norm(X[P.indices] - X[rows], axis=1)
    graph = NeighborGraph.from_distances(sp.csr_array((lengths, P.indices, P.indptr), shape=P.shape), X=X)
    q = np.asarray(adata.obs[keys.density], dtype=np.float64)
    return MarkovOperator(graph, np.asarray(P.data, dtype=np.float64), float(settings["eps"]), q)
