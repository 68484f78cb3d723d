"""Cells for the tests of `ordiff.single_cell`, and the comparison of results in two AnnData objects."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from ordiff import single_cell as sc

anndata = pytest.importorskip("anndata")
pd = pytest.importorskip("pandas")  # comes with anndata


def strip(m=600, seed=0):
    """Cells on a strip, ordered along it, with an embedding that is the strip turned by 90°."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(m, 2)) * [4.0, 1.0]
    obs = pd.DataFrame({"pseudotime": np.exp(X[:, 0])}, index=[f"cell{i}" for i in range(m)])
    turned = np.stack([-X[:, 1], X[:, 0]], axis=1)
    return anndata.AnnData(rng.normal(size=(m, 3)).astype(np.float32), obs=obs, obsm={"X_pca": X, "X_umap": turned})


def interior(cells):
    """Whether a cell is away from the edges of the strip, (m,)."""
    return (np.abs(cells.obsm["X_pca"] - [2.0, 0.5]) < [1.2, 0.3]).all(axis=1)


def assert_same_results(a, b):
    """All slots of the result "ordiff" are the same in both, with their types."""
    for place in ("obs", "obsm", "obsp"):
        for key in filter(sc.Keys().own, getattr(a, place)):
            one, two = getattr(a, place)[key], getattr(b, place)[key]
            assert type(one) is type(two)
            assert one.dtype == two.dtype
            if sp.issparse(one):
                for part in ("data", "indices", "indptr"):
                    np.testing.assert_array_equal(getattr(one, part), getattr(two, part))
                    assert getattr(one, part).dtype == getattr(two, part).dtype
            else:
                np.testing.assert_array_equal(np.asarray(one), np.asarray(two))
    one, two = a.uns["ordiff"], b.uns["ordiff"]
    assert sorted(one) == sorted(two)
    for name, value in one.items():
        assert np.asarray(value).dtype == np.asarray(two[name]).dtype
        np.testing.assert_array_equal(value, two[name])
