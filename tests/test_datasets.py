"""The analytic truth of the problems, against finite differences of their own definitions."""

from __future__ import annotations

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
