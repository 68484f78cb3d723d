"""A naive dense evaluation of the kernel formula, independent of the package, and small problems to run it on."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np
from scipy.special import gamma

import ordiff as od


@dataclass
class Surface:
    """Samples of x = (u, v, 0.3u² + 0.2uv) with all that any kernel might ask for, known exactly."""

    m: int = 30
    seed: int = 3
    X: np.ndarray = field(init=False)

    def __post_init__(self):
        rng = np.random.default_rng(self.seed)
        u, v = rng.uniform(-1, 1, (2, self.m))
        self.X = np.stack([u, v, 0.3 * u**2 + 0.2 * u * v], axis=1)
        zero, one = np.zeros(self.m), np.ones(self.m)
        self.J = np.stack([np.stack([one, zero, 0.6 * u + 0.2 * v], 1), np.stack([zero, one, 0.2 * u], 1)], axis=2)
        root = 0.6 * rng.normal(size=(self.m, 2, 2))
        self.A = root @ root.transpose(0, 2, 1) + 0.5 * np.eye(2)
        self.noise, self.noise_right, self.q = rng.uniform(0.5, 1.5, (3, self.m))
        self.l, self.speed = rng.normal(size=self.m), rng.uniform(0.5, 2, self.m)
        self.scale = rng.uniform(0.5, 2, self.m)
        self.gradients = [0.3 * np.einsum("mna,ma->mn", self.J, rng.normal(size=(self.m, 2))) for _ in range(3)]
        self.gradients.append(self.J @ np.array([1.0, 0.5]))
        self.phase = rng.uniform(0, 5, self.m)
        self.labels = rng.integers(0, 3, self.m)
        self.table = rng.normal(size=(3, self.m))

    def moved(self, rotation, shift, order):
        """The same samples after a rigid motion and in another order, with everything carried along."""
        other = Surface(self.m, self.seed)
        other.X = (self.X @ rotation.T + shift)[order]
        other.J = np.einsum("ij,mja->mia", rotation, self.J)[order]
        other.gradients = [(g @ rotation.T)[order] for g in self.gradients]
        other.table = self.table[:, order]
        for name in ("A", "noise", "noise_right", "q", "l", "speed", "scale", "phase", "labels"):
            setattr(other, name, getattr(self, name)[order])
        return other


# Each choice of a part: a name, and the keyword arguments (or the orderings) that it stands for.
ORDERINGS = {
    "none": lambda s: [],
    "global": lambda s: [od.Ordering(s.l, s.speed, s.scale, s.gradients[0])],
    "gradient": lambda s: [od.Ordering(s.l, 0.4, "gradient", s.gradients[0])],
    "time": lambda s: [od.Ordering(s.l, 0.3, "time", s.gradients[3])],
    "local": lambda s: [od.Ordering.local(lambda i, j: np.sin(s.l[j] - s.l[i]), s.speed, 2.0, s.gradients[1])],
    "field": lambda s: [od.Ordering.field(s.gradients[0], s.speed)],
    "cyclic": lambda s: [od.Ordering.cyclic(s.phase, 5.0, 1.0, s.scale, s.gradients[1])],
    "piecewise": lambda s: [od.Ordering.piecewise(s.labels, s.table, s.speed, 1.0, s.gradients[2])],
    "several": lambda s: [ORDERINGS[name](s)[0] for name in ("global", "field", "piecewise", "cyclic")],
}
METRICS = {
    "euclidean": lambda s: {},
    "tangent": lambda s: {"anisotropy": s.A, "basis": s.J},
    "ambient": lambda s: {"anisotropy": s.J @ s.A @ s.J.transpose(0, 2, 1), "normal_weight": 0.5},
    "coupled": lambda s: {"anisotropy": s.A, "basis": s.J, "coupled": True},
    "coupled ambient": lambda s: {"anisotropy": s.J @ s.A @ s.J.transpose(0, 2, 1), "coupled": True},
}
BANDWIDTHS = {
    "constant": lambda s: {"noise": 0.8},
    "one-sided": lambda s: {"noise": s.noise},
    "self-tuning": lambda s: {"noise": s.noise, "noise_right": s.noise_right},
    "beta": lambda s: {"noise": s.noise, "beta": 0.3},
}
# the compact profile is widened by σ_h², so all pairs of the small surface are inside it
PROFILES = ("gaussian", "compact", "supergaussian")
COMBINATIONS = list(itertools.product(ORDERINGS, METRICS, BANDWIDTHS, PROFILES))


def make_kernel(s, ordering, metric, bandwidth, profile, extra=()):
    orderings = [*ORDERINGS[ordering](s), *extra]
    return od.Kernel(orderings or None, profile=profile, dimension=2, **METRICS[metric](s), **BANDWIDTHS[bandwidth](s))


def naive_differences(s, kind):
    """Δl(i, j), (m, m), written out for each kind of ordering; with (τ, κ, ∇l)."""
    l, m = s.l, s.m
    g = s.gradients
    norm = lambda v: np.linalg.norm(v, axis=1)  # noqa: E731
    full = np.ones(m)
    if kind == "global":
        return l[None, :] - l[:, None], s.speed, s.scale, g[0]
    if kind == "gradient":
        return l[None, :] - l[:, None], 0.4 * full, norm(g[0]), g[0]
    if kind == "time":
        return l[None, :] - l[:, None], 0.3 * full, norm(g[3]) ** 2, g[3]
    if kind == "local":
        return np.sin(l[None, :] - l[:, None]), s.speed, 2 * full, g[1]
    if kind == "field":
        return np.array([(s.X - s.X[i]) @ g[0][i] for i in range(m)]), s.speed, full, g[0]
    if kind == "cyclic":
        step = (s.phase[None, :] - s.phase[:, None] + 2.5) % 5.0 - 2.5
        return step, full, s.scale, g[1]
    if kind == "piecewise":
        delta = np.array([s.table[s.labels[i]] - s.table[s.labels[i], i] for i in range(m)])
        return delta, s.speed, full, g[2]
    raise KeyError(kind)


def naive_operator(s, ordering, metric, bandwidth, profile, eps, alpha):
    """P by the formula sheet, section 1 and 3, row by row and with no cleverness. The density is s.q."""
    m, d = s.m, 2
    kinds = {"none": [], "several": ["global", "field", "piecewise", "cyclic"]}.get(ordering, [ordering])
    terms = [naive_differences(s, kind) for kind in kinds]
    P = np.empty((m, m))
    sigma2 = {
        "gaussian": 1.0,
        "compact": 1.0 / (d + 2 * 3 + 2),
        "supergaussian": gamma((d + 2) / 4) / (d * gamma(d / 4)),
    }[profile]
    for i in range(m):
        J = s.J[i]
        g = np.linalg.inv(J.T @ J)
        projector = J @ g @ J.T
        A_amb = J @ s.A[i] @ J.T
        weight = 0.5 if metric == "ambient" else 1.0
        B = J @ g @ np.linalg.inv(s.A[i]) @ g @ J.T
        B = B + weight / np.linalg.eigvalsh(A_amb)[-1] * (np.eye(3) - projector)
        z = s.X - s.X[i]  # to every j
        square = ((z if metric == "euclidean" else z @ B) * z).sum(axis=1)
        order, constant, drift = np.zeros(m), 0.0, np.zeros(3)
        for delta, tau, kappa, gradient in terms:
            slope = tau[i] / kappa[i]
            # uncoupled: the tangent part of the gradient, lowered by A⁻¹
            tangent = projector @ gradient[i]
            if metric in ("tangent", "ambient"):
                order += slope * z @ (B @ tangent)
                drift += slope * tangent
            else:
                order += slope * delta[i]
                drift += slope * gradient[i]
            constant += tau[i] ** 2
        if profile != "gaussian":  # completes the square of the whole drift
            square_in = np.eye(3) if metric == "euclidean" else A_amb if "coupled" in metric else B
            constant = drift @ square_in @ drift
        b = {
            "constant": 0.64,
            "one-sided": s.noise[i] ** 2,
            "self-tuning": s.noise[i] * s.noise_right,
            "beta": s.noise[i] ** 0.6 * s.noise**1.4,
        }[bandwidth]
        u = (square / eps - 2 * order + eps * constant) * sigma2 / b
        if profile == "gaussian":
            P[i] = np.exp(-u / 2)
        else:
            u = np.maximum(u, 0.0)
            P[i] = np.maximum(1 - u, 0.0) ** 3 if profile == "compact" else np.exp(-(u**2))
        P[i] *= s.q**-alpha
        P[i] /= P[i].sum()
    return P
