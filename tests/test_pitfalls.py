"""What is plausible and unusual: other units, known noise, counted weights, late or early samples, a far start.

Each case was once a wrong number that nothing was said about.
"""

import warnings

import numpy as np
import pytest
from scipy.integrate import cumulative_trapezoid

import ordiff as od
from ordiff import GraphError, OrdiffWarning, Smoothness, SnapshotSDE, Solver
from ordiff.learning.task import within_reach

pytestmark = pytest.mark.filterwarnings("ignore:the process does not reach")

START = np.array([5.0, 5.0])


@pytest.fixture(scope="module")
def snapshots():
    """dx = −x dt + dW from (5, 5): 300 samples and their times."""
    rng = np.random.default_rng(0)
    t = rng.uniform(0, 2, 300)
    return decayed(START, t, rng), t


def decayed(start, t, rng):
    return np.exp(-t)[:, None] * start + np.sqrt(0.5 * (1 - np.exp(-2 * t)))[:, None] * rng.normal(size=(len(t), 2))


def fit(X, t, start=START, weight=None, **settings):
    """The settings are parameters, or members of groups by their names."""
    model = SnapshotSDE(start, noise="constant").set_params(smoothness__basis=20).set_params(**settings)
    return model.fit(X, t, sample_weight=weight)


