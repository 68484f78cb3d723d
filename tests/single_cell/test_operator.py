"""The operator of cells: what is written, the drift, its options, and the messages of wrong ones."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import ordiff as od
from cell_data import interior, strip
from ordiff import single_cell as sc


def test_writes_what_it_returns(cells):
    op = sc.operator(cells, ordering="pseudotime")
    P = cells.obsp["ordiff_transitions"]
    assert isinstance(P, sp.csr_matrix)
    assert P.dtype == np.float64
    np.testing.assert_allclose(np.asarray(P.sum(axis=1)).ravel(), 1.0, atol=1e-12)
    np.testing.assert_array_equal(P.toarray(), op.matrix.toarray())
    assert P.data.flags.writeable  # the user's own, not the operator's memory
    np.testing.assert_array_equal(cells.obs["ordiff_ordering"], cells.obs["pseudotime"])
    np.testing.assert_allclose(cells.obsm["ordiff_velocity_pca"], od.velocity(op, "symmetric"))
    settings = cells.uns["ordiff"]
    assert settings["eps"] == op.eps
    assert settings["use_rep"] == "X_pca"
    assert settings["forward"] == 0.8
    assert settings["eps_low"] <= settings["eps"] <= settings["eps_high"]


def test_drift_goes_up_the_ordering_and_turns_with_the_embedding(cells):
    sc.operator(cells, ordering="pseudotime")
    inside = interior(cells)
    v, turned = cells.obsm["ordiff_velocity_pca"][inside], cells.obsm["ordiff_velocity_umap"][inside]
    assert (v[:, 0] > 0).all()
    assert np.median(np.abs(v[:, 1]) / v[:, 0]) < 0.25
    np.testing.assert_allclose(turned, np.stack([-v[:, 1], v[:, 0]], axis=1), atol=1e-9)


@pytest.mark.parametrize("forward", [0.65, 0.8, 0.9])
@pytest.mark.parametrize("stretch", [np.exp, np.log1p, lambda x: 1000 * x**3])
def test_forward_is_the_probability_of_going_up_in_any_units(cells, forward, stretch):
    l = stretch(cells.obsm["X_pca"][:, 0])
    op = sc.operator(cells, ordering=l, forward=forward)
    P = op.matrix.tocoo()
    up = np.bincount(P.row, P.data * (l[P.col] > l[P.row]), minlength=len(l)) / (1 - op.staying())
    assert abs(np.median(up[interior(cells)]) - forward) < 0.06
    assert cells.uns["ordiff"]["forward_found"] == pytest.approx(np.median(up))


def test_forward_below_half_goes_down(cells):
    sc.operator(cells, ordering="pseudotime", forward=0.2)
    assert (cells.obsm["ordiff_velocity_pca"][interior(cells), 0] < 0).all()


def test_speed_in_units_of_the_representation(cells):
    sc.operator(cells, ordering="pseudotime", speed=1.5, noise=0.5, n_neighbors=300)
    v = cells.obsm["ordiff_velocity_pca"][interior(cells)]
    assert abs(np.median(v[:, 0]) - 1.5) < 0.25
    assert cells.uns["ordiff"]["speed"] == 1.5
    assert "forward" not in cells.uns["ordiff"]


def test_no_ordering_is_plain_diffusion(cells):
    op = sc.operator(cells, ordering=None)
    np.testing.assert_array_equal(op.matrix.toarray(), op.undirected().matrix.toarray())
    assert cells.uns["ordiff"]["ordering"] == "none"
    assert "ordiff_ordering" not in cells.obs


def test_a_ready_ordering_is_taken_as_it_is(cells):
    ready = od.Ordering(cells.obsm["X_pca"][:, 0], speed=0.7)
    op = sc.operator(cells, ordering=ready, noise=0.5, eps=0.05, density=None)
    graph = od.NeighborGraph.build(cells.obsm["X_pca"], k=100)
    np.testing.assert_array_equal(
        op.matrix.toarray(), od.Kernel(ready, noise=0.5).operator(graph, 0.05).matrix.toarray()
    )


def test_same_seed_same_bits(cells):
    one, two = (sc.operator(strip(), ordering="pseudotime").matrix for _ in range(2))
    np.testing.assert_array_equal(one.data, two.data)


def test_missing_pseudotime_says_how_many_and_which(cells):
    cells.obs.loc[cells.obs_names[[7, 30]], "pseudotime"] = np.nan
    with pytest.raises(ValueError, match=r"missing or infinite for 2 of 600 cells \(cell7, cell30\)"):
        sc.operator(cells, ordering="pseudotime")
    cells.obs["pseudotime"] = np.inf
    with pytest.raises(ValueError, match=r"600 of 600 cells .*, …\)\. Diffusion pseudotime is infinite where"):
        sc.operator(cells, ordering="pseudotime")
    assert "ordiff" not in cells.uns


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"ordering": "dpt_pseudotime"}, r"Run scanpy.tl.dpt.*'pseudotime'"),
        ({"ordering": np.ones(5)}, r"one value per cell, shape \(600,\); got shape \(5,\)"),
        ({"use_rep": "X_scvi"}, "no 'X_scvi', it has 'X_pca', 'X_umap'"),
        ({"n_pcs": 7}, "n_pcs must be at most 2"),
        ({"neighbors_key": "neighbors"}, "run scanpy.pp.neighbors"),
        ({"neighbors_key": "neighbors", "n_neighbors": 15}, "not both"),
        ({"forward": 1.5}, "forward must be between 0 and 1"),
        ({"noise": -1.0}, "noise must be positive"),
        ({"noise": "rho"}, "obs has no 'rho'"),
        ({"eps": "best"}, "eps must be one of 'auto'"),
        ({"key_added": "a/b"}, "without '/'"),
        ({"ordering": sc.Velocity()}, "no velocity 'velocity'"),
        ({"ordering": sc.Lineages("far")}, "no distances 'far'"),
        ({"ordering": sc.Cycle()}, "score_genes_cell_cycle"),
    ],
)
def test_errors_say_what_to_do(cells, options, says):
    with pytest.raises(ValueError, match=says):
        sc.operator(cells, **{"ordering": "pseudotime", **options})
    assert "ordiff" not in cells.uns
