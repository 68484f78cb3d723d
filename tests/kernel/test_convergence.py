"""The order of convergence of the generator to its limit: 1 for the operator, 2 for Richardson's.

On smooth closed manifolds with samples placed by a smooth map of a regular grid, sums are integrals to machine
precision, so the only error left is that of ε.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import ordiff as od


def rms(x):
    return float(np.sqrt(np.mean(np.square(x))))


@dataclass
class Circle:
    """A unit circle in R², sampled with density q; f and its derivatives; the tangent."""

    m: int = 1500
    uneven: float = 0.0

    def __post_init__(self):
        s = 2 * np.pi * np.arange(self.m) / self.m
        theta = s + self.uneven * np.sin(s)  # dθ/ds = 1/q
        self.q = 1 / (1 + self.uneven * np.cos(s))
        slope = -self.uneven * np.sin(s) * self.q
        self.log_q_t = -slope * self.q  # d log q/dθ
        self.theta = theta
        self.X = np.stack([np.cos(theta), np.sin(theta)], 1)
        self.t = np.stack([-np.sin(theta), np.cos(theta)], 1)
        self.f = np.sin(theta) + 0.4 * np.cos(2 * theta)
        self.f1 = np.cos(theta) - 0.8 * np.sin(2 * theta)
        self.f2 = -np.sin(theta) - 1.6 * np.cos(2 * theta)
        self.graph = od.NeighborGraph.build(self.X, radius=1.4)
        # a global ordering and a noise, with their derivatives
        self.l, self.l1 = np.sin(theta + 1), np.cos(theta + 1)
        self.rho, self.rho1 = 1 + 0.3 * np.sin(theta), 0.3 * np.cos(theta)

    def wrapped(self, i, j):
        """l = 2θ + ½ sin θ, the short way round; its gradient is 2 + ½ cos θ."""
        step = self.theta[j] - self.theta[i]
        step = step - 2 * np.pi * np.round(step / (2 * np.pi))
        return 2 * step + 0.5 * (np.sin(self.theta[j]) - np.sin(self.theta[i]))


EVEN, UNEVEN = Circle(), Circle(uneven=0.4)
WRAPPED_DRIFT = 2 + 0.5 * np.cos(EVEN.theta)
D = 0.5 * EVEN.rho**2

WITH_GRADIENT = od.Ordering(EVEN.l, gradient=EVEN.l1[:, None] * EVEN.t)

# name: (kernel, options of the operator, circle, drift, diffusion coefficient)
CASES = {
    "driftless": (od.Kernel(noise=EVEN.rho), {}, EVEN, 0.0, D),
    "global": (od.Kernel(od.Ordering(EVEN.l), noise=EVEN.rho), {}, EVEN, EVEN.l1, D),
    "speed and scale": (
        od.Kernel(od.Ordering(EVEN.l, 1.5 + np.sin(EVEN.theta), 2 + np.cos(EVEN.theta)), noise=EVEN.rho),
        {}, EVEN, (1.5 + np.sin(EVEN.theta)) / (2 + np.cos(EVEN.theta)) * EVEN.l1, D,
    ),
    "local": (od.Kernel(od.Ordering.local(EVEN.wrapped), noise=EVEN.rho), {}, EVEN, WRAPPED_DRIFT, D),
    "gradient scale": (
        od.Kernel(od.Ordering.local(EVEN.wrapped, 1.5, "gradient", WRAPPED_DRIFT[:, None] * EVEN.t), noise=EVEN.rho),
        {}, EVEN, 1.5, D,
    ),
    "time scale": (
        od.Kernel(od.Ordering.local(EVEN.wrapped, 2.0, "time", WRAPPED_DRIFT[:, None] * EVEN.t), noise=EVEN.rho),
        {}, EVEN, 2 / WRAPPED_DRIFT, D,
    ),
    "field": (od.Kernel(od.Ordering.field(EVEN.rho[:, None] * EVEN.t), noise=EVEN.rho), {}, EVEN, EVEN.rho, D),
    "cyclic": (
        od.Kernel(od.Ordering.cyclic(EVEN.theta / (2 * np.pi), 1.0, 2 * np.pi), noise=EVEN.rho), {}, EVEN, 1.0, D,
    ),
    "piecewise": (
        od.Kernel(
            od.Ordering.piecewise((EVEN.theta > np.pi).astype(int), np.stack([EVEN.l, EVEN.l + 50])), noise=EVEN.rho
        ),
        {}, EVEN, EVEN.l1, D,
    ),
    "several": (
        od.Kernel(
            [od.Ordering(EVEN.l, 0.7), od.Ordering.field(EVEN.t, speed=EVEN.rho), od.Ordering.local(EVEN.wrapped)],
            noise=EVEN.rho,
        ),
        {}, EVEN, 0.7 * EVEN.l1 + EVEN.rho + WRAPPED_DRIFT, D,
    ),
    "self-tuning": (  # the extra drift is (d+2) D ∇ρ2/ρ2
        od.Kernel(od.Ordering(EVEN.l), noise=1.2, noise_right=EVEN.rho), {}, EVEN,
        EVEN.l1 + 3 * 0.6 * EVEN.rho1, 0.6 * EVEN.rho,
    ),
    "beta": (  # the extra drift is 2D (1−β)(d+2) ∇ρ/ρ
        od.Kernel(od.Ordering(EVEN.l), noise=EVEN.rho, beta=0.4), {}, EVEN,
        EVEN.l1 + EVEN.rho * 0.6 * 3 * EVEN.rho1, D,
    ),
    "Stratonovich": (
        od.Kernel(noise=EVEN.rho, beta=1 - 1 / 6), {}, EVEN, 0.5 * EVEN.rho * EVEN.rho1, D,
    ),
    "alpha 1": (
        od.Kernel(od.Ordering(UNEVEN.l), noise=1.0), {"density": 3 * UNEVEN.q}, UNEVEN, UNEVEN.l1, 0.5,
    ),
    "alpha 0.3": (  # the extra drift is 2D (1−α) ∇q/q
        od.Kernel(od.Ordering(UNEVEN.l), noise=1.0), {"density": UNEVEN.q, "alpha": 0.3}, UNEVEN,
        UNEVEN.l1 + 0.7 * UNEVEN.log_q_t, 0.5,
    ),
    "no density": (od.Kernel(od.Ordering(UNEVEN.l)), {}, UNEVEN, UNEVEN.l1 + UNEVEN.log_q_t, 0.5),
    "weight": (
        od.Kernel(), {"density": UNEVEN.q, "weight": np.exp(UNEVEN.l)}, UNEVEN, UNEVEN.l1, 0.5,
    ),
    "compact": (
        od.Kernel(WITH_GRADIENT, noise=EVEN.rho, profile="compact", dimension=1),
        {}, EVEN, EVEN.l1, D,
    ),
    "supergaussian": (
        od.Kernel(
            WITH_GRADIENT, noise=EVEN.rho, profile="supergaussian", dimension=1
        ),
        {}, EVEN, EVEN.l1, D,
    ),
    "compact, self-tuning": (
        od.Kernel(
            WITH_GRADIENT, noise=1.2, noise_right=EVEN.rho, profile="compact",
            dimension=1,
        ),
        {}, EVEN, EVEN.l1 + 3 * 0.6 * EVEN.rho1, 0.6 * EVEN.rho,
    ),
}  # fmt: skip


def errors(build, truth, steps, f):
    return [rms(build(eps).generator(f) - truth) for eps in steps]


def orders(values):
    return np.log2(np.array(values[:-1]) / values[1:])


@pytest.mark.parametrize("name", CASES)
def test_order_on_the_circle(name):
    kernel, options, circle, drift, diffusion = CASES[name]
    truth = drift * circle.f1 + diffusion * circle.f2
    plain = errors(lambda eps: kernel.operator(circle.graph, eps, **options), truth, [0.02, 0.01, 0.005], circle.f)
    np.testing.assert_allclose(orders(plain), 1.0, atol=0.12)
    better = errors(lambda eps: od.richardson(kernel, circle.graph, eps, **options), truth, [0.01, 0.005], circle.f)
    np.testing.assert_allclose(orders(better), 2.0, atol=0.25)
    assert better[-1] < 0.1 * plain[-1]


def test_order_of_the_adjoint_on_an_uneven_circle():
    """𝓛* f = −(μf)' + ½(ρ²f)'' on density values, whatever the sampling density."""
    c = UNEVEN
    kernel = od.Kernel(od.Ordering(c.l), noise=c.rho)
    l2, rho2_2 = -np.sin(c.theta + 1), 2 * c.rho1**2 - 2 * c.rho * 0.3 * np.sin(c.theta)
    truth = -(l2 * c.f + c.l1 * c.f1) + 0.5 * (rho2_2 * c.f + 4 * c.rho * c.rho1 * c.f1 + c.rho**2 * c.f2)
    steps = [0.02, 0.01, 0.005]
    plain = [rms(kernel.operator(c.graph, e, density=c.q).adjoint(c.f) - truth) for e in steps]
    np.testing.assert_allclose(orders(plain), 1.0, atol=0.12)
    better = [rms(od.richardson(kernel, c.graph, e, density=c.q).adjoint(c.f) - truth) for e in steps[1:]]
    np.testing.assert_allclose(orders(better), 2.0, atol=0.25)
    # the transpose alone is the adjoint on masses, and is off by a finite amount on densities
    op = kernel.operator(c.graph, 0.005, density=c.q)
    assert rms((op.forward(c.f) - c.f) / op.eps - truth) > 0.1


