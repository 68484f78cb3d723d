"""`SnapshotSDE`: what it learns against the truth, how it fails, and what scikit-learn expects of it."""

from __future__ import annotations

import json
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import ordiff as od
from ordiff import DesignedStates, SampleStates, Smoothness, SnapshotSDE, Solver, TimeDensity
from ordiff.learning import fit as stages
from ordiff.learning.optimise import PenalisedLikelihood

pytestmark = pytest.mark.filterwarnings("ignore:the process does not reach")


@pytest.fixture(scope="module")
def process():
    """A small OU data set with its times."""
    return od.datasets.ornstein_uhlenbeck(500, random_state=0)


@pytest.fixture(scope="module")
def fitted(process):
    return SnapshotSDE(process.start, noise="constant", smoothness=Smoothness(basis=30)).fit(process.X, process.times)


def errors(model, data) -> dict[str, float]:
    """As the paper measures: the ordering is 0 at the start."""
    l = data.ordering - data.ordering_at(np.atleast_2d(data.start))[0]
    rho = np.broadcast_to(data.noise, l.shape)
    return {
        "pearson": np.corrcoef(model.ordering_, l)[0, 1],
        "ordering": np.sqrt(np.mean((model.ordering_ - l) ** 2) / np.mean(l**2)),
        "mean": abs(model.ordering_.mean() / l.mean() - 1),
        "noise": np.sqrt(np.mean((model.noise_ - rho) ** 2) / np.mean(rho**2)),
        "noise_pearson": np.corrcoef(model.noise_, rho)[0, 1] if np.ptp(rho) > 0 else 1.0,
        "covered": np.mean(np.abs(model.ordering_ - l) <= 2 * model.ordering_std_),
        "noise_covered": np.mean(np.abs(np.log(model.noise_ / rho)) <= 2 * model.log_noise_std_),
    }


# ------------------------------------------------------------------------------------------- right numbers


@pytest.mark.slow
def test_nonlinear_with_times_known() -> None:
    """The paper's second problem with default settings; benchmarks/RESULTS.md has the median over other seeds."""
    data = od.datasets.nonlinear(random_state=1)
    model = SnapshotSDE(data.start).fit(data.X, data.times)
    found = errors(model, data)
    assert model.converged_
    assert found["pearson"] > 0.998
    assert found["ordering"] < 0.035
    assert found["mean"] < 0.03
    assert found["noise_pearson"] > 0.94
    assert found["noise"] < 0.11
    assert found["covered"] > 0.85
    assert found["noise_covered"] > 0.85


def test_ornstein_uhlenbeck_with_times_known(fitted, process) -> None:
    found = errors(fitted, process)
    assert found["pearson"] > 0.997
    assert found["noise"] < 0.08
    assert fitted.converged_
    assert np.sqrt(np.mean((fitted.drift_ - process.drift) ** 2) / np.mean(process.drift**2)) < 0.15


@pytest.mark.slow
def test_noise_that_changes_within_a_step() -> None:
    """dx = 2 dt + √(.25 + .15x) dW: the variance of a step is ερ² + ½ε²·2·.15, so the chain's noise is that of half a
    step ahead, 3.7% larger on average; what is read is not."""
    times = np.random.default_rng(1).uniform(0.3, 3, 8000)

    def noise(x):
        return np.sqrt(np.maximum(0.25 + 0.15 * x[:, 0], 0.05))

    X = od.datasets.simulate(lambda x: np.full_like(x, 2.0), noise, [0.0], times, random_state=1)
    model = SnapshotSDE([0.0], solver=Solver(eps=0.3)).fit(X, times)
    inside = (X[:, 0] > 0.5) & (X[:, 0] < 5)
    chain = model._process
    ahead = np.log(chain.dynamics.noise / chain.noise)[model.states_.nearest(X)]
    np.testing.assert_allclose(ahead[inside].mean(), 0.037, atol=0.02)
    assert abs(np.log(model.noise_ / noise(X))[inside].mean()) < 0.03


def test_values_on_few_samples(process) -> None:
    """The paper's first setting, so small that its curvature is known."""
    smoothness, solver = Smoothness(basis=None), Solver(max_iter=30)
    model = SnapshotSDE(process.start, states="samples", smoothness=smoothness, solver=solver)
    with warnings.catch_warnings(action="ignore", category=od.OrdiffWarning):
        model.fit(process.X[:300], process.times[:300])
    assert (model.smooth_ordering_, model.smooth_noise_) == (0.03, 12.5)
    assert np.corrcoef(model.ordering_, process.ordering[:300])[0, 1] > 0.95


