"""Choosing the step, and what the parameters mean: against exact values, brute force, and known truth."""

from __future__ import annotations

import numpy as np
import pytest

import ordiff as od
from ordiff import tuning
from reference import Surface, make_kernel, naive_operator


def rms(x):
    return float(np.sqrt(np.mean(np.square(x))))


@pytest.fixture(scope="module")
def surface():
    return Surface(m=80)


PARTS = ("several", "tangent", "beta", "gaussian")
pytestmark = pytest.mark.filterwarnings("ignore:the graph is too small", "ignore:eps = ")


def test_p_max(surface):
    graph = od.NeighborGraph.build(surface.X, k=20)
    op = make_kernel(surface, *PARTS).operator(graph, 0.1)
    result = tuning.p_max(op)
    want = op.matrix.toarray().max(axis=1)
    np.testing.assert_array_equal(result.rows, want)
    assert result.max == want.max()
    assert result.quantiles[0.9] == np.quantile(want, 0.9)
    assert tuning.p_max(od.Kernel().operator(graph, 1e-9)).max == pytest.approx(1.0)


@pytest.mark.parametrize("parts", [PARTS, ("gradient", "euclidean", "one-sided", "supergaussian")])
def test_resolution_is_the_mass_of_the_full_kernel_on_the_graph(surface, parts):
    graph = od.NeighborGraph.build(surface.X, k=20)
    kernel = make_kernel(surface, *parts)
    result = tuning.resolution(kernel, graph, 0.1, density=surface.q, alpha=0.7)
    full = naive_operator(surface, *parts, 0.1, 0.7)
    kept = np.zeros_like(full)
    kept[graph.sources(), graph.indices] = 1.0
    np.testing.assert_allclose(result.kept, (full * kept).sum(axis=1), rtol=1e-8)
    assert result.min == result.kept.min()
    assert tuning.resolution(kernel, od.NeighborGraph.build(surface.X, k=79), 0.1).min == pytest.approx(1.0)


def test_resolution_at_some_samples_finds_the_worst(rng, monkeypatch):
    X = rng.uniform(0, 1, (1000, 2))
    graph = od.NeighborGraph.build(X, k=40)
    every = tuning.resolution(od.Kernel(), graph, 0.002)
    monkeypatch.setattr("ordiff.tuning._MAX_PAIRS", 100_000)
    some = tuning.resolution(od.Kernel(), graph, 0.002)
    assert len(some.samples) < 150
    assert some.min == pytest.approx(every.min, abs=0.02)


def test_resolution_with_an_estimated_gradient_uses_that_of_the_graph(surface):
    graph = od.NeighborGraph.build(surface.X, k=30)
    l = surface.X[:, 0]
    kappa = od.TangentSpaces.fit(graph, k=20).gradient_norm(l)
    by_name = tuning.resolution(od.Kernel(od.Ordering(l, scale="gradient")), graph, 0.05)
    np.testing.assert_allclose(
        by_name.kept, tuning.resolution(od.Kernel(od.Ordering(l, scale=kappa)), graph, 0.05).kept
    )


def test_semigroup_error_agrees_with_the_frobenius_norm(surface):
    graph = od.NeighborGraph.build(surface.X, k=30)
    kernel = make_kernel(surface, *PARTS)
    one, two = (kernel.operator(graph, eps, density=surface.q).matrix.toarray() for eps in (0.1, 0.2))
    exact = np.linalg.norm(one @ one - two)
    got = tuning.semigroup_error(kernel, graph, 0.1, density=surface.q, n_probes=4000)
    assert got == pytest.approx(exact, rel=0.02)
    assert tuning.semigroup_error(kernel, graph, 0.1, density=surface.q) == pytest.approx(exact, rel=0.2)
    assert tuning.semigroup_error(kernel, graph, 0.1) == tuning.semigroup_error(kernel, graph, 0.1)


# ------------------------------------------------------------------------------------------------ choose_eps


def ratios_to_best(kernel, graph, choice, functions, **options):
    """For each function and its truth, the error at the chosen step over the least of a sweep, fine near the best."""

    def errors(eps):
        op = kernel.operator(graph, eps, **options)
        return [rms(op.generator(f) - truth) for f, truth in functions]

    sweep = np.geomspace(choice.steps[0], choice.steps[-1], 14)
    coarse = np.array([errors(eps) for eps in sweep])
    least = coarse.min(axis=0)
    for which, at in enumerate(coarse.argmin(axis=0)):
        near = np.geomspace(sweep[max(at - 1, 0)], sweep[min(at + 1, 13)], 9)[1:-1]
        least[which] = min(least[which], *(errors(eps)[which] for eps in near))
    return errors(choice.eps) / least


@pytest.fixture
def builds(monkeypatch):
    """Counts the operators that are built."""
    made = []
    original = od.Kernel.operator
    monkeypatch.setattr(od.Kernel, "operator", lambda self, *a, **k: made.append(1) or original(self, *a, **k))
    return made