# ------------------------------------------------------------------------------------------------ anisotropic


@dataclass
class FlatTorus:
    """The flat torus in R⁴ with a tensor A = diag(a(φ), b(θ)), for which ∂_i A^{ij} = 0, and one with off-diagonal."""

    side: int = 64
    radius: float = 1.3

    def __post_init__(self):
        p = od.datasets.torus(self.side, anisotropic=True)
        self.X, self.J = p.X, p.jacobian
        self.theta, self.phi = p.coordinates.T
        self.graph = od.NeighborGraph.build(self.X, radius=self.radius)
        t, s = self.theta, self.phi
        self.f = np.sin(t) * np.sin(2 * s)
        self.gradient_f = np.stack([np.cos(t) * np.sin(2 * s), 2 * np.sin(t) * np.cos(2 * s)], 1)
        self.hessian = np.empty((len(t), 2, 2))
        self.hessian[:, 0, 0], self.hessian[:, 1, 1] = -self.f, -4 * self.f
        self.hessian[:, 0, 1] = self.hessian[:, 1, 0] = 2 * np.cos(t) * np.cos(2 * s)
        self.l = np.sin(t) + 0.5 * np.cos(s)
        self.gradient_l = np.stack([np.cos(t), -0.5 * np.sin(s)], 1)
        a, b = 1.2 + 0.3 * np.sin(s), 0.9 + 0.2 * np.cos(t)
        self.A = np.zeros((len(t), 2, 2))
        self.A[:, 0, 0], self.A[:, 1, 1] = a, b
        self.det = a * b
        self.gradient_log_det = np.stack([-0.2 * np.sin(t) / b, 0.3 * np.cos(s) / a], 1)
        self.A_off = self.A.copy()
        self.A_off[:, 0, 1] = self.A_off[:, 1, 0] = 0.3
        self.rho = 0.9

    def truth(self, drift, A):
        return np.einsum("ma,ma->m", drift, self.gradient_f) + 0.5 * self.rho**2 * np.einsum(
            "mab,mab->m", A, self.hessian
        )

    def ordering(self, **options):
        return od.Ordering(self.l, gradient=np.einsum("mna,ma->mn", self.J, self.gradient_l), **options)

    def raised(self, vector, A):
        return np.einsum("mab,mb->ma", A, vector)