def test_what_was_learned_is_what_the_operator_does(fitted) -> None:
    """Drift and noise read back from the operator, at states well inside."""
    moments = fitted.moments()
    drift = fitted.predict_drift(fitted.states_.points)
    degree = np.diff(fitted.graph_.indptr)
    inside = degree > np.quantile(degree, 0.5)
    off = np.linalg.norm(moments.drift - drift, axis=1)[inside]
    assert np.median(off) < 0.15 * np.median(np.linalg.norm(drift, axis=1))
    diffusion = np.trace(moments.diffusion, axis1=1, axis2=2)[inside] / 2
    assert np.median(diffusion) == pytest.approx(0.5 * fitted.noise_.mean() ** 2, rel=0.15)


@pytest.mark.slow
def test_times_unknown_and_the_profile() -> None:
    """Without times the interval for the noise is wide, and holds the truth (for 4 of the first 5 seeds, not for 2)."""
    data = od.datasets.ornstein_uhlenbeck(random_state=0)
    model = SnapshotSDE(data.start, noise="constant", times=TimeDensity(data.time_density, data.horizon))
    with warnings.catch_warnings(action="ignore", category=od.OrdiffWarning):  # how flat it is depends on the seed
        model.fit(data.X)
    assert errors(model, data)["pearson"] > 0.997
    profile = model.profile("noise")
    low, high = profile.interval
    assert low < np.sqrt(2) < high
    assert 0.1 < np.log(high / low) < 1.0
    assert profile.nats.min() > -0.5


@pytest.mark.slow
def test_a_cycle_by_a_local_ordering_with_learned_speed() -> None:
    data = od.datasets.limit_cycle(1200, random_state=0)

    def phase(points):
        return od.Ordering.cyclic(np.arctan2(points[:, 1], points[:, 0]), 2 * np.pi)

    model = SnapshotSDE(
        data.start, learn=("ordering", "speed", "noise"), noise="constant", ordering=phase,
        states=DesignedStates(spacing=0.12), smoothness=Smoothness(basis=100), solver=Solver(eps=0.08, n_starts=1),
    ).fit(data.X, data.times)  # fmt: skip
    around = np.stack([-data.X[:, 1], data.X[:, 0]], axis=1) / np.linalg.norm(data.X, axis=1)[:, None]
    learned, true = ((drift * around).sum(axis=1) for drift in (model.drift_, data.drift))
    assert model.speed_[1] == pytest.approx(4.0, rel=0.05)
    assert learned.mean() == pytest.approx(true.mean(), rel=0.05)
    assert np.corrcoef(learned, true)[0, 1] > 0.93
    assert model.noise_.mean() == pytest.approx(0.4, rel=0.2)


@pytest.mark.slow
def test_two_fates_of_a_double_well() -> None:
    data = od.datasets.double_well(1500, random_state=0)
    model = SnapshotSDE(data.start, noise="constant", smoothness=Smoothness(basis=60)).fit(data.X, data.times)
    assert errors(model, data)["noise"] < 0.1
    fates = model.fate_probabilities({"left": data.X[:, 0] < -1.9, "right": data.X[:, 0] > 1.9})
    np.testing.assert_allclose(fates.sum(axis=1), 1)
    assert np.sqrt(np.mean((fates[:, 1] - data.fate) ** 2)) < 0.06


@pytest.mark.slow
def test_a_curved_process_with_a_known_answer() -> None:
    data = od.datasets.sphere(random_state=0)
    model = SnapshotSDE(data.start).fit(data.X, data.times)
    found = errors(model, data)
    assert found["pearson"] > 0.99
    assert found["noise"] < 0.2


# ------------------------------------------------------------------------------------------- after the fit


def test_new_points_agree_with_the_samples(fitted, process) -> None:
    np.testing.assert_allclose(fitted.predict(process.X), fitted.ordering_)
    np.testing.assert_allclose(fitted.predict_noise(process.X), fitted.noise_)
    np.testing.assert_allclose(fitted.predict_drift(process.X), fitted.drift_)
    assert abs(fitted.predict(process.start[None, :])[0]) < 0.01 * np.ptp(fitted.ordering_)


