"""With scanpy and CellRank, on the data sets that scanpy brings; `make test-single-cell` runs it."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what they warn of when imported is theirs
    scanpy = pytest.importorskip("scanpy", reason="run by make test-single-cell")
    cellrank = pytest.importorskip("cellrank", reason="run by make test-single-cell")

import ordiff as od
from ordiff import single_cell as sc

# Warnings of ours stay errors; scanpy's and CellRank's about their own dependencies are not ours to mend.
pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.filterwarnings("error::ordiff.OrdiffWarning"),
    pytest.mark.filterwarnings("error::anndata.ImplicitModificationWarning"),
]


@pytest.fixture(scope="module")
def krumsiek():
    """Myeloid differentiation, simulated: 640 cells, a progenitor and four fates."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adata = scanpy.datasets.krumsiek11()
        del adata.uns["highlights"]  # its keys are numbers, which no file takes
        adata.obs_names_make_unique()
        adata.uns["iroot"] = 0
        scanpy.pp.pca(adata, n_comps=8, random_state=0)
        scanpy.pp.neighbors(adata, n_neighbors=30, use_rep="X_pca", random_state=0)
        scanpy.tl.diffmap(adata)
        scanpy.tl.dpt(adata)
        scanpy.tl.umap(adata, random_state=0)
    return adata


@pytest.fixture(scope="module")
def pbmc():
    """700 blood cells, 50 components."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adata = scanpy.datasets.pbmc68k_reduced()
        adata.uns["iroot"] = int(np.argmax(adata.obs["bulk_labels"] == "CD34+"))
        scanpy.pp.neighbors(adata, n_neighbors=15, n_pcs=20, random_state=0)
        scanpy.tl.diffmap(adata)
        scanpy.tl.dpt(adata)
    return adata


def goes_up(op, l):
    P = op.matrix.tocoo()
    up = np.bincount(P.row, P.data * (l[P.col] > l[P.row]), minlength=len(l))
    return up / (1 - op.staying())


@pytest.mark.parametrize("neighbors_key", [None, "neighbors"])
def test_defaults_on_krumsiek11(krumsiek, neighbors_key):
    adata = krumsiek.copy()
    op = sc.operator(adata, neighbors_key=neighbors_key)
    up = goes_up(op, adata.obs["dpt_pseudotime"].to_numpy())
    assert 0.7 < np.median(up) < 0.92
    assert np.quantile(od.tuning.p_max(op).rows, 0.95) < 0.6
    assert adata.obsm["ordiff_velocity_umap"].shape == (640, 2)
    later = op.forward(np.eye(640)[0], steps=300) @ adata.obs["dpt_pseudotime"].to_numpy()
    assert later > 0.6  # the progenitor differentiates


def test_toggleswitch():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adata = scanpy.datasets.toggleswitch()
        adata.obs_names_make_unique()
        adata.uns["iroot"] = 0
        scanpy.pp.neighbors(adata, n_neighbors=30, use_rep="X", random_state=0)
        scanpy.tl.diffmap(adata)
        scanpy.tl.dpt(adata)
    op = sc.operator(adata, use_rep="X")
    mass = op.forward(np.eye(adata.n_obs)[0], steps=300)
    end = np.asarray(adata.X)[np.argsort(-mass)[:20]]
    assert np.abs(end[:, 0] - end[:, 1]).mean() > 0.5  # one of the two genes has won


def test_too_many_components_for_the_cells_are_told_and_move_forward(pbmc):
    adata = pbmc.copy()
    with pytest.warns(od.OrdiffWarning, match="n_neighbors"):
        op = sc.operator(adata, neighbors_key="neighbors")
    assert adata.uns["ordiff"]["n_pcs"] == 20  # as the neighbours were found
    assert np.median(op.staying()) < 0.3
    assert 0.7 < np.median(goes_up(op, adata.obs["dpt_pseudotime"].to_numpy())) < 0.95


def test_cell_cycle_scores(pbmc):
    adata = pbmc.copy()
    op = sc.operator(adata, ordering=sc.Cycle(), n_pcs=5)
    assert op.matrix.shape == (700, 700)
    assert (adata.obs["ordiff_ordering"] >= 0).all()
    with pytest.raises(ValueError, match="are no phase"):
        sc.operator(adata, ordering=sc.Cycle("phase"), n_pcs=5)


def test_scvelos_names(krumsiek):
    """scvelo.pl.velocity_embedding(adata, vkey="ordiff_velocity", basis="umap") finds its arrows."""
    adata = krumsiek.copy()
    sc.operator(adata)
    assert "ordiff_velocity_umap" in adata.obsm


# ----------------------------------------------------------------------------------------------------- CellRank


def test_cellrank_reads_the_slot(krumsiek):
    adata = krumsiek.copy()
    op = sc.operator(adata)
    kernel = cellrank.kernels.PrecomputedKernel("ordiff_transitions", adata=adata)
    np.testing.assert_array_equal(kernel.transition_matrix.toarray(), op.matrix.toarray())


def test_kernel_is_the_operator_and_writes_nothing(krumsiek):
    adata = krumsiek.copy()
    kernel = sc.OrdiffKernel(adata).compute_transition_matrix(forward=0.7)
    assert "ordiff" not in adata.uns
    assert kernel.params["forward"] == 0.7
    op = sc.operator(adata, forward=0.7)
    assert isinstance(kernel.transition_matrix, sp.csr_matrix)
    np.testing.assert_array_equal(kernel.transition_matrix.toarray(), op.matrix.toarray())
    assert sc.OrdiffKernel is sc.OrdiffKernel
    with pytest.raises(TypeError, match="no_such_option"):
        kernel.compute_transition_matrix(no_such_option=1)


def test_kernel_algebra(krumsiek):
    adata = krumsiek.copy()
    ours = sc.OrdiffKernel(adata).compute_transition_matrix()
    theirs = cellrank.kernels.ConnectivityKernel(adata).compute_transition_matrix()
    mixed = (0.8 * ours + 0.2 * theirs).compute_transition_matrix()
    expected = 0.8 * ours.transition_matrix + 0.2 * theirs.transition_matrix
    np.testing.assert_allclose(mixed.transition_matrix.toarray(), expected.toarray(), atol=1e-12)
    product = (ours * theirs).compute_transition_matrix().transition_matrix
    np.testing.assert_allclose(np.asarray(product.sum(axis=1)).ravel(), 1.0)
    directed = cellrank.kernels.PseudotimeKernel(adata, time_key="dpt_pseudotime")
    directed.compute_transition_matrix(show_progress_bar=False)
    both = (ours + directed).compute_transition_matrix()
    assert both.backward is False


def test_kernel_is_projected_on_an_embedding(krumsiek):
    """Alone and in a sum, without scanpy's neighbours; later cells are ahead."""
    adata = krumsiek.copy()
    kernel = sc.OrdiffKernel(adata).compute_transition_matrix()
    pattern = kernel.connectivities
    assert pattern.diagonal().max() == 0
    assert pattern.nnz == kernel.transition_matrix.nnz - adata.n_obs
    assert kernel.plot_projection(basis="umap", show=False) is None
    moved = adata.obsm["T_fwd_umap"]
    late, Y, near = (
        adata.obs["dpt_pseudotime"].to_numpy(),
        adata.obsm["X_umap"],
        adata.obsp["connectivities"].tolil().rows,
    )
    ahead = np.array(
        [Y[[j for j in row if late[j] >= late[i]] or [i]].mean(axis=0) - Y[i] for i, row in enumerate(near)]
    )
    assert ((moved * ahead).sum(axis=1) > 0).mean() > 0.6  # CellRank's PseudotimeKernel has .46 here
    theirs = cellrank.kernels.ConnectivityKernel(adata).compute_transition_matrix()
    (0.9 * kernel + 0.1 * theirs).plot_projection(basis="umap", key_added="mixed", show=False)
    assert "mixed_umap" in adata.obsm


