"""Groups of settings: what each refuses, and how an estimator hands them to scikit-learn."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import ordiff as od
from ordiff.learning.settings import (
    GROUPS,
    DesignedStates,
    FitSettings,
    SampleStates,
    Smoothness,
    Solver,
    TimeDensity,
    group_of,
)

# A group, one of its parameters, and values that it must not have.
REFUSED = [
    (DesignedStates, "spacing", (0.0, -1.0, np.inf, "fine", None)),
    (DesignedStates, "dimension", (0, 1.5, "auto")),
    (DesignedStates, "n_neighbors", (4, 10.0, "many", None)),
    (DesignedStates, "max_states", (99, "auto", True)),
    (SampleStates, "density", ("kde",)),
    (SampleStates, "dimension", (0, 1.5)),
    (SampleStates, "n_neighbors", (4, None)),
    (SampleStates, "alpha", (np.nan, "auto", None)),
    (TimeDensity, "density", ("normal", 1.0, np.ones(3))),
    (TimeDensity, "horizon", (0.0, -2.0, np.inf, "auto")),
    (Smoothness, "ordering", (-1.0, np.nan, "none", None)),
    (Smoothness, "noise", (-1e-9, np.inf, "none", None)),
    (Smoothness, "rotation", (-1.0, np.nan, "none", None)),
    (Smoothness, "basis", (1, 30.0, "all", True)),
    (Smoothness, "speed", ("fast", None, 1.0)),
    (Smoothness, "action", (-0.1, "auto", None)),
    (Solver, "eps", (0.0, -0.1, np.nan, "small", None)),
    (Solver, "max_iter", (0, 10.0, "auto")),
    (Solver, "tol", (0.0, -1.0, None)),
    (Solver, "n_starts", (0, 2.0)),
]
TAKEN = [
    (DesignedStates, {"spacing": 0.1, "dimension": 2, "n_neighbors": 5, "max_states": 100}),
    (DesignedStates, {"spacing": np.float32(0.1), "dimension": np.int64(2)}),
    (SampleStates, {"density": "knn", "n_neighbors": 30, "alpha": 0.0}),
    (SampleStates, {"density": np.ones(10)}),
    (TimeDensity, {"density": "uniform", "horizon": 1}),
    (TimeDensity, {"density": np.ones_like, "horizon": 2.5}),
    (Smoothness, {"ordering": 0, "noise": 0.1, "basis": None, "speed": "field", "action": 2.0}),
    (Smoothness, {"basis": np.int32(2)}),
    (Solver, {"eps": 0.01, "max_iter": 1, "tol": 1e-12, "n_starts": 1}),
]


@pytest.mark.parametrize(
    ("group", "name", "value"),
    [(group, name, value) for group, name, values in REFUSED for value in values],
    ids=lambda x: x.__name__ if isinstance(x, type) else str(x),
)
def test_bad_values_are_refused_by_name(group, name, value):
    with pytest.raises(ValueError, match=rf"^{name} (must|is)"):
        group(**{name: value})


@pytest.mark.parametrize(("group", "options"), TAKEN, ids=lambda x: x.__name__ if isinstance(x, type) else "")
def test_good_values_are_kept(group, options):
    made = group(**options)
    for name, value in options.items():
        assert getattr(made, name) is value
    with pytest.raises(FrozenInstanceError):
        setattr(made, next(iter(options)), None)


def test_every_parameter_is_tried():
    known = {(group, name) for group, name, _ in REFUSED}
    for group in (DesignedStates, SampleStates, TimeDensity, Smoothness, Solver):
        assert {name for kind, name in known if kind is group} == set(group.__dataclass_fields__)


def test_a_density_of_times_ends_at_the_horizon():
    t = np.array([0.0, 1.0, 2.0, 2.5])
    np.testing.assert_array_equal(TimeDensity("uniform", 2.0).at(t), [1, 1, 1, 0])
    asked = []

    def density(times):
        asked.append(times)
        return 1 + times

    np.testing.assert_array_equal(TimeDensity(density, 2.0).at(t), [1, 2, 3, 0])
    assert asked[0].max() == 2.0  # it is not asked beyond


# ------------------------------------------------------------------------------------- all settings of one fit


def settings(**options) -> FitSettings:
    return FitSettings.of(od.SnapshotSDE([0.0], **options))


def test_none_stands_for_the_defaults():
    made = settings()
    assert (made.times, made.smoothness, made.solver) == (TimeDensity(), Smoothness(), Solver())
    assert made.states == DesignedStates()
    assert made.learn == {"ordering", "noise"}
    assert settings(states="samples").states == SampleStates()
    for name in GROUPS:
        with pytest.raises(ValueError, match=rf"^{name} must be a {GROUPS[name].__name__}\("):
            settings(**{name: 0.1})
    assert group_of(Solver(tol=0.1), "solver").tol == 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learn": ()}, "learn must name one or more of ordering, noise"),
        ({"learn": "drift"}, "learn must name .* got 'drift'"),
        ({"learn": 3}, "learn must name"),
        ({"learn": "ordering"}, "the noise is neither given .* nor learned"),
        ({"noise": "flat"}, "noise must be one of 'field', 'constant'"),
        ({"noise": 0.0}, "noise must be one positive number"),
        ({"noise": 1.4, "learn": "noise"}, "the noise is given as 1.4: nothing is left to learn"),
        ({"states": "grid"}, "states must be one of 'designed', 'samples'"),
        ({"states": 400}, 'states must be "designed", "samples", DesignedStates'),
    ],
)
def test_settings_that_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        settings(**options)


def test_a_given_noise_is_not_learned():
    made = settings(noise=1.4)
    assert (made.noise, made.learn) == (1.4, {"ordering"})


def test_what_the_states_say():
    designed = settings(states=DesignedStates(spacing=0.2, dimension=3, n_neighbors=9, max_states=300))
    assert (designed.spacing, designed.dimension, designed.n_neighbors, designed.max_states) == (0.2, 3, 9, 300)
    assert designed.alpha == 1.0
    samples = settings(states=SampleStates(alpha=0.5, dimension=2))
    assert (samples.spacing, samples.dimension, samples.alpha) == ("auto", 2, 0.5)
    assert samples.max_states == DesignedStates().max_states
    X = np.random.default_rng(0).uniform(size=(200, 2))
    own = settings(states=od.States.design(X, 0.2, X[:1]))
    assert (own.spacing, own.n_neighbors, own.dimension) == ("auto", "auto", 2)


def test_a_first_look_is_cheaper_and_on_designed_states():
    made = settings(
        states=SampleStates(dimension=2, n_neighbors=20), noise="constant", learn=("noise", "speed"),
        ordering=np.ones(3), smoothness=Smoothness(noise=1.0, action=0.1), solver=Solver(tol=1e-6),
    )  # fmt: skip
    coarse = made.coarse(25)
    assert (coarse.smoothness.basis, coarse.solver.n_starts, coarse.solver.max_iter) == (25, 1, 60)
    assert (coarse.smoothness.noise, coarse.solver.tol) == (1.0, 1e-6)
    look = made.on_designed_states()
    assert look.states == DesignedStates(dimension=2, n_neighbors=20)
    assert (look.learn, look.noise, look.ordering) == ({"ordering", "noise"}, "field", None)
    assert (look.smoothness.noise, look.smoothness.action) == ("auto", 0.1)
    known = settings(states="samples", noise=1.2).on_designed_states()
    assert (known.learn, known.noise) == ({"ordering"}, 1.2)


# ------------------------------------------------------------------------------------------------ scikit-learn


def test_members_of_groups_are_parameters():
    model = od.SnapshotSDE([0.0], smoothness=Smoothness(noise=0.5))
    params = model.get_params()
    assert params["smoothness__noise"] == 0.5
    assert params["solver__eps"] == "auto"
    assert params["solver"] is None
    assert {name for name in params if "__" in name} == {
        f"{name}__{member}"
        for name, group in (GROUPS | {"states": DesignedStates}).items()
        for member in group.__dataclass_fields__
    }
    assert not any("__" in name for name in model.get_params(deep=False))


def test_members_of_groups_are_set_by_name():
    model, before = od.SnapshotSDE([0.0]), Smoothness(noise=0.5)
    assert model.set_params(smoothness__noise=0.1, solver__eps=0.05, noise="constant") is model
    assert (model.smoothness, model.solver, model.noise) == (Smoothness(noise=0.1), Solver(eps=0.05), "constant")
    model.set_params(smoothness__basis=12)  # the others stay
    assert model.smoothness == Smoothness(noise=0.1, basis=12)
    model.set_params(smoothness__ordering=2.0, smoothness=before)  # the group first, whatever the order
    assert model.smoothness == Smoothness(noise=0.5, ordering=2.0)
    assert before == Smoothness(noise=0.5)
    for wrong in ("smoothness__drift", "states__density", "noise__level", "speed"):
        with pytest.raises(ValueError, match=wrong):
            model.set_params(**{wrong: 1.0})
    with pytest.raises(ValueError, match="noise must not be negative"):
        model.set_params(smoothness__noise=-1.0)
    assert model.smoothness == Smoothness(noise=0.5, ordering=2.0)


@pytest.mark.parametrize("copied", [clone, lambda model: pickle.loads(pickle.dumps(model))], ids=["clone", "pickle"])
def test_copies_have_the_same_settings(copied):
    model = od.SnapshotSDE(
        [0.0], noise="constant", states=SampleStates("knn"), times=TimeDensity("uniform", 3.0),
        smoothness=Smoothness(noise=0.1), solver=Solver(n_starts=1),
    )  # fmt: skip
    other = copied(model)
    assert other is not model
    assert other.get_params() == model.get_params()
    other.set_params(smoothness__noise=9.0)
    assert model.smoothness.noise == 0.1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ordiff.OrdiffWarning")  # crude fits
def test_grid_search_over_a_member_of_a_group():
    data = od.datasets.ornstein_uhlenbeck(150, random_state=0)
    model = od.SnapshotSDE(
        data.start, smoothness=Smoothness(basis=8), solver=Solver(eps=0.1, max_iter=15, n_starts=1),
        states=DesignedStates(max_states=150),
    )  # fmt: skip
    grid = {"smoothness__noise": [1e-3, 1e6], "smoothness__ordering": [1e-3]}
    search = GridSearchCV(model, grid, cv=2, error_score="raise").fit(data.X, data.times)
    assert set(search.cv_results_["param_smoothness__noise"]) == {1e-3, 1e6}
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    best = search.best_estimator_
    assert best.smoothness == Smoothness(basis=8, **{k.partition("__")[2]: v for k, v in search.best_params_.items()})
    assert best.smooth_noise_ == search.best_params_["smoothness__noise"]
    assert model.smoothness == Smoothness(basis=8)