def test_score_is_a_log_density_that_prefers_the_right_times(fitted, process) -> None:
    fresh = od.datasets.ornstein_uhlenbeck(300, random_state=9)
    right = fitted.score(fresh.X, fresh.times)
    wrong = fitted.score(fresh.X, np.random.default_rng(0).permutation(fresh.times))
    assert right > wrong + 0.3
    logs, weights = fitted.score_samples(fresh.X, fresh.times), np.arange(300.0)
    assert fitted.score(fresh.X, fresh.times, weights) == pytest.approx(weights @ logs / weights.sum())


def test_simulated_paths_have_the_law_of_the_process(fitted) -> None:
    """OU at its horizon: mean 5 e^{−Θt}, variance (1 − e^{−2Θt})/Θ."""
    times, paths = fitted.simulate(4000, 1.0, random_state=0)
    assert paths.shape == (4000, times.size, 2)
    theta = np.array([1.8, 1.2])
    np.testing.assert_allclose(paths[:, -1].mean(axis=0), 5 * np.exp(-theta * times[-1]), atol=0.2)
    np.testing.assert_allclose(paths[:, -1].var(axis=0), (1 - np.exp(-2 * theta * times[-1])) / theta, rtol=0.25)


def test_summary_is_plain(fitted) -> None:
    text = fitted.summary(length="mm", time="h")
    assert "mm/√h" in text
    assert "converged" in text
    assert "mm" not in fitted.summary(length="mm")  # a noise has no unit of length alone
    assert "unit" not in fitted.summary()


def test_bootstrap_agrees_with_the_curvature(fitted) -> None:
    laplace, boot = fitted.uncertainty(), fitted.uncertainty(n_boot=8)
    assert 0.4 < np.median(boot.ordering) / np.median(laplace.ordering) < 2.5


def test_save_and_load(fitted, process, tmp_path) -> None:
    path = tmp_path / "model.npz"
    fitted.save(path)
    again = od.load(path)
    for name in ("samples_", "ordering_", "noise_", "drift_", "ordering_std_", "eps_", "loss_", "converged_"):
        np.testing.assert_array_equal(getattr(again, name), getattr(fitted, name))
    np.testing.assert_array_equal(again.predict(process.X), fitted.predict(process.X))
    np.testing.assert_allclose(again.operator_.matrix.data, fitted.operator_.matrix.data)
    assert again.score(process.X, process.times) == pytest.approx(fitted.score(process.X, process.times))
    assert again.summary() == fitted.summary()
    assert again.interrupted_ is False
    assert again.get_params()["smoothness__basis"] == 30


def test_a_fitted_model_can_be_pickled(fitted, process) -> None:
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(process.X), fitted.predict(process.X))
    np.testing.assert_array_equal(again.operator_.backward(fitted.states_.volumes),
                                  fitted.operator_.backward(fitted.states_.volumes))  # fmt: skip


def test_damaged_and_foreign_files_say_so(fitted, tmp_path) -> None:
    path = tmp_path / "model.npz"
    fitted.save(path)
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(ValueError, match="damaged"):
        od.load(path)
    (tmp_path / "other.npz").write_text(json.dumps({"kind": "other"}))
    with pytest.raises(ValueError, match="not a model saved by ordiff"):
        od.load(tmp_path / "other.npz")
    np.savez(tmp_path / "arrays.npz", a=np.ones(3))
    with pytest.raises(ValueError, match="not a model saved by ordiff"):
        od.load(tmp_path / "arrays.npz")
    with pytest.raises(FileNotFoundError):
        od.load(tmp_path / "none.npz")


def test_an_outlier_does_not_stop_the_fit_and_is_named(process) -> None:
    X = process.X.copy()
    X[7] = [40.0, -40.0]
    with pytest.warns(od.OrdiffWarning, match=r"does not reach .*\(.*7.*\)"):
        model = SnapshotSDE(process.start, noise="constant", smoothness=Smoothness(basis=20)).fit(X, process.times)
    assert 7 in model.unreached_
    assert model.noise_[np.arange(500) != 7].mean() == pytest.approx(np.sqrt(2), rel=0.12)


def test_an_interrupt_returns_the_best_so_far(process, monkeypatch) -> None:
    original, calls = PenalisedLikelihood.value_and_gradient, []

    def interrupted(self, *arguments):
        calls.append(1)
        if len(calls) == 150:
            raise KeyboardInterrupt
        return original(self, *arguments)

    monkeypatch.setattr(PenalisedLikelihood, "value_and_gradient", interrupted)
    model = SnapshotSDE(process.start, noise="constant", smoothness=Smoothness(basis=30))
    with pytest.warns(od.OrdiffWarning, match="interrupted"):
        model.fit(process.X, process.times)
    assert not model.converged_
    assert model.interrupted_
    assert np.isfinite(model.ordering_).all()


