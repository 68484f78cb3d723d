"""Learning from sampling times."""

from __future__ import annotations

import numpy as np
import pytest

import ordiff as od
from cell_data import assert_same_results
from ordiff import single_cell as sc
from ordiff.single_cell._fit import _operator_on_cells

anndata = pytest.importorskip("anndata")
pd = pytest.importorskip("pandas")  # comes with anndata


class Learned(od.SnapshotSDE):
    """Stands in for SnapshotSDE: remembers what it was given, and has learned a drift to the right."""

    def fit(self, X, times, names):
        self.X, self.times, self.names = X, times, names
        self.ordering_, self.noise_, self.eps_, self.converged_ = X[:, 0].copy(), np.full(len(X), 0.5), 0.1, True
        self.ordering_std_ = self.noise_std_ = np.full(len(X), 0.01)
        self.drift_, self.loss_, self.n_iter_ = np.tile([1.0, 0.0], (len(X), 1)), 1.5, 7
        self.rotation_, self.noise_tensor_ = np.zeros_like(X), None
        return self


@pytest.fixture
def learned(monkeypatch):
    monkeypatch.setattr("ordiff.model.SnapshotSDE", Learned)


@pytest.fixture
def staged(cells):
    cells.obs["stage"] = pd.Categorical([f"day {2 + int(x)}" for x in cells.obsm["X_pca"][:, 0]])
    return cells


@pytest.mark.usefixtures("learned")
def test_fit_reads_times_and_writes_fields(staged, tmp_path):
    model = sc.fit(staged, "stage", solver__max_iter=7, solver__eps=0.1)
    assert model.solver == od.Solver(max_iter=7, eps=0.1)
    assert sorted(set(model.times)) == [0, 1, 2, 3]
    assert model.names == ["PC1", "PC2"]
    np.testing.assert_array_equal(model.start, staged.obs["stage"] == "day 2")
    assert staged.uns["ordiff"]["start"] == f"{model.start.sum()} cells"
    np.testing.assert_array_equal(staged.obs["ordiff_ordering"], model.ordering_)
    np.testing.assert_array_equal(staged.obs["ordiff_noise_std"], model.noise_std_)
    np.testing.assert_allclose(staged.obsm["ordiff_velocity_umap"], np.tile([0.0, 1.0], (600, 1)), atol=1e-9)
    settings = staged.uns["ordiff"]
    assert (settings["time_unit"], settings["time_origin"], settings["solver__max_iter"]) == ("day", 2.0, 7)
    np.testing.assert_allclose(np.asarray(staged.obsp["ordiff_transitions"].sum(axis=1)).ravel(), 1.0)
    staged.write_h5ad(tmp_path / "cells.h5ad")
    assert_same_results(staged, anndata.read_h5ad(tmp_path / "cells.h5ad"))
    assert sc.stored_operator(staged).eps == settings["eps"]
    assert settings["model_eps"] == 0.1
    assert sc.fit(staged, "stage", time_origin=1.5).times.min() == 0.5
    sc.operator(staged, ordering="pseudotime")
    assert "ordiff_ordering_std" not in staged.obs


@pytest.mark.usefixtures("learned")
def test_options_are_written_as_strings_and_numbers(staged, tmp_path):
    options = {"learn": ("ordering", "noise"), "noise": "constant", "ordering": np.zeros(600), "random_state": 3}
    model = sc.fit(staged, "stage", **options, smoothness=od.Smoothness(basis=None), states__spacing=0.5)
    assert (model.noise, model.smoothness, model.states) == (
        "constant", od.Smoothness(basis=None), od.DesignedStates(spacing=0.5)
    )  # fmt: skip
    settings = staged.uns["ordiff"]
    assert all(isinstance(value, str | float | int) for value in settings.values())
    assert (settings["learn"], settings["noise"], settings["ordering"]) == ("ordering, noise", "constant", "given")
    assert (settings["smoothness__basis"], settings["smoothness__noise"]) == ("none", "auto")
    assert (settings["states__spacing"], settings["random_state"]) == (0.5, 3)
    assert not any(name.startswith("solver") for name in settings)  # what was not given
    staged.write_h5ad(tmp_path / "cells.h5ad")
    assert_same_results(staged, anndata.read_h5ad(tmp_path / "cells.h5ad"))
    with pytest.raises(TypeError, match="start"):
        sc.fit(staged, "stage", start=0)
    with pytest.raises(ValueError, match="max_iter"):
        sc.fit(staged, "stage", max_iter=7)


@pytest.mark.usefixtures("learned")
def test_roots(staged):
    X = staged.obsm["X_pca"]
    early = int(np.argmin(X[:, 0]))
    assert sc.fit(staged, "stage", root=early).start == early
    assert sc.fit(staged, "stage", root=f"cell{early}").start == early
    assert staged.uns["ordiff"]["start"] == f"cell cell{early}"
    np.testing.assert_array_equal(sc.fit(staged, "stage", root=[0.1, 0.2]).start, [0.1, 0.2])
    with pytest.raises(ValueError, match="the name of 0 cells"):
        sc.fit(staged, "stage", root="nobody")
    staged.uns["iroot"] = early
    assert sc.fit(staged, "stage").start == early
    staged.uns["iroot"] = int(np.argmax(X[:, 0]))
    with pytest.raises(ValueError, match="not a cell of the earliest sample"):
        sc.fit(staged, "stage")
    new = sc.fit(staged, "stage", root=early, copy=True, key_added="other")
    assert "other_transitions" in new.obsp
    assert "other" not in staged.uns


def test_fit_learns_an_ornstein_uhlenbeck_process():
    truth = od.datasets.ornstein_uhlenbeck(400, random_state=0)
    obs = pd.DataFrame({"t": truth.times}, index=[f"cell{i}" for i in range(400)])
    cells = anndata.AnnData(obs=obs, obsm={"X_pca": truth.X, "X_umap": truth.X[:, ::-1].copy()})
    model = sc.fit(cells, "t", root=truth.start, time_origin=0.0, noise="constant")
    assert isinstance(model, pytest.importorskip("ordiff.model").SnapshotSDE)
    assert 0.9 < cells.obs["ordiff_noise"].mean() / 2**0.5 < 1.1
    np.testing.assert_array_equal(cells.obsm["ordiff_velocity_pca"], model.drift_)
    turned = cells.obsm["ordiff_velocity_umap"][:, ::-1]
    assert np.median(np.linalg.norm(turned - model.drift_, axis=1) / np.linalg.norm(model.drift_, axis=1)) < 0.1
    # the chain on the cells does what was learned: its drift is that of the model
    chain = od.velocity(sc.stored_operator(cells))
    assert np.corrcoef(chain.ravel(), model.drift_.ravel())[0, 1] > 0.9


@pytest.mark.parametrize("direction", [False, True])
def test_what_turns_is_in_the_operator_on_cells(direction):
    """The operator moves cells by the gradient and the rotation; with a noise that has a direction, by the drift."""
    X = np.stack(np.meshgrid(np.linspace(-1, 1, 21), np.linspace(-1, 1, 21)), axis=-1).reshape(-1, 2)
    model = Learned(None).fit(X, np.zeros(len(X)))
    model.rotation_ = np.tile([0.0, 0.7], (len(X), 1))
    model.drift_ = model.drift_ + model.rotation_
    model.noise_tensor_ = np.diag([2.0, 0.5]) if direction else None
    op, _ = _operator_on_cells(model, X, None)
    inside = np.abs(X).max(axis=1) < 0.3
    np.testing.assert_allclose(od.velocity(op, "symmetric")[inside].mean(axis=0), [1.0, 0.7], rtol=0.2)