TORUS = FlatTorus()
STEPS = [0.04, 0.02]
WIDE = [0.06, 0.06 / 2**0.5]  # for profiles with an edge, and for the parts of a splitting, which are narrow


def check_orders(build, better, truth, f, steps=STEPS, atol=0.12):
    halvings = np.log2(steps[0] / steps[1])
    plain = errors(build, truth, steps, f)
    np.testing.assert_allclose(orders(plain) / halvings, 1.0, atol=atol)
    extrapolated = errors(better, truth, steps, f)
    np.testing.assert_allclose(orders(extrapolated) / halvings, 2.0, atol=0.35)


@pytest.mark.parametrize("coupled", [False, True], ids=["uncoupled", "coupled"])
@pytest.mark.parametrize("ambient", [False, True], ids=["tangent", "ambient"])
def test_order_anisotropic(coupled, ambient):
    c = TORUS
    A = {"anisotropy": c.A_off, "basis": c.J}
    if ambient:
        A = {"anisotropy": c.J @ c.A_off @ c.J.transpose(0, 2, 1)}
    kernel = od.Kernel(c.ordering(), noise=c.rho, coupled=coupled, **A)
    drift = c.raised(c.gradient_l, c.A_off) if coupled else c.gradient_l
    check_orders(
        lambda eps: kernel.operator(c.graph, eps), lambda eps: od.richardson(kernel, c.graph, eps),
        c.truth(drift, c.A_off), c.f,
    )  # fmt: skip