# ------------------------------------------------------------------------------------------- wrong input


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"at": None}, r"give times=TimeDensity\("),
        ({"at": -1.0}, "must not be negative"),
        ({"at": np.nan}, "NaN"),
        ({"times": TimeDensity(horizon=0.5)}, "outside"),
        ({"times": "uniform"}, r"times must be a TimeDensity\(density, horizon\) or None"),
        ({"start": [900.0, 0.0]}, "far from all samples"),
        ({"start": None}, "start is None"),
        ({"start": [1, 2]}, "may be a point"),
        ({"solver": {"eps": 0.1}}, r"solver must be a Solver\(eps, max_iter, tol, n_starts\) or None"),
        ({"noise": -1.0, "learn": ("ordering",)}, "noise"),
        ({"learn": ("everything",)}, "learn must name"),
        ({"states": "grid"}, "states must be one of"),
        ({"states": 100}, "states must be"),
        ({"learn": ("noise",)}, "neither given"),
    ],
)
def test_wrong_input_says_what_is_wrong(process, change, message) -> None:
    times = process.times.copy()
    settings = {"start": process.start, "smoothness": Smoothness(basis=10)}
    if "at" in change:
        value = change["at"]
        times = None if value is None else np.where(np.arange(times.size) == 3, value, times)
    else:
        settings |= change
    with pytest.raises(ValueError, match=message):
        SnapshotSDE(**settings).fit(process.X, times)


def test_wrong_number_of_coordinates(fitted, process) -> None:
    with pytest.raises(ValueError, match="expecting 2 features"):
        fitted.score(process.X[:, :1], process.times)
    with pytest.raises(ValueError, match="expecting 2 features"):
        fitted.predict(process.X[:, :1])


def test_too_few_points() -> None:
    with pytest.raises(ValueError, match="minimum of 10"):
        SnapshotSDE(0).fit(np.zeros((3, 2)), np.ones(3))


# ------------------------------------------------------------------------------------------- scikit-learn


@pytest.mark.parametrize(
    ("group", "settings", "message"),
    [
        (Solver, {"eps": 0.0}, "eps"),
        (Solver, {"n_starts": 0}, "n_starts"),
        (Smoothness, {"noise": -1.0}, "noise must not be negative"),
        (Smoothness, {"speed": "fast"}, "speed must be one of"),
        (TimeDensity, {"density": "normal"}, "density must be one of"),
        (TimeDensity, {"density": 3.0}, "function of an array of times"),
        (DesignedStates, {"n_neighbors": 2}, "n_neighbors"),
        (SampleStates, {"density": "true"}, "density must be one of"),
    ],
)
def test_a_group_says_what_is_wrong_when_it_is_made(group, settings, message) -> None:
    with pytest.raises(ValueError, match=message):
        group(**settings)


def test_clone_and_parameters(fitted) -> None:
    other = clone(fitted)
    assert not hasattr(other, "ordering_")
    assert not hasattr(other, "samples_")
    assert other.get_params()["smoothness__basis"] == 30
    assert other.set_params(smoothness__basis=12).smoothness == Smoothness(basis=12)
    assert fitted.smoothness == Smoothness(basis=30)
    assert "smoothness=Smoothness(" in repr(fitted)
    assert "smoothness" in fitted._repr_html_()


def test_members_of_groups_by_their_names() -> None:
    """As scikit-learn does for nested estimators: all that get_params names, set_params takes."""
    model = SnapshotSDE(0)
    params = model.get_params()
    assert {"times__horizon", "smoothness__noise", "solver__eps", "states__spacing"} < set(params)
    assert set(model.get_params(deep=False)) == {name for name in params if "__" not in name}
    again = SnapshotSDE(1).set_params(**params).get_params()
    assert all(again[name] == params[name] for name in params if "__" in name)
    model.set_params(smoothness__noise=0.1, smoothness__basis=20, solver__eps=0.05, times__horizon=3.0)
    assert model.smoothness == Smoothness(noise=0.1, basis=20)
    assert (model.solver, model.times) == (Solver(eps=0.05), TimeDensity(horizon=3.0))
    model.set_params(solver=Solver(max_iter=9), solver__tol=1e-6)  # the group first, then its members
    assert clone(model).solver == Solver(max_iter=9, tol=1e-6)