@pytest.mark.slow
@pytest.mark.parametrize("radius", [0.4, 0.6])
def test_choice_on_the_torus(radius, builds, monkeypatch):
    monkeypatch.setattr("ordiff.tuning._MAX_PAIRS", 2_000_000)  # samples of a torus are alike
    p = od.datasets.torus(70)
    graph = od.NeighborGraph.build(p.X, radius=radius)
    kernel = od.Kernel(od.Ordering.local(p.ordering), noise=p.noise)
    choice = tuning.choose_eps(kernel, graph)
    assert len(builds) <= 20
    assert choice.valid
    assert choice.low <= choice.eps <= choice.high
    assert (ratios_to_best(kernel, graph, choice, [(p.test_function, p.generator)]) < 2).all()


@pytest.mark.parametrize(("k", "seed"), [(300, 0), pytest.param(700, 1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("density", ["knn", "balanced"])
def test_choice_on_gaussian_samples(k, density, seed):
    X = np.random.default_rng(seed).normal(size=(2000, 2))
    graph = od.NeighborGraph.build(X, k=k)
    kernel = od.Kernel(od.Ordering(-0.5 * (X**2).sum(axis=1)), noise=np.sqrt(2))
    choice = tuning.choose_eps(kernel, graph, density=density)
    x = X[:, 0]
    functions = [(x, -x), (np.sin(x), -x * np.cos(x) - np.sin(x))]
    assert (ratios_to_best(kernel, graph, choice, functions, density=density) < 2).all()
    text = str(choice)
    assert f"sample {choice.stuck}" in text
    assert f"sample {choice.cut}" in text


def test_weak_noise_coordinates_do_not_change_the_choice(rng):
    p = od.datasets.torus(30)
    kernel = od.Kernel(od.Ordering.local(p.ordering), noise=p.noise)
    wide = np.concatenate([p.X, 1e-6 * rng.normal(size=(900, 4))], axis=1)
    choices = [tuning.choose_eps(kernel, od.NeighborGraph.build(X, radius=1.4)).eps for X in (p.X, wide)]
    assert choices[0] == pytest.approx(choices[1], rel=1e-3)


def test_a_fast_drift_leaves_the_valid_interval_where_it_is(rng):
    """p_max falls and rises again when the drift piles the mass up at the rim: the first crossing counts."""
    X = rng.normal(size=(1000, 2))
    graph = od.NeighborGraph.build(X, k=150)
    r = od.length_scale(graph, 16)
    kernel = od.Kernel(od.Ordering(X[:, 0]), noise=r, noise_right=r)
    choice = tuning.choose_eps(kernel, graph, density="balanced")
    assert choice.p_max[-1] > 0.5
    assert choice.valid
    op = kernel.operator(graph, choice.eps, density="balanced")
    assert tuning.p_max(op).quantiles[0.9] < 0.5
    assert np.quantile(tuning.resolution(kernel, graph, choice.eps, density="balanced").kept, 0.1) > 0.89


def test_a_dense_clump_does_not_decide_for_all(rng, monkeypatch):
    """The tenth of the samples that may be cut off is a tenth of all, also when only some are looked at."""
    X = np.concatenate([rng.normal(size=(1880, 2)), 0.02 * rng.normal(size=(120, 2)) + 3])
    graph = od.NeighborGraph.build(X, k=100)
    kernel = od.Kernel(od.Ordering(-0.5 * (X**2).sum(axis=1)), noise=1.4)
    monkeypatch.setattr("ordiff.tuning._MAX_PAIRS", 1_600_000)  # two samples of five
    some = tuning.choose_eps(kernel, graph)
    monkeypatch.setattr("ordiff.tuning._MAX_PAIRS", 10**9)
    every = tuning.choose_eps(kernel, graph)
    assert every.valid
    assert some.high == pytest.approx(every.high, rel=0.1)


def test_a_compact_kernel_that_a_drift_outruns_still_gets_a_step(rng):
    X = rng.normal(size=(1000, 2))
    graph = od.NeighborGraph.build(X, k=150)
    kernel = od.Kernel(od.Ordering(X[:, 0], speed=20), profile="compact", dimension=2)
    choice = tuning.choose_eps(kernel, graph)
    assert np.isfinite(kernel.operator(graph, choice.eps).generator(X)).all()


def test_a_graph_of_all_samples_has_no_upper_limit(rng):
    graph = od.NeighborGraph.build(rng.uniform(0, 1, (300, 2)), k=299)
    choice = tuning.choose_eps(od.Kernel(dimension=2), graph)
    assert choice.high == np.inf
    assert "the graph holds every step tried" in str(choice)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g: tuning.choose_eps(od.Kernel(), g, resolution_limit=1.0), "resolution_limit must be between 0 and 1"),
        (lambda g: tuning.choose_eps(od.Kernel(), g, p_limit=0), "p_limit must be between 0 and 1"),
        (lambda g: tuning.resolution(od.Kernel(), g, -1.0), "eps must be one positive number"),
        (lambda g: tuning.peclet(0.1, 1.0, 0.0), "noise must be positive"),
        (lambda g: tuning.rate(0.5, 2), "m must be more than one sample"),
    ],
)
def test_errors(surface, call, message):
    with pytest.raises(ValueError, match=message):
        call(od.NeighborGraph.build(surface.X, k=20))