def isotropic_cases(c):
    """Parts whose terms know the dimension, in two of them: the kernel, its drift and ρ²."""
    rho = 0.9 + 0.15 * np.sin(c.theta) + 0.1 * np.cos(c.phi)
    slope = np.stack([0.15 * np.cos(c.theta), -0.1 * np.sin(c.phi)], 1)
    mild = 0.9 + 0.08 * np.sin(c.theta) + 0.05 * np.cos(c.phi)
    return {
        "beta": (  # the extra drift is (1−β)(d+2) ρ∇ρ
            od.Kernel(c.ordering(), noise=rho, beta=0.6), c.gradient_l + 0.4 * 4 * rho[:, None] * slope, rho**2,
        ),
        "self-tuning": (  # (d+2) ½ρ1 ∇ρ2
            od.Kernel(c.ordering(), noise=0.8, noise_right=rho), c.gradient_l + 4 * 0.4 * slope, 0.8 * rho,
        ),
        "compact": (
            od.Kernel(c.ordering(), noise=mild, profile="compact", dimension=2), c.gradient_l, mild**2,
        ),
        "supergaussian": (
            od.Kernel(c.ordering(), noise=mild, profile="supergaussian", dimension=2), c.gradient_l, mild**2,
        ),
    }  # fmt: skip


@pytest.mark.parametrize("name", isotropic_cases(TORUS))
def test_order_in_two_dimensions(name):
    c = TORUS
    kernel, drift, rho2 = isotropic_cases(c)[name]
    truth = (drift * c.gradient_f).sum(axis=1) + 0.5 * rho2 * np.trace(c.hessian, axis1=1, axis2=2)
    check_orders(
        lambda eps: kernel.operator(c.graph, eps), lambda eps: od.richardson(kernel, c.graph, eps), truth, c.f,
        steps=STEPS if kernel.profile == "gaussian" else WIDE,
    )  # fmt: skip


def test_order_strang():
    c = TORUS
    kernel = od.Kernel(od.Ordering(c.l), noise=c.rho, anisotropy=c.A_off, basis=c.J)
    check_orders(
        lambda eps: od.strang(kernel, c.graph, eps, split=1 / 3),
        lambda eps: od.richardson(kernel, c.graph, eps, scheme=od.strang, split=1 / 3),
        c.truth(c.gradient_l, c.A_off),
        c.f,
        steps=WIDE,
    )