def test_members_of_states_by_their_names() -> None:
    model = SnapshotSDE(0).set_params(states__spacing=0.2, states__max_states=500)
    assert model.states == DesignedStates(spacing=0.2, max_states=500)
    model.set_params(states="samples", states__alpha=0.5)
    assert model.states == SampleStates(alpha=0.5)
    assert "states__spacing" not in model.get_params()
    with pytest.raises(ValueError, match=r"no setting 'states__spacing' as it is; it has states__density"):
        model.set_params(states__spacing=0.2)
    X = np.random.default_rng(0).normal(size=(200, 2))
    model.set_params(states=od.States.design(X, 0.5, [0.0, 0.0]))
    assert not any(name.startswith("states__") for name in model.get_params())


def test_what_is_no_group_is_told_by_fit_alone(process) -> None:
    model = SnapshotSDE(process.start, solver="fast")
    assert "solver__eps" not in model.get_params()
    with pytest.raises(ValueError, match="solver must be a Solver"):
        model.fit(process.X, process.times)
    assert model.set_params(solver=None, solver__eps=0.1).solver == Solver(eps=0.1)
    for wrong in ("solver__speed", "noise__level", "basis"):
        with pytest.raises(ValueError, match=wrong):
            model.set_params(**{wrong: 1})
    with pytest.raises(ValueError, match="eps must be one positive number"):
        model.set_params(solver__eps=-1.0)


def test_in_a_pipeline(process) -> None:
    model = make_pipeline(StandardScaler(), SnapshotSDE(0, noise="constant", smoothness=Smoothness(basis=12)))
    X = np.concatenate([process.start[None, :], process.X])
    times = np.concatenate([[0.0], process.times])
    model.fit(X, times)
    assert np.isfinite(model.predict(X)).all()


GRID = {"smoothness__noise": [1e-3, 1e3]}


def small(start) -> SnapshotSDE:
    smoothness, solver = Smoothness(basis=15), Solver(eps=0.1, max_iter=60, n_starts=1)
    states = DesignedStates(spacing=0.5)
    return SnapshotSDE(start, drift="gradient", states=states, smoothness=smoothness, solver=solver)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ordiff.OrdiffWarning")
def test_grid_search_over_smoothness(process) -> None:
    """Times take the place of y. The true noise is constant: the smooth one predicts better."""
    search = GridSearchCV(small(process.start), GRID, cv=2, error_score="raise")
    search.fit(process.X, process.times, sample_weight=np.ones(500))
    rough, smooth = search.cv_results_["mean_test_score"]
    assert smooth > rough
    assert search.best_params_ == {"smoothness__noise": 1e3}
    assert search.best_estimator_.smooth_noise_ == 1e3
    assert search.best_estimator_.smoothness == Smoothness(noise=1e3, basis=15)


@pytest.mark.filterwarnings("ignore::ordiff.OrdiffWarning")
def test_grid_search_with_times_by_their_name(process) -> None:
    """Times as metadata, which scikit-learn routes to fit and score; the result is the same."""
    X, times = process.X[:300], process.times[:300]
    grid = {"smoothness__noise": [1e3], "states__spacing": [0.6], "solver__max_iter": [10]}  # no optimum is needed
    by_place = GridSearchCV(small(process.start), grid, cv=2, error_score="raise").fit(X, times)
    with config_context(enable_metadata_routing=True):
        model = small(process.start).set_fit_request(times=True).set_score_request(times=True)
        by_name = GridSearchCV(model, grid, cv=2, error_score="raise").fit(X, times=times)
    np.testing.assert_allclose(by_name.cv_results_["mean_test_score"], by_place.cv_results_["mean_test_score"])
    assert by_name.best_estimator_.states_.spacing == 0.6


# What scikit-learn's checks ask that a model of snapshots is not, and why.
EXPECTED = {
    "check_dtype_object": "its samples are 7-dimensional, more than states can be spread over",
    "check_fit_score_takes_y": "the second argument is named for what it is: times",
    "check_sample_weight_equivalence_on_dense_data": "passes y by that name",
    "check_sample_weight_equivalence_on_sparse_data": "passes y by that name",
    "check_methods_sample_order_invariance": "score_samples needs the times of the samples",
    "check_methods_subset_invariance": "score_samples needs the times of the samples",
    "check_pipeline_consistency": "its samples are clusters, and nothing was seen between them and the start",
    "check_estimators_pickle": "its samples are clusters, see test_a_fitted_model_can_be_pickled",
    "check_n_features_in_after_fitting": "passes y by that name; see test_wrong_number_of_coordinates",
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [SnapshotSDE(start=0, noise=1.0, smoothness=Smoothness(0.1, basis=4), solver=Solver(0.2, max_iter=4, n_starts=1))],
    expected_failed_checks=lambda _: EXPECTED,
)
def test_scikit_learn(estimator, check) -> None:
    check(estimator)


