"""The cases of the paper, run on the public functions only: what was estimated, beside the truth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ordiff import datasets
from ordiff._check import Array
from ordiff.datasets import Problem
from ordiff.fields import mean_curvature, velocity
from ordiff.graph import NeighborGraph
from ordiff.kernel.compose import Kernel
from ordiff.kernel.ordering import Ordering
from ordiff.kernel.schemes import richardson, strang
from ordiff.operator import Generator


def _rms(values: Array) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


@dataclass(frozen=True, eq=False)
class TorusRow:
    """One scheme on the torus: the generator and its adjoint on the test function, and their rms errors."""

    scheme: str
    eps: float
    problem: Problem
    generator: Array
    adjoint: Array

    @property
    def errors(self) -> tuple[float, float]:
        assert self.problem.generator is not None
        assert self.problem.adjoint is not None
        return _rms(self.generator - self.problem.generator), _rms(self.adjoint - self.problem.adjoint)


def torus() -> Iterator[TorusRow]:
    """The schemes of the operator table, one after the other, on the 100 × 100 torus."""
    plain, tensor = datasets.torus(100), datasets.torus(100, anisotropic=True)
    # far enough for the widest step, six standard deviations of the Richardson splitting
    graph = NeighborGraph.build(plain.X, radius=1.1)
    order = Ordering.local(plain.ordering)  # type: ignore[arg-type]
    isotropic = Kernel(order, noise=plain.noise)
    split = Kernel(order, noise=tensor.noise, anisotropy=tensor.anisotropy, basis=tensor.jacobian)
    direct = Kernel(
        Ordering.field(tensor.drift), noise=tensor.noise, anisotropy=tensor.anisotropy, basis=tensor.jacobian
    )

    def row(scheme: str, op: Generator, problem: Problem) -> TorusRow:
        f = problem.test_function
        assert f is not None
        return TorusRow(scheme, op.eps, problem, op.generator(f), op.adjoint(f))

    yield row("isotropic", isotropic.operator(graph, 0.0013), plain)
    yield row("isotropic, Richardson", richardson(isotropic, graph, 0.002), plain)
    yield row("anisotropic, Strang", strang(split, graph, 0.0063), tensor)
    yield row("anisotropic, Strang, Richardson", richardson(split, graph, 0.01, scheme=strang), tensor)
    yield row("anisotropic, direct", direct.operator(graph, 0.0021), tensor)
    yield row("anisotropic, direct, Richardson", richardson(direct, graph, 0.003), tensor)


@dataclass(frozen=True, eq=False)
class Spiral:
    """Velocities by kind (m, 3), the mean curvature (m, 3), and which samples are far from every edge."""

    side: int
    problem: Problem
    velocities: dict[str, Array]
    curvature: Array
    interior: Array

    def errors(self, kind: str) -> tuple[float, float]:
        """Mean error over the mean speed: in the interior, and on the first row of the grid, which is an edge."""
        error = np.linalg.norm(self.velocities[kind] - self.problem.drift, axis=1)
        speed = np.linalg.norm(self.problem.drift, axis=1)
        edge = slice(0, self.side)
        return (
            float(error[self.interior].mean() / speed[self.interior].mean()),
            float(error[edge].mean() / speed[edge].mean()),
        )

    @property
    def curvature_error(self) -> float:
        """Mean relative error of the mean curvature vector in the interior."""
        assert self.problem.curvature is not None
        error = np.linalg.norm(self.curvature - self.problem.curvature, axis=1)
        size = np.linalg.norm(self.problem.curvature, axis=1)
        return float((error / size)[self.interior].mean())


def spiral() -> Spiral:
    """Every kind of velocity, and the curvature, on the 100 × 100 spiral."""
    side, eps = 100, 0.0015
    p = datasets.spiral(side)
    graph = NeighborGraph.build(p.X, radius=0.5)
    op = Kernel(Ordering(p.ordering, scale=p.scale), noise=p.noise).operator(graph, eps)  # type: ignore[arg-type]
    velocities = {kind: velocity(op, kind) for kind in ("displacement", "symmetric", "projected", "covariance")}
    reach = 5 * p.noise * np.sqrt(eps)
    u, v = p.coordinates.T
    from_edge = np.minimum(u - u.min(), u.max() - u) * 2 * np.pi * u.min()  # at least this far in arclength
    interior = (from_edge > reach) & (v > reach) & (v < 1 - reach)
    return Spiral(side, p, velocities, mean_curvature(graph, eps, p.noise), interior)
