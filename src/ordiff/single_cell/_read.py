"""Checked reading of AnnData: the object itself, its representation and embeddings, and the arrays of an h5ad file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from ordiff import _validation
from ordiff._signals import deferred_interrupts
from ordiff._validation import Array
from ordiff.single_cell._key import EMBEDDINGS, GENES, PCA

if TYPE_CHECKING:
    from anndata import AnnData


def read_arrays(path: Any) -> tuple[dict[str, Any], Array | None, list[str]]:
    """What an h5ad file holds, as arrays: obs columns and obsm by their names, X (dense), and the names of genes."""
    try:
        with deferred_interrupts():
            from anndata import read_h5ad
    except ImportError:
        raise _validation.missing_extra("anndata", "single-cell", "reading h5ad") from None
    data = read_h5ad(path)
    arrays: dict[str, Any] = {name: np.asarray(data.obs[name]) for name in data.obs}
    arrays |= {name: np.asarray(data.obsm[name]) for name in data.obsm}
    X = None if data.X is None else data.X.toarray() if hasattr(data.X, "toarray") else np.asarray(data.X)
    return arrays, X, [str(name) for name in data.var_names]


def check_anndata(adata: Any) -> Any:
    """The AnnData object, in memory or backed by a file."""
    try:
        with deferred_interrupts():
            from anndata import AnnData
    except ImportError:
        raise _validation.missing_extra("anndata", "single-cell", "ordiff.single_cell") from None
    if not isinstance(adata, AnnData):
        hint = ' Give one modality, for instance mdata["rna"].' if type(adata).__name__ == "MuData" else ""
        raise ValueError(f"adata must be an AnnData object; got {type(adata).__name__}.{hint}")
    if hasattr(adata.obs, "to_memory"):
        raise ValueError(
            "adata was read lazily, and its obs must be in memory: adata = adata.to_memory(); or, if X is to stay on "
            "disk, adata = anndata.AnnData(adata.X, obs=adata.obs.to_memory(), obsm=dict(adata.obsm))."
        )
    return adata


def quote_names(names: Iterable[Any]) -> str:
    """The names in quotes, the first twelve of them, for a message."""
    quoted = [repr(str(name)) for name in names]
    return ", ".join(quoted[:12]) + (", …" if len(quoted) > 12 else "") or "nothing"


def dense_array(values: Any, name: str) -> Array:
    """Values (m, n), finite; those of a file or a Dask array are read, and a sparse matrix is refused."""
    if hasattr(values, "to_numpy"):  # a DataFrame
        values = values.to_numpy()
    # the second is the sparse matrix of a backed file, the third a Dask array of sparse chunks
    if sp.issparse(values) or hasattr(values, "to_memory") or sp.issparse(getattr(values, "_meta", None)):
        raise ValueError(
            f"{name} is sparse, and would fill memory as a dense array: use principal components (scanpy.pp.pca), or "
            'store what you want dense, adata.obsm["X_dense"] = adata.X.toarray(), and use_rep="X_dense".'
        )
    return _validation.points(np.asarray(values), name)


def finite_values(adata: AnnData, values: Array, name: str) -> Array:
    """The values (m,), if every cell has one; the error says how many cells have none, and which."""
    bad = ~np.isfinite(values)
    if bad.any():
        which = ", ".join(map(str, adata.obs_names[bad][:5])) + (", …" if bad.sum() > 5 else "")
        unreached = " Diffusion pseudotime is infinite where the graph does not lead to the root."
        unreached = unreached if np.isposinf(values).any() else ""
        raise ValueError(
            f"{name} is missing or infinite for {bad.sum()} of {len(values)} cells ({which}).{unreached} Leave these "
            "cells out, adata = adata[np.isfinite(...)].copy(), or fill in their values."
        )
    return values


def representation(adata: AnnData, use_rep: str, n_pcs: int | None) -> Array:
    """The coordinates of the cells, (m, n): ``obsm[use_rep]``, or ``X``, and the first ``n_pcs`` of its columns.

    Nothing else is read: of a backed file or of Dask arrays X stays where it is unless it is asked for, and then only
    these columns of it are read.
    """
    if use_rep == GENES:
        if adata.X is None:
            raise ValueError("adata has no X: name a representation in obsm, use_rep=...")
        values, name = adata.X, "X"
    elif use_rep in adata.obsm:
        values, name = adata.obsm[use_rep], f"obsm[{use_rep!r}]"
    else:
        run = " Run scanpy.pp.pca(adata) first, or" if use_rep == PCA else " Choose"
        raise ValueError(
            f'adata.obsm has no {use_rep!r}, it has {quote_names(adata.obsm)}.{run} use_rep="X" for the genes.'
        )
    if n_pcs is None:
        return dense_array(values, name)
    n = _validation.count(n_pcs, "n_pcs", 1, values.shape[1], f"There are {values.shape[1]}.")
    some = values.iloc[:, :n] if hasattr(values, "iloc") else values[:, :n]
    return np.ascontiguousarray(dense_array(some, name))


def embeddings(adata: AnnData, embedding: Any) -> dict[str, Array]:
    """The embeddings to project the drift to, by their ``obsm`` keys: "auto", one name or several, None for none."""
    return {key: dense_array(adata.obsm[key], f"obsm[{key!r}]") for key in _embedding_keys(adata, embedding)}


def _embedding_keys(adata: AnnData, embedding: Any) -> list[str]:
    """The keys; "umap" stands for "X_umap" too, and "auto" for the first of the usual ones."""
    if embedding is None:
        return []
    if isinstance(embedding, str) and embedding == "auto":
        return [name for name in EMBEDDINGS if name in adata.obsm][:1]
    keys = []
    for name in [embedding] if isinstance(embedding, str) else embedding:
        key = name if name in adata.obsm else f"X_{name}"
        if key not in adata.obsm:
            raise ValueError(f"adata.obsm has no embedding {name!r}, it has {quote_names(adata.obsm)}.")
        keys.append(key)
    return keys