@pytest.fixture(scope="module")
def found_at_once(process):
    model = SnapshotSDE(process.start, noise="constant", smoothness=Smoothness(basis=15))
    return model.fit(process.X, process.times)


@pytest.mark.slow
@pytest.mark.parametrize("interrupted", [False, True])
def test_a_better_optimum_of_another_start_is_taken(process, found_at_once, monkeypatch, interrupted):
    """The first one is made a bad one; an interrupt on the way to the better leaves what there is."""
    whole, calls = stages.optimise, []

    def optimise(problem, a, evaluations, **settings):
        calls.append(settings.get("updates"))
        solution = whole(problem, a, evaluations, **settings)
        if calls[-1] == 3:  # the main search, on the final states
            bad = solution.a + 0.2 * np.sqrt(np.diag(solution.covariance))
            return replace(solution, a=bad, loss=problem.value_and_gradient(bad)[0])
        if interrupted and calls[-1] is None:
            return replace(solution, covariance=None, interrupted=True)
        return solution

    monkeypatch.setattr(stages, "optimise", optimise)
    model = SnapshotSDE(process.start, noise="constant", smoothness=Smoothness(basis=15))
    with pytest.warns(od.OrdiffWarning, match="not confirmed|interrupted"):
        model.fit(process.X, process.times)
    assert calls[-1] is None
    assert not model.converged_
    assert model.interrupted_ == interrupted
    assert found_at_once.converged_
    assert model.loss_ == pytest.approx(found_at_once.loss_, abs=1e-3)
    np.testing.assert_allclose(model.noise_, found_at_once.noise_, rtol=0.1 if interrupted else 0.02)


def test_quantities_without_scores_are_learned_and_confirmed(process):
    """The step, for one: without its curvature other starts have only the penalties to go by."""
    learn, smoothness = ("ordering", "noise", "eps"), Smoothness(basis=10)
    model = SnapshotSDE(process.start, learn=learn, noise="constant", smoothness=smoothness)
    with warnings.catch_warnings(action="ignore", category=od.OrdiffWarning):
        model.fit(process.X[:300], process.times[:300])
    assert np.isfinite(model.loss_)
    truth = process.ordering[:300]
    assert np.corrcoef(model.ordering_, truth)[0, 1] > 0.99


@pytest.mark.parametrize("horizon", [1.0, 12.0])
def test_a_start_within_the_data_and_a_steady_state(horizon):
    """From the bottom of its well OU only spreads: nothing moves outward, and after a while nothing moves at all."""
    rng = np.random.default_rng(1)
    t = rng.uniform(0, horizon, 400)
    X = rng.normal(size=(400, 2)) * np.sqrt((1 - np.exp(-2 * t)) / 2)[:, None]
    with warnings.catch_warnings(action="ignore", category=od.OrdiffWarning):
        model = od.SnapshotSDE(np.zeros(2), noise="constant", smoothness=Smoothness(basis=20)).fit(X, t)
    low, high = model.profile().interval
    assert low < 1 < high  # the truth is 1
    if horizon == 1:
        assert 0.8 < model.noise_.mean() < 1.3
        assert high / low < 2
    else:  # a steady state tells less: over six seeds the noise was .98 to 1.9
        assert 0.5 < model.noise_.mean() < 2.5
        assert high / low > 2


def test_times_of_other_points_may_be_known_or_not(tmp_path) -> None:
    """A model learned without times scores points with times, and without them as before; a file keeps no density."""
    data = od.datasets.ornstein_uhlenbeck(200, random_state=0)
    settings = {"noise": "constant", "smoothness": od.Smoothness(basis=6), "solver": od.Solver(n_starts=1)}
    density = od.TimeDensity(data.time_density, data.horizon)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", od.OrdiffWarning)
        model = od.SnapshotSDE(data.start, times=density, **settings).fit(data.X)
    assert model.score(data.X, data.times) > model.score(data.X)
    model.save(tmp_path / "model")
    again = od.load(tmp_path / "model")
    with pytest.raises(ValueError, match="density must be known"):
        again.score(data.X)
    again.set_params(times=density)
    assert again.score(data.X) == pytest.approx(model.score(data.X), rel=1e-12)