def test_kernel_copies_and_pickles(krumsiek, tmp_path):
    kernel = sc.OrdiffKernel(krumsiek.copy()).compute_transition_matrix()
    for other in (kernel.copy(), kernel.copy(deep=True), pickle.loads(pickle.dumps(kernel))):
        assert type(other) is sc.OrdiffKernel
        np.testing.assert_array_equal(other.transition_matrix.toarray(), kernel.transition_matrix.toarray())
        assert other.params == kernel.params
    kernel.write_to_adata()
    kernel.adata.write_h5ad(tmp_path / "cells.h5ad")
    back = sc.OrdiffKernel.from_adata(scanpy.read_h5ad(tmp_path / "cells.h5ad"), key="T_fwd")
    np.testing.assert_array_equal(back.transition_matrix.toarray(), kernel.transition_matrix.toarray())


def test_kernel_goes_forward_only(krumsiek):
    with pytest.raises(ValueError, match="forward only"):
        sc.OrdiffKernel(krumsiek, backward=True)
    kernel = sc.OrdiffKernel(krumsiek).compute_transition_matrix()
    assert kernel.backward is None
    with pytest.raises(ValueError, match="forward only"):
        _ = ~kernel


@pytest.mark.parametrize("mixed", [False, True])
def test_fates_of_krumsiek11(krumsiek, mixed):
    """The four simulated fates are found by GPCCA; in the progenitor all are open, at the ends one."""
    adata = krumsiek.copy()
    kernel = sc.OrdiffKernel(adata).compute_transition_matrix(forward=0.9)
    if mixed:
        kernel = 0.9 * kernel + 0.1 * cellrank.kernels.ConnectivityKernel(adata).compute_transition_matrix()
    estimator = cellrank.estimators.GPCCA(kernel)
    estimator.compute_schur(n_components=12, method="brandts")
    fates = {
        name: adata.obs_names[(adata.obs["cell_type"] == name).to_numpy()][-10:].tolist()
        for name in ("Mo", "Ery", "Mk", "Neu")
    }
    estimator.set_terminal_states(fates)
    estimator.compute_fate_probabilities(use_petsc=False, solver="direct", show_progress_bar=False)
    probabilities = np.asarray(estimator.fate_probabilities)
    names = list(estimator.fate_probabilities.names)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-6)
    for name in fates:
        own = probabilities[(adata.obs["cell_type"] == name).to_numpy(), names.index(name)]
        late = adata.obs["dpt_pseudotime"][adata.obs["cell_type"] == name].to_numpy() > 0.7
        assert np.median(own[late] if late.any() else own) > 0.7, name
    root = adata.obs["dpt_pseudotime"].to_numpy() < 0.05
    assert probabilities[root].max(axis=1).mean() < 0.8


def test_macrostates(krumsiek):
    adata = krumsiek.copy()
    estimator = cellrank.estimators.GPCCA(sc.OrdiffKernel(adata).compute_transition_matrix())
    estimator.compute_schur(n_components=12, method="brandts")
    estimator.compute_macrostates(n_states=4, cluster_key="cell_type")
    found = {str(name).split("_")[0] for name in estimator.macrostates.cat.categories}
    assert len(found & {"Mo", "Ery", "Mk", "Neu"}) >= 3