@pytest.fixture(scope="module")
def usual(snapshots):
    """There is nothing to tell of it, but for single samples that are not reached."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="the process does not reach")
        return fit(*snapshots)


@pytest.mark.slow
@pytest.mark.parametrize(("length", "time"), [(1e-6, 1.0), (1e3, 1.0), (1e6, 1e5), (1.0, 1e-4)])
def test_units_do_not_matter(usual, snapshots, length, time):
    X, t = snapshots
    model = fit(X * length, t * time, START * length)
    assert model.converged_
    np.testing.assert_allclose(model.noise_[0] / (length / time**0.5), usual.noise_[0], rtol=0.02)
    np.testing.assert_allclose(model.log_noise_std_[0], usual.log_noise_std_[0], rtol=0.05)
    np.testing.assert_allclose(np.ptp(model.ordering_) / (length**2 / time), np.ptp(usual.ordering_), rtol=0.02)
    deviation = model.ordering_std_ / (length**2 / time)
    np.testing.assert_allclose(deviation.mean(), usual.ordering_std_.mean(), rtol=0.1)


def test_a_known_noise_is_kept(snapshots):
    model = fit(*snapshots, noise=1.0)
    np.testing.assert_allclose(model.noise_, 1.0, rtol=1e-12)
    assert not model.noise_std_.any()
    assert "as given" in model.summary()
    with pytest.raises(ValueError, match="neither given"):
        fit(*snapshots, learn=("ordering",))
    with pytest.raises(ValueError, match="nothing is left to learn"):
        fit(*snapshots, noise=1.0, learn=("noise",))


@pytest.mark.slow
def test_weights_are_counts(snapshots):
    X, t = snapshots
    with pytest.warns(OrdiffWarning, match="counts samples"):
        fit(X, t, weight=np.full(300, 1 / 20), noise=1.0)
    with pytest.warns(OrdiffWarning, match="300 of 600 rows of X are exact copies"):
        twice = fit(np.vstack([X, X]), np.concatenate([t, t]))
    counted = fit(X, t, weight=np.full(300, 2.0))
    np.testing.assert_allclose(counted.log_noise_std_[0], twice.log_noise_std_[0], rtol=0.1)


def moved(first, rng):
    """A narrow process along x, from (0.2, 0) at speed 4 with noise 0.15, seen from a first time on."""
    t = rng.uniform(first, 1, 600)
    return np.column_stack([0.2 + 4 * t, 0 * t]) + 0.15 * np.sqrt(t)[:, None] * rng.normal(size=(600, 2)), t


def test_a_start_that_nothing_leads_from_is_an_error(rng):
    """The chain must not begin somewhere else."""
    with pytest.raises(GraphError, match=r"start lies 0\.\d+ away from the samples"):
        od.States.design(rng.uniform(-1, 1, (2000, 2)), 0.05, [1.4, 0.0])
    with pytest.raises(GraphError, match="there are no samples between"):
        fit(moved(0.22, rng)[0], None, np.array([0.2, 0.0]), times=od.TimeDensity("uniform", 1.0))
    several = np.vstack([[1.8, 0.0], rng.uniform(-0.1, 0.1, (20, 2))])  # most of the mass is far away
    with pytest.raises(GraphError, match="there are no samples between"):
        od.States.design(rng.uniform(-1, 1, (2000, 2)), 0.05, several, start_weights=[0.95, *np.full(20, 0.0025)])


def test_a_gap_is_filled_with_states():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model = fit(*moved(0.12, np.random.default_rng(0)), np.array([0.2, 0.0]))
    assert not any("to bridge the gap" in str(one.message) for one in told)
    np.testing.assert_allclose(model.states_.start @ model.states_.points, [0.2, 0.0])
    assert 0.1 < model.noise_[0] < 0.2


def test_a_gap_is_bridged_and_told_of_where_times_are_not_known():
    X, _ = moved(0.03, np.random.default_rng(0))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        fit(X, None, np.array([0.2, 0.0]), times=od.TimeDensity("uniform", 1.0))
    assert any("to bridge the gap" in str(one.message) for one in told)


@pytest.mark.slow
def test_early_samples_count_where_they_are_many():
    """Three of five times come long before the others: steps are short enough for two of them."""
    rng = np.random.default_rng(3)
    t = np.repeat([0.1, 0.25, 0.5, 24.0, 72.0], 100)
    X = decayed(np.array([3.0, 3.0]), t, rng)
    model = fit(X, t, np.array([3.0, 3.0]))
    assert np.array_equal(model.early_, np.arange(100))
    assert abs(model.noise_[0] - 1) < 3 * model.noise_std_[0]
    assert model.noise_std_[0] < 0.1
    assert "Samples seen before the first step, and not used: 100." in model.summary()


def test_many_early_samples_are_told():
    t = np.repeat([0.1, 0.25, 0.5, 1.5, 4.0], 100)
    X = decayed(np.array([3.0, 3.0]), t, np.random.default_rng(3))
    with pytest.warns(OrdiffWarning, match="200 of 500 samples were seen before the first step"):
        fit(X, t, np.array([3.0, 3.0]), solver__eps=0.4)


@pytest.mark.slow
def test_times_that_are_not_counted_from_the_start_are_told(snapshots, usual):
    """Of the usual ones nothing is told, see there."""
    X, t = snapshots
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        # so late nothing moves any more, which is told too
        fit(X, t + 2010, noise=1.0, solver__max_iter=5, solver__n_starts=1)
    assert any("the start is at time 0" in str(one.message) and "times - times.min" in str(one.message) for one in told)


def test_a_mask_of_zeros_and_ones_is_not_taken_for_indices():
    x = np.linspace(-2, 2, 161).reshape(-1, 1)
    op = od.Kernel(od.Ordering(-0.5 * x[:, 0] ** 2)).operator(od.NeighborGraph.build(x, radius=0.5), 0.01)
    target = (x[:, 0] > 1).astype(int)
    with pytest.raises(ValueError, match=r"astype\(bool\)"):
        od.first_passage_time(op, target)
    with pytest.raises(ValueError, match=r"astype\(bool\)"):
        od.expected_occupancy(op, (x[:, 0] == 0).astype(int), target.astype(bool))


def test_a_given_ordering_is_kept(snapshots):
    X, t = snapshots
    l = -0.5 * (X**2).sum(axis=1)
    model = fit(X, t, ordering=l, learn=("noise",))
    assert np.abs(model.ordering_ - (l + 25)).max() < 0.01 * np.ptp(l)
    on_samples = fit(X, t, ordering=l, learn=("noise",), states="samples")
    np.testing.assert_allclose(np.diff(on_samples.ordering_), np.diff(l), rtol=1e-9, atol=1e-9)


def test_on_samples_the_operator_is_the_chain_that_was_learned(snapshots, tmp_path):
    """Its powers give the likelihood; also when the density was learned, and after save and load."""
    X, t = snapshots
    solver = Solver(max_iter=20, n_starts=1)
    with pytest.warns(OrdiffWarning, match="not confirmed"):
        model = fit(X, t, states="samples", learn=("ordering", "noise", "density"), solver=solver)
    model.save(tmp_path / "model.npz")
    expected = model._result.likelihood.time_slices(model._process.dynamics)
    for one in (model, od.load(tmp_path / "model.npz")):
        mass = one.states_.start
        for step in range(1, 6):
            mass = one.operator_.forward(mass)
            np.testing.assert_allclose(mass, expected[step], rtol=1e-9, atol=1e-15)


def test_terminal_samples_are_terminal():
    data = od.datasets.ornstein_uhlenbeck(600, random_state=1)
    model = SnapshotSDE(data.start, noise="constant").fit(data.X, data.times)
    x = data.X[:, 0]
    sets = {"right": x > 1, "left": x < -1}
    fates = model.fate_probabilities(sets)
    np.testing.assert_array_equal(fates[x > 1], [[1.0, 0.0]] * (x > 1).sum())
    np.testing.assert_array_equal(fates[x < -1], [[0.0, 1.0]] * (x < -1).sum())
    # dx = −1.8 x dt + √2 dw does not care for the other coordinate: its scale function is known
    points = data.X[(np.abs(x) < 0.9) & (np.abs(data.X[:, 1]) < 1.5)]
    grid = np.linspace(-1, 1, 2001)
    scale = cumulative_trapezoid(np.exp(0.9 * grid**2), grid, initial=0)
    truth = np.interp(points[:, 0], grid, scale / scale[-1])
    regions = {"right": lambda P: P[:, 0] > 1, "left": lambda P: P[:, 0] < -1}
    for what, most in ((regions, 0.05), (sets, 0.06)):  # where a set of samples ends is not known as well
        found = model.fate_probabilities(what, points, continuous=True)[:, 0]
        assert np.sqrt(np.mean((found - truth) ** 2)) < most


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_fates_of_a_noise_field_with_outliers(seed):
    """Heavy tails in three dimensions: states without data near them make the chain nearly decomposable."""
    rng = np.random.default_rng(seed)
    t = np.repeat([0.0, 1.0, 2.0, 3.0], 225)
    side = np.where(rng.random(900) < 0.5, -1, 1)
    X = np.column_stack([2 * t, side * np.maximum(t - 1, 0) * 1.5, 0 * t])
    X += rng.standard_t(2.5, X.shape) * (0.5 + 0.15 * t)[:, None]
    with warnings.catch_warnings(action="ignore", category=OrdiffWarning):  # some samples are not reached
        settings = {"drift": "gradient", "smoothness": Smoothness(basis=30), "solver": Solver(n_starts=1)}
        model = SnapshotSDE(t == 0, **settings).fit(X, t)
    fates = model.fate_probabilities({"up": (t == 3) & (X[:, 1] > 2), "down": (t == 3) & (X[:, 1] < -2)})
    np.testing.assert_allclose(fates.sum(axis=1), 1, atol=1e-6)
    assert np.abs(fates[t == 0].mean(axis=0) - 0.5).max() < 0.15
    upper = (t == 2) & (X[:, 1] > 1)
    lower = (t == 2) & (X[:, 1] < -1)
    assert fates[upper, 0].mean() > fates[lower, 0].mean() + 0.2


def test_numpy_scalars_among_the_settings_can_be_saved(snapshots, tmp_path):
    X, t = snapshots
    model = fit(X, t, np.argmin(t), smoothness__basis=np.int64(10), learn=("ordering", "noise"))
    model.save(tmp_path / "model.npz")
    np.testing.assert_allclose(od.load(tmp_path / "model.npz").predict(X), model.predict(X))


def test_the_number_of_neighbours_is_heeded(snapshots):
    # what is learned does not matter
    quick = {"noise": 1.0, "smoothness__basis": 5, "solver__max_iter": 5, "solver__n_starts": 1}
    with warnings.catch_warnings(action="ignore", category=OrdiffWarning):
        few, many = (fit(*snapshots, states__n_neighbors=k, **quick).graph_ for k in (15, 60))
    assert 7 < few.n_edges / few.n_points < 20
    assert 30 < many.n_edges / many.n_points < 70


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 4])
@pytest.mark.filterwarnings("ignore")
def test_few_functions_find_the_samples(seed, monkeypatch):
    """Four functions carry a coarse ordering so badly that from there none of the samples is reached: the fit begins
    elsewhere. Where it ends is not asserted: a chain that stays at the start is about as likely for so few points."""
    found = []

    def spy(problem, a, nowhere):
        start = within_reach(problem, a, nowhere)
        found.append([problem.weights @ (problem.likelihood.per_sample(problem.parameters.dynamics(b)) < nowhere)
                      / problem.n_samples for b in (a, start)])  # fmt: skip
        return start

    monkeypatch.setattr("ordiff.learning.task.within_reach", spy)
    X = np.repeat([[1.0, 3.0], [2.0, 1.0], [3.0, 3.0], [4.0, 1.0]], 4, axis=0)
    X += 1e-9 * np.random.default_rng(seed).normal(size=X.shape)
    times, weights = np.repeat([1, 2, 1, 2], 4), np.r_[10.0, np.ones(15)]
    settings = {"noise": "constant", "smoothness": Smoothness(basis=4), "solver": Solver(n_starts=1)}
    model = SnapshotSDE(0, **settings).fit(X, times, sample_weight=weights)
    (lost_before, lost_after), *_ = found
    assert lost_before > 0.4
    assert lost_after < 0.3
    assert model.unreached_.size == 0 or not model.check_.trusted


def test_a_start_in_two_wells_that_nothing_joins(rng):
    """dx = −(x ∓ 5, y) dt + .5 dW from normal densities in both: fitted as one process, each well from its start."""
    side, t = np.where(np.arange(600) % 2 == 0, -5.0, 5.0), np.repeat([0, 0.5, 1.0], 200)
    first = np.stack([side, np.ones(600)], axis=1) + 0.3 * rng.normal(size=(600, 2))

    def drift(x):
        return np.stack([5 * np.sign(x[:, 0]), np.zeros(len(x))], axis=1) - x

    X = od.datasets.simulate(drift, 0.5, first, t, step=0.01, random_state=rng)
    model = fit(X, t, t == 0, drift="gradient")
    assert model.states_.dimension == 2
    assert model.check_.trusted
    assert np.mean(np.abs(model.drift_ - drift(X)) <= 2 * model.drift_std_) > 0.8
    assert abs(model.noise_[0] - 0.5) < 3 * model.noise_std_[0]
    fates = model.fate_probabilities({"left": X[:, 0] < -5.3, "right": X[:, 0] > 5.3})
    np.testing.assert_allclose(fates[:, 0], X[:, 0] < 0, atol=1e-6)


def test_a_direction_across_a_drift_is_no_noise(rng):
    """A plume: it goes along x and relaxes across, where it is a hundredth as wide, at once."""
    t = rng.uniform(0, 2, 500)
    X = od.datasets.simulate(lambda x: [2, 0] - [0, 3] * x, 0.2, np.zeros(2), t, step=0.01, random_state=rng)
    model = fit(X, t, np.zeros(2), drift="gradient")
    assert model.states_.dimension == 2
    assert abs(model.noise_[0] - 0.2) < 3 * model.noise_std_[0] < 0.1