def laplace_beltrami_truth():
    """⟨∇_g l, ∇f⟩ + ½ρ²Δ_g f for g = A⁻¹: drift A∇l − ¼ρ²A∇log|A|, diffusion ½ρ²A."""
    c = TORUS
    drift = c.raised(c.gradient_l - 0.25 * c.rho**2 * c.gradient_log_det, c.A)
    return c.truth(drift, c.A)


METRIC_RECIPES = {
    "an extra ordering": lambda c: (
        od.Kernel(
            [c.ordering(), od.Ordering(-0.5 * np.log(c.det), speed=0.5 * c.rho**2)],
            noise=c.rho, anisotropy=c.A, basis=c.J, coupled=True,
        ),
        {},
    ),
    "a weight": lambda c: (
        od.Kernel(c.ordering(), noise=c.rho, anisotropy=c.A, basis=c.J, coupled=True), {"weight": c.det**-0.25},
    ),
    "self-tuning": lambda c: (
        od.Kernel(
            c.ordering(), noise=c.rho**2 * c.det ** (1 / 8), noise_right=c.det ** (-1 / 8), anisotropy=c.A, basis=c.J,
            coupled=True,
        ),
        {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", METRIC_RECIPES)
def test_order_of_the_riemannian_metric_constructions(name):
    c = TORUS
    kernel, options = METRIC_RECIPES[name](c)
    truth = laplace_beltrami_truth()
    # without the construction the limit is another operator
    naked = od.Kernel(c.ordering(), noise=c.rho, anisotropy=c.A, basis=c.J, coupled=True)
    assert rms(od.richardson(naked, c.graph, 0.02).generator(c.f) - truth) > 0.02
    check_orders(
        lambda eps: kernel.operator(c.graph, eps, **options),
        lambda eps: od.richardson(kernel, c.graph, eps, **options),
        truth,
        c.f,
        atol=0.2,
    )


def test_order_of_the_metric_construction_by_the_sampling_density():
    """α = ½ gives ½Δ_g when the samples have density q ∝ |A|^−½, the volume of the metric A⁻¹."""
    side = 60
    s = 2 * np.pi * np.arange(side) / side
    spread = 1 + 0.25 * np.cos(s)  # dθ/ds, the inverse of the density along one angle
    angle, log_slope = s + 0.25 * np.sin(s), -0.25 * np.sin(s) / spread**2  # d log(spread)/dθ
    i, j = (k.ravel() for k in np.meshgrid(np.arange(side), np.arange(side), indexing="ij"))
    theta, phi = angle[i], angle[j]
    X = np.stack([np.sin(theta), np.cos(theta), np.sin(phi), np.cos(phi)], 1)
    zero = np.zeros_like(theta)
    J = np.stack([np.stack([np.cos(theta), -np.sin(theta), zero, zero], 1),
                  np.stack([zero, zero, np.cos(phi), -np.sin(phi)], 1)], 2)  # fmt: skip
    A = np.zeros((theta.size, 2, 2))
    A[:, 0, 0], A[:, 1, 1] = spread[j] ** 2, spread[i] ** 2  # |A|^½ = spread_i spread_j = 1/q
    f = np.sin(theta) * np.sin(2 * phi)
    gradient = np.stack([np.cos(theta) * np.sin(2 * phi), 2 * np.sin(theta) * np.cos(2 * phi)], 1)
    # −¼ A∇log|A|, with log|A| = 2 log spread_i + 2 log spread_j
    drift = -0.5 * np.stack([A[:, 0, 0] * log_slope[i], A[:, 1, 1] * log_slope[j]], 1)
    truth = (drift * gradient).sum(axis=1) + 0.5 * (-A[:, 0, 0] * f - 4 * A[:, 1, 1] * f)
    graph = od.NeighborGraph.build(X, radius=1.4)
    kernel = od.Kernel(anisotropy=A, basis=J)
    options = {"density": 1 / (spread[i] * spread[j]), "alpha": 0.5}
    check_orders(
        lambda eps: kernel.operator(graph, eps, **options), lambda eps: od.richardson(kernel, graph, eps, **options),
        truth, f,
    )  # fmt: skip
