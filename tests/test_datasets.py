"""The analytic truth of the problems, against finite differences of their own definitions."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import ordiff as od


def periodic(f, side, axis, order=1):
    """Spectral derivative of a function on a periodic grid of 2π."""
    k = np.fft.fftfreq(side, 1 / side)
    shape = [1, 1]
    shape[axis] = side
    return np.fft.ifft(np.fft.fft(f, axis=axis) * (1j * k.reshape(shape)) ** order, axis=axis).real


@pytest.mark.parametrize("anisotropic", [False, True])
def test_torus(anisotropic):
    side = 32
    p = od.datasets.torus(side, anisotropic=anisotropic)
    grid = lambda a: np.asarray(a).reshape(side, side)  # noqa: E731
    f, mu = grid(p.test_function), grid(p.intrinsic_drift[:, 0])
    C = np.zeros((side, side, 2, 2))
    if anisotropic:
        C = p.anisotropy.reshape(side, side, 2, 2)
    else:
        C[..., 0, 0] = C[..., 1, 1] = grid(p.noise) ** 2
    d = lambda g, a, b: periodic(periodic(g, side, a), side, b)  # noqa: E731
    diffusion = sum(0.5 * C[..., a, b] * d(f, a, b) for a in (0, 1) for b in (0, 1))
    co_diffusion = sum(0.5 * d(C[..., a, b] * f, a, b) for a in (0, 1) for b in (0, 1))
    np.testing.assert_allclose(grid(p.generator), mu * periodic(f, side, 0) + diffusion, atol=1e-11)
    np.testing.assert_allclose(grid(p.adjoint), co_diffusion - periodic(mu * f, side, 0), atol=1e-11)
    # the ordering's differences along θ integrate the drift
    i = np.arange(side * side)
    j = (i + side) % (side * side)
    h = 2 * np.pi / side
    theta = p.coordinates[:, 0]
    want = 2 * h - np.cos(theta + h) + np.cos(theta)
    np.testing.assert_allclose(p.ordering(i, j), want, atol=1e-12)
    np.testing.assert_allclose(p.ordering(j, i), -want, atol=1e-12)
    np.testing.assert_allclose(p.drift, np.einsum("mna,ma->mn", p.jacobian, p.intrinsic_drift), atol=1e-14)


def test_spiral():
    p = od.datasets.spiral(50)
    u = p.coordinates
    h = 1e-5

    def embed(u):
        return np.stack([u[:, 0] * np.cos(2 * np.pi * u[:, 0]), u[:, 1], u[:, 0] * np.sin(2 * np.pi * u[:, 0])], 1)

    step = np.array([h, 0.0])
    tangent = (embed(u + step) - embed(u - step)) / (2 * h)
    np.testing.assert_allclose(p.jacobian[:, :, 0], tangent, atol=1e-7)
    np.testing.assert_allclose(p.drift, p.intrinsic_drift[:, :1] * tangent, atol=1e-6)
    # the time grows by 1 per unit of time along the drift, and κ = ‖∇t‖²
    timing = lambda v: 0.5 * np.log(v / (2 - v))  # noqa: E731
    slope = (timing(u[:, 0] + h) - timing(u[:, 0] - h)) / (2 * h)
    np.testing.assert_allclose(slope * p.intrinsic_drift[:, 0], 1.0, rtol=1e-5)
    np.testing.assert_allclose(p.scale, slope**2 / (tangent**2).sum(axis=1), rtol=1e-5)
    # H is the curvature vector of the curve: d(unit tangent)/ds
    unit = lambda v: v / np.linalg.norm(v, axis=1, keepdims=True)  # noqa: E731
    h = 1e-4
    step = np.array([h, 0.0])
    ahead = unit(embed(u + 2 * step) - embed(u))
    behind = unit(embed(u) - embed(u - 2 * step))
    bend = (ahead - behind) / (2 * h) / np.linalg.norm(tangent, axis=1, keepdims=True)
    np.testing.assert_allclose(p.curvature, bend, atol=1e-4)
    assert u[0, 0] == 1.0
    assert u[-1, 0] < 2.0


def test_sizes_are_checked():
    with pytest.raises(ValueError, match="side must be at least 3"):
        od.datasets.torus(2)
    with pytest.raises(ValueError, match="m must be at least 2"):
        od.datasets.nonlinear(1)
    with pytest.raises(ValueError, match="lift must be at least 2"):
        od.datasets.nonlinear(10, lift=1)
    with pytest.raises(ValueError, match="lift_noise must not be negative"):
        od.datasets.nonlinear(10, lift=3, lift_noise=-1)
    with pytest.raises(ValueError, match="m must be at least 7"):
        od.datasets.well_snapshots(6)
    with pytest.raises(ValueError, match="m must be at least 4"):
        od.datasets.wide_start(3)
    with pytest.raises(ValueError, match="dimension must be at least 1"):
        od.datasets.well_ou(10, dimension=0)


# ------------------------------------------------------------------------------ processes observed by snapshots

FROM_A_POINT = ["tilted_well", "well_1d", "well_ou", "three_wells", "noise_switch", "unequal_wells", "ring",
                "mueller_brown", "saddle", "bent_valley", "far_start", "fast_slow"]  # fmt: skip
FROM_A_CLOUD = ["well_snapshots", "wide_start"]
TURNING = ["turning", "tensor_ou", "van_der_pol", "repressilator", "lotka_volterra", "toggle_switch"]
PROCESSES = ["ornstein_uhlenbeck", "nonlinear", "valley", "sphere", "double_well", "limit_cycle", *FROM_A_POINT,
             *TURNING]  # fmt: skip
GRADIENTS = ["ornstein_uhlenbeck", "nonlinear", "valley", "double_well", *FROM_A_POINT, *FROM_A_CLOUD]


def slope(f, x, h=1e-5):
    """The gradient of f: (p, n) → (p,) by central differences."""
    steps = h * np.eye(x.shape[1])
    return np.stack([(f(x + step) - f(x - step)) / (2 * h) for step in steps], axis=1)


@cache
def made(name):
    """60 samples of the process."""
    return getattr(od.datasets, name)(60, 3)


@pytest.mark.parametrize("name", PROCESSES)
def test_processes(name):
    make = getattr(od.datasets, name)
    p, again, other = made(name), make(60, 3), make(60, 4)
    assert (p.X == again.X).all()
    assert (p.times == again.times).all()
    assert not (p.X == other.X).any(axis=1).all()
    assert p.X.shape == p.drift.shape == (60, p.start.size)
    np.testing.assert_array_equal(p.drift, p.drift_at(p.X))
    np.testing.assert_array_equal(p.noise, p.noise_at(p.X))
    assert ((p.times >= 0) & (p.times <= p.horizon)).all()
    grid = (np.arange(4000) + 0.5) * p.horizon / 4000
    assert p.time_density(grid).mean() * p.horizon == pytest.approx(1.0, abs=1e-6)
    assert (p.time_density(np.array([-0.01, p.horizon + 0.01])) == 0).all()


@pytest.mark.parametrize("name", [*PROCESSES, *FROM_A_CLOUD])
def test_every_process_refuses_one_sample(name):
    with pytest.raises(ValueError, match="m must be at least"):
        getattr(od.datasets, name)(1)
    with pytest.raises(ValueError, match="m must be a whole number"):
        getattr(od.datasets, name)(10.5)


@pytest.mark.parametrize("name", GRADIENTS)
def test_drift_is_the_gradient_of_the_ordering(name):
    p = made(name)
    np.testing.assert_allclose(slope(p.ordering_at, p.X), p.drift, atol=1e-6)
    assert (p.noise > 0).all()
    np.testing.assert_array_equal(p.ordering, p.ordering_at(p.X))


def test_sphere():
    p = od.datasets.sphere(200, 0)
    np.testing.assert_allclose(np.linalg.norm(p.X, axis=1), 1.0)
    tangent = lambda v: v - np.sum(v * p.X, axis=1, keepdims=True) * p.X  # noqa: E731
    np.testing.assert_allclose(tangent(slope(p.ordering_at, p.X)), p.drift, atol=1e-9)
    # E z obeys d/dt E z = E[(1 − z²) − ρ²z]: integrated up to T against the mean of the ends
    T, m = 1.0, 10_000
    start, h = p.start, 0.01
    unit = lambda x: x / np.linalg.norm(x, axis=1, keepdims=True)  # noqa: E731
    rate = lambda x: 1 - x[:, 2] ** 2 - p.noise_at(x) ** 2 * x[:, 2]  # noqa: E731
    x, gain, rng = np.tile(start, (m, 1)), 0.0, np.random.default_rng(0)
    for _ in range(round(T / h)):
        gain += h * rate(x).mean()
        x = od.datasets.simulate(p.drift_at, p.noise_at, x, np.full(m, h), step=h, project=unit, random_state=rng)
    assert x[:, 2].mean() - start[2] == pytest.approx(gain, abs=0.01)


def test_ornstein_uhlenbeck_has_its_exact_moments_and_times():
    p = od.datasets.ornstein_uhlenbeck(60_000, 0)
    theta = np.array([1.8, 1.2])
    decay = np.exp(-p.times[:, None] * theta)
    z = (p.X - 5 * decay) / np.sqrt((1 - decay**2) / theta)
    for part in np.array_split(np.argsort(p.times), 6):  # early to late
        np.testing.assert_allclose(z[part].mean(axis=0), 0, atol=0.04)
        np.testing.assert_allclose(z[part].T @ z[part] / len(part), np.eye(2), atol=0.06)
    grid = np.linspace(0, 2, 20_001)
    density = p.time_density(grid)
    share = np.concatenate([[0], np.cumsum(0.5 * (density[1:] + density[:-1])) * 1e-4])
    uniform = np.sort(np.interp(p.times, grid, share))
    assert abs(uniform - (np.arange(60_000) + 0.5) / 60_000).max() < 1.6 / np.sqrt(60_000)  # Kolmogorov, 1%
    # .6 is the standard deviation: r(1)/r(0) = 2 exp(−½(1/.6)²)/(1 + exp(−½(2/.6)²))
    want = 2 * np.exp(-0.5 / 0.36) / (1 + np.exp(-2 / 0.36))
    assert p.time_density(1.0) / p.time_density(0.0) == pytest.approx(want)


def test_nonlinear_is_independent_in_each_direction_and_escapes():
    p = od.datasets.nonlinear(2000, 0)
    late = p.X[p.times > 3.5]
    assert abs(p.X.mean(axis=0)).max() < 0.25
    assert np.median(np.linalg.norm(late, axis=1)) > 4
    assert p.noise.min() >= 0.5
    assert p.noise_at(np.zeros((1, 2)))[0] == pytest.approx(0.5 * np.sqrt(1 + np.pi**2 / 2))


def test_nonlinear_lifted_is_the_same_process_turned():
    flat, p = od.datasets.nonlinear(300, 5), od.datasets.nonlinear(300, 5, lift=10, lift_noise=0.05)
    assert p.X.shape == p.drift.shape == (300, 10)
    np.testing.assert_array_equal(p.coordinates, flat.X)
    np.testing.assert_array_equal(p.ordering, flat.ordering)
    np.testing.assert_array_equal(p.noise, flat.noise)
    J = p.jacobian[0]
    np.testing.assert_allclose(J.T @ J, np.eye(2), atol=1e-14)
    np.testing.assert_allclose(p.drift, np.einsum("mna,ma->mn", p.jacobian, p.intrinsic_drift), atol=1e-13)
    away = p.X - flat.X @ J.T
    assert away.std() == pytest.approx(0.05, rel=0.05)
    exact = od.datasets.nonlinear(300, 5, lift=10, lift_noise=0)
    np.testing.assert_allclose(exact.ordering_at(exact.X), exact.ordering, atol=1e-10)
    np.testing.assert_allclose(exact.drift_at(exact.X), exact.drift, atol=1e-10)


def test_valley_noise_is_geometric():
    p = od.datasets.valley(500, 0)
    np.testing.assert_allclose(np.log(2 * p.noise), (p.X[:, 0] - 3) / 6, atol=1e-14)
    assert np.median(p.X[p.times > 3, 0]) > 3


def test_double_well_commits_to_both_fates():
    p = od.datasets.double_well(2000, 0)
    late = p.X[p.times > 2, 0]
    assert abs(np.mean(late > 0) - 0.5) < 0.08
    assert np.mean(abs(late) > 1) > 0.85
    np.testing.assert_allclose(p.fate[abs(p.X[:, 0]) >= 2], p.X[abs(p.X[:, 0]) >= 2, 0] > 0, atol=1e-12)
    # the fate is harmonic: ½ρ² q'' = U' q'
    order = np.argsort(p.X[:, 0])
    x, q = p.X[order, 0], p.fate[order]
    U = lambda x: 2 * ((x / 2) ** 2 - 1) ** 2  # noqa: E731
    t = np.linspace(-2, 2, 40_001)
    density = np.exp(U(t) / 0.32)
    want = np.concatenate([[0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
    np.testing.assert_allclose(q, np.interp(x, t, want / want[-1]), atol=1e-6)


def test_limit_cycle_turns_and_keeps_its_radius():
    p = od.datasets.limit_cycle(2000, 0)
    r = np.linalg.norm(p.X, axis=1)
    assert abs(np.median(r) - 2) < 0.05
    assert r.std() < 0.3
    # drift = τ∇θ + ∇c, the phase by the shortest way
    angle = lambda x: np.arctan2(x[:, 1], x[:, 0])  # noqa: E731
    away = abs(p.phase) < 3  # from the cut of arctan2
    ring = lambda x: -2 * (np.linalg.norm(x, axis=1) - 2) ** 2  # noqa: E731
    want = p.speed[:, None] * slope(angle, p.X) + slope(ring, p.X)
    np.testing.assert_allclose(p.drift[away], want[away], atol=1e-6)
    np.testing.assert_allclose(p.confinement, ring(p.X))
    i, j = np.arange(1999), np.arange(1, 2000)
    d = p.ordering(i, j)
    assert abs(d).max() <= np.pi
    np.testing.assert_allclose(np.exp(1j * d), np.exp(1j * (p.phase[j] - p.phase[i])), atol=1e-12)
    # a turn takes 6.86, up to the noise
    around = p.X[abs(p.times - 2 * np.pi / np.sqrt(0.84)) < 0.15]
    assert abs(np.angle(np.mean(around[:, 0] + 1j * around[:, 1]))) < 0.2


@pytest.mark.parametrize("name", FROM_A_CLOUD)
def test_starts_from_a_cloud_are_marked_samples(name):
    make = getattr(od.datasets, name)
    p, again, other = make(280, 3), make(280, 3), make(280, 4)
    np.testing.assert_array_equal(p.X, again.X)
    assert not (p.X == other.X).any()
    assert p.X.shape == p.drift.shape == (280, 2)
    assert p.start.dtype == bool
    np.testing.assert_array_equal(p.start, p.times == 0)
    assert p.time_density is None
    assert p.times.max() == p.horizon
    np.testing.assert_array_equal(p.drift, p.drift_at(p.X))
    np.testing.assert_array_equal(p.noise, p.noise_at(p.X))


def test_well_snapshots_have_seven_times_and_a_gaussian_start():
    p = od.datasets.well_snapshots(2800, 0)
    values, counts = np.unique(p.times, return_counts=True)
    np.testing.assert_allclose(values, np.arange(7) / 2)
    assert (counts == 400).all()
    np.testing.assert_allclose(p.X[p.start].mean(axis=0), [0.05, 0], atol=4 * 0.15 / np.sqrt(400))
    np.testing.assert_allclose(p.X[p.start].std(axis=0), 0.15, rtol=4 / np.sqrt(800))


def test_wide_start_relaxes_as_its_moments_say():
    # x ~ N(x̄ e^{−θt}, s² e^{−2θt} + ρ²(1 − e^{−2θt})/(2θ))
    p, theta = od.datasets.wide_start(8000, 0), np.array([1.5, 0.7])
    assert p.start.mean() == 0.25
    decay = np.exp(-p.times[:, None] * theta)
    z = p.X - np.array([1.0, -0.5]) * decay
    z /= np.sqrt(1.2**2 * decay**2 + 0.36 * (1 - decay**2) / (2 * theta))
    for part in np.array_split(np.argsort(p.times), 4):
        np.testing.assert_allclose(z[part].mean(axis=0), 0, atol=4 / np.sqrt(2000))
        np.testing.assert_allclose(z[part].var(axis=0), 1, atol=4 * np.sqrt(2 / 2000))


@pytest.mark.parametrize("name", ["saddle", "fast_slow"])
def test_exact_laws_agree_with_simulation(name):
    p = getattr(od.datasets, name)(6000, 0)
    X = od.datasets.simulate(p.drift_at, p.noise_at, p.start, p.times, step=p.horizon / 1000, random_state=1)
    for part in np.array_split(np.argsort(p.times), 4)[1:]:
        assert_same_law(p.X[part], X[part])


def assert_same_law(a, b):
    """Means and variances of two samples (p, n) agree within 4 standard errors."""
    for f in (lambda x: x, lambda x: (x - a.mean(axis=0)) ** 2):
        error = np.sqrt(f(a).var(axis=0) / len(a) + f(b).var(axis=0) / len(b))
        assert (abs(f(a).mean(axis=0) - f(b).mean(axis=0)) < 4 * error).all()


@pytest.mark.parametrize(("name", "step"), [("mueller_brown", 2e-4), ("bent_valley", 1e-3)])
def test_half_the_step_has_the_same_law(name, step):
    p = made(name)
    times = np.full(2000, 0.15 * p.horizon)
    laws = [
        od.datasets.simulate(p.drift_at, p.noise_at, p.start, times, step=h, random_state=seed)
        for seed, h in enumerate((step, step / 2))
    ]
    assert_same_law(*laws)


def test_dimensions():
    for name, n in {"well_1d": 1, "noise_switch": 1, "tilted_well": 2, "well_ou": 3, "far_start": 3}.items():
        assert made(name).X.shape == (60, n)
    p = od.datasets.well_ou(8, 0, dimension=5)
    assert p.X.shape == (8, 5)
    np.testing.assert_array_equal(p.start, [0.05, 0, 0, 0, 0])


def test_landmarks_of_the_landscapes():
    # no drift at the wells, barriers and ridges that the docstrings name
    def at(name, *places):
        return abs(made(name).drift_at(np.array(places))).max()

    well, barrier = (1 + np.sqrt(3)) / 2, (np.sqrt(3) - 1) / 2
    assert at("three_wells", [well, 0.0], [0.5 * barrier, np.sqrt(0.75) * barrier]) < 1e-12
    assert at("mueller_brown", [-0.822, 0.624], [-0.558, 1.442], [0.623, 0.028]) < 0.02
    assert at("ring", [0.9, 1.2]) < 1e-12
    assert at("unequal_wells", [-0.1, 0.0]) < 0.3


def test_a_linear_process_has_its_law():
    """Means e^{Mt}x₀, and covariances with Σ′ = MΣ + ΣMᵀ + D."""
    M, D, t = np.array([[-1.0, -2.0], [2.0, -1.0]]), np.array([[0.5, 0.2], [0.2, 0.3]]), 0.8
    p = od.datasets.linear(M, D, [2.0, 0.0], np.full(20_000, t), random_state=0)
    S, h = np.zeros((2, 2)), t / 4000
    for _ in range(4000):
        S = S + h * (M @ S + S @ M.T + D)
    c, s = np.exp(-t) * np.cos(2 * t), np.exp(-t) * np.sin(2 * t)
    np.testing.assert_allclose(p.X.mean(axis=0), [2 * c, 2 * s], atol=0.012)
    np.testing.assert_allclose(np.cov(p.X.T), S, atol=0.006)
    np.testing.assert_allclose(p.anisotropy[0] * p.noise[0] ** 2, D)
    assert np.linalg.det(p.anisotropy[0]) == pytest.approx(1.0)
    with pytest.raises(ValueError, match=r"matrix must have shape \(2, 2\)"):
        od.datasets.linear(np.eye(3), D, [2.0, 0.0], 1.0)


def test_orderings_of_what_turns_are_local():
    p = made("lotka_volterra")
    i, j = np.array([0, 1, 2]), np.array([3, 1, 5])
    np.testing.assert_allclose(p.ordering(i, j), (p.drift[i] * (p.X[j] - p.X[i])).sum(axis=1))
    J = np.stack([slope(lambda x, c=c: p.drift_at(x)[:, c], p.X) for c in range(2)], axis=1)
    np.testing.assert_allclose(np.trace(J, axis1=1, axis2=2), 0, atol=1e-8)  # all of it turns
