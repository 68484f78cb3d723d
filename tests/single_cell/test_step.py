"""The choice of the step."""

from __future__ import annotations

import numpy as np
import pytest

import ordiff as od
from ordiff import single_cell as sc

anndata = pytest.importorskip("anndata")
pd = pytest.importorskip("pandas")  # comes with anndata


def test_too_few_neighbours_are_told(rng):
    X = rng.normal(size=(300, 30))
    cells = anndata.AnnData(obs=pd.DataFrame({"l": X[:, 0]}, index=list(map(str, range(300)))), obsm={"X_pca": X})
    with pytest.warns(od.OrdiffWarning, match="n_neighbors"):
        op = sc.operator(cells, ordering="l", n_neighbors=15)
    assert np.median(op.staying()) < 0.25  # it moves all the same
    assert cells.uns["ordiff"]["eps"] > cells.uns["ordiff"]["eps_high"]