def test_duplicates_everywhere_are_told(rng):
    X = np.repeat(rng.normal(size=(60, 2)), 30, axis=0)
    with pytest.raises(od.GraphError, match="no neighbour at a positive distance"):
        tuning.choose_eps(od.Kernel(dimension=2), od.NeighborGraph.build(X, k=20))
    with pytest.raises(od.GraphError, match="sample 0 coincides with its 20 nearest"):
        od.threshold_graph(X, k=20)
    np.testing.assert_array_equal(
        od.NeighborGraph.build(rng.normal(size=(50, 2)), radius=1e-170).indices, np.arange(50)
    )


@pytest.mark.filterwarnings("error")
def test_no_valid_step_is_told_with_a_number_of_samples(rng):
    X = rng.uniform(0, 1, (300, 3))
    graph = od.NeighborGraph.build(X, k=8)
    with pytest.warns(
        od.OrdiffWarning, match=r"no step fits: below .* stay put.* about [\d,]+ would do instead of 300"
    ) as told:
        choice = tuning.choose_eps(od.Kernel(dimension=3), graph)
    assert not choice.valid
    assert choice.high < choice.low
    assert str(told[0].message) == str(choice)


def test_the_choice_can_be_drawn(surface):
    graph = od.NeighborGraph.build(surface.X, k=40)
    ax = tuning.choose_eps(od.Kernel(dimension=2), graph).plot()
    assert "estimated error of L f" in [text.get_text() for text in ax.get_legend().get_texts()]


# --------------------------------------------------------------------------------------- what parameters mean


def test_forward_bias_is_a_probability_of_the_step(rng):
    """Φ(√ψ ‖∇l‖/κ): against one step of the kernel on a fine line, and its inverse."""
    x = np.linspace(-1, 1, 4001)
    eps, tau, rho, steep = 0.002, 4.0, 0.7, 2.0
    graph = od.NeighborGraph.build(x[:, None], radius=0.25)
    op = od.Kernel(od.Ordering(steep * x, speed=tau), noise=rho).operator(graph, eps)
    up = (op @ (x > x[2000]))[2000] + 0.5 * op.matrix[[2000], [2000]]
    assert tuning.forward_bias(eps, tau, rho, steepness=steep) == pytest.approx(float(up[0]), abs=1e-5)
    assert tuning.peclet(eps, tau, rho) == pytest.approx(eps * 16 / 0.49)
    for bias in (0.3, 0.5, 0.9):
        tau = tuning.speed_for_bias(bias, eps, rho)
        assert tuning.forward_bias(eps, tau, rho) == pytest.approx(bias)
    with pytest.raises(ValueError, match="bias must be between 0 and 1"):
        tuning.speed_for_bias(1.5, eps, rho)


def test_rescaled_time_is_the_same_kernel(surface):
    graph = od.NeighborGraph.build(surface.X, k=30)
    eps, speed, noise = tuning.rescale_time(3.7, 0.2, surface.speed, surface.noise)
    one = od.Kernel(od.Ordering(surface.l, surface.speed), noise=surface.noise).operator(graph, 0.2)
    other = od.Kernel(od.Ordering(surface.l, speed), noise=noise).operator(graph, eps)
    np.testing.assert_allclose(other.matrix.data, one.matrix.data, rtol=1e-12, atol=1e-300)


# P(|x| < r) for x ~ N(0, I_d), the table of the paper's appendix B
TABLE = {
    (1, 1): 0.6827, (1, 2): 0.3935, (1, 4): 0.0902, (1, 6): 0.0144, (2, 2): 0.8647, (2, 8): 0.1429, (2, 10): 0.0527,
    (3, 1): 0.9973, (3, 4): 0.9389, (3, 10): 0.4679, (3, 20): 0.0171, (4, 6): 0.9862, (4, 16): 0.5470, (5, 20): 0.7986,
}  # fmt: skip


@pytest.mark.parametrize(("r", "d"), TABLE)
def test_radius_inverts_the_papers_table(r, d):
    low, high = TABLE[r, d] - 5e-5, TABLE[r, d] + 5e-5
    assert tuning.radius(d, low) <= r <= tuning.radius(d, high)
    assert tuning.radius(d, 0.9, scale=2.5) == pytest.approx(2.5 * tuning.radius(d, 0.9))


def test_rate():
    assert tuning.rate(4000, 2) / tuning.rate(1000, 2) == pytest.approx(4**-0.25)
    got = tuning.rate(4000, 2, "consistent")
    assert got == pytest.approx((np.log(4000) / 4000) ** (1 / 3))
    with pytest.raises(ValueError, match="schedule must be one of"):
        tuning.rate(10, 2, "fast")
