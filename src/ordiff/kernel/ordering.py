"""Orderings: the direction of the process, Δl(i,j), with its speed τ and scale κ.

An ordering is one of three forms, and the kernel sums any number of them:

    table      Δl = values[row_i, j] − values[row_i, i]     global (one row), piecewise (the row of i's phase)
    field      Δl = ⟨V_i, x_j − x_i⟩                        any drift field
    function   Δl = l(i, j), with l(i, i) = 0               local, cyclic

The drift is (τ/κ)∇l. The scale removes the units of l: 1 when l is a potential, ‖∇l‖ ("gradient") when only the order
means something, so that the speed is τ everywhere, and ‖∇l‖² ("time") when l is the time at which a point is passed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ordiff import _check
from ordiff._check import Array, IntArray
from ordiff.geometry import TangentSpaces, tangent_neighbors
from ordiff.graph import NeighborGraph

EdgeFunction = Callable[[IntArray, IntArray], Any]


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of values, (R, m), and which row each sample uses, (m,)."""

    values: Array
    row: NDArray[np.uint32]

    def differences(self, graph: NeighborGraph, i: IntArray, j: IntArray) -> Array:
        row = self.row[i]
        return self.values[row, j] - self.values[row, i]


@dataclass(frozen=True, eq=False)
class Field:
    """One vector a sample, (m, n)."""

    vectors: Array

    def differences(self, graph: NeighborGraph, i: IntArray, j: IntArray) -> Array:
        X = _check.need_points(graph.X, "an ordering by a vector field")
        return np.einsum("...c,...c->...", self.vectors[i], X[j] - X[i])


@dataclass(frozen=True, eq=False)
class Function:
    """A function of two index arrays. ``pure`` functions are ours, and safe to call from several threads."""

    fn: EdgeFunction
    pure: bool = False

    def differences(self, graph: NeighborGraph, i: IntArray, j: IntArray) -> Array:
        values = np.asarray(self.fn(i, j), dtype=np.float64)
        if values.shape != i.shape:
            raise ValueError(
                f"the local ordering must return one value per pair: it got index arrays of shape {i.shape} and "
                f"returned shape {values.shape}."
            )
        if not np.isfinite(values).all():
            at = np.flatnonzero(~np.isfinite(values.ravel()))[0]
            raise ValueError(
                f"the local ordering is {values.ravel()[at]} for the pair ({i.ravel()[at]}, {j.ravel()[at]})."
            )
        return values


class Ordering:
    """A global ordering: one value per sample, increasing along the process.

    values: (m,), pseudotime, −potential, or times.
    speed: τ, a number or (m,). scale: κ, a positive number or (m,), "gradient" or "time".
    gradient: ∇l in ambient coordinates, (m, n), when known; otherwise it is estimated by local PCA where it is
    needed (scale "gradient" or "time", uncoupled anisotropy, profiles other than the gaussian).

    Other kinds are made by `local`, `field`, `cyclic` and `piecewise`, with the same options.

    >>> import numpy as np, ordiff as od
    >>> x = np.linspace(-1, 1, 201).reshape(-1, 1)
    >>> graph = od.NeighborGraph.build(x, radius=0.5)
    >>> op = od.Kernel(od.Ordering(-0.5 * 3.0 * x[:, 0] ** 2), noise=0.5).operator(graph, eps=0.01)
    >>> bool(abs(op.generator(x[:, 0])[120] + 3.0 * x[120, 0]) < 0.02)     # the drift is the gradient, −3x
    True
    """

    def __init__(
        self, values: ArrayLike, speed: ArrayLike = 1.0, scale: ArrayLike | str = 1.0, gradient: ArrayLike | None = None
    ) -> None:
        l = _check.nodes(values, np.size(values), "the ordering").copy()
        self._set(Table(l[None, :], np.zeros(l.size, np.uint32)), l.size, speed, scale, gradient)

    def _set(
        self,
        form: Table | Field | Function,
        n_points: int | None,
        speed: ArrayLike,
        scale: ArrayLike | str,
        gradient: ArrayLike | None,
    ) -> None:
        if isinstance(scale, str):
            _check.option(scale, "scale", ("gradient", "time"))
        if isinstance(speed, str):
            raise ValueError(f'speed must be a number or an (m,) array; got {speed!r} ("gradient", "time" are scales).')
        self.form, self.n_points, self.speed, self.scale, self.gradient = form, n_points, speed, scale, gradient

    @classmethod
    def _make(cls, form: Any, n_points: int | None, speed: Any, scale: Any, gradient: Any) -> Ordering:
        self = cls.__new__(cls)
        self._set(form, n_points, speed, scale, gradient)
        return self

    @classmethod
    def local(
        cls,
        fn: EdgeFunction,
        speed: ArrayLike = 1.0,
        scale: ArrayLike | str = 1.0,
        gradient: ArrayLike | None = None,
    ) -> Ordering:
        """A local ordering: ``fn(i, j)`` returns l(x_i, x_j) for index arrays i, j; l(x, x) = 0."""
        if not callable(fn):
            raise ValueError(f"Ordering.local takes a function of two index arrays; got {type(fn).__name__}.")
        return cls._make(Function(fn), None, speed, scale, gradient)

    @classmethod
    def field(cls, V: ArrayLike, speed: ArrayLike = 1.0, scale: ArrayLike | str = 1.0) -> Ordering:
        """The drift field itself, V (m, n): l(x, y) = ⟨V(x), y − x⟩, so the drift is (τ/κ) times V's tangent part."""
        V = _check.points(V, "V").copy()
        return cls._make(Field(V), len(V), speed, scale, V)

    @classmethod
    def cyclic(
        cls,
        phase: ArrayLike,
        period: float,
        speed: ArrayLike = 1.0,
        scale: ArrayLike | str = 1.0,
        gradient: ArrayLike | None = None,
    ) -> Ordering:
        """A phase on a cycle, (m,): Δl is the shortest way round, between −period/2 and period/2."""
        phi = _check.nodes(phase, np.size(phase), "phase").copy()
        period = _check.positive(period, "period")

        def shortest(i: IntArray, j: IntArray) -> Array:
            step = phi[j] - phi[i]
            return step - period * np.round(step / period)

        return cls._make(Function(shortest, pure=True), phi.size, speed, scale, gradient)

    @classmethod
    def piecewise(
        cls,
        labels: ArrayLike,
        values: ArrayLike,
        speed: ArrayLike = 1.0,
        scale: ArrayLike | str = 1.0,
        gradient: ArrayLike | None = None,
    ) -> Ordering:
        """One ordering per phase: ``labels`` (m,) is the phase that a sample is in, ``values`` (n_labels, m) the
        ordering of each phase at every sample; Δl(i,j) uses the ordering of i's phase."""
        table = _check.points(values, "values", minimum=1).copy()
        m = table.shape[1]
        return cls._make(Table(table, _check.labels(labels, m, len(table))), m, speed, scale, gradient)

    def differences(self, graph: NeighborGraph, i: IntArray, j: IntArray) -> Array:
        """Δl(i, j) for arrays of index pairs of any one shape."""
        return self.form.differences(graph, i, j)

    def check(self, graph: NeighborGraph) -> None:
        """The ordering is for this many samples."""
        if self.n_points is not None and self.n_points != graph.n_points:
            raise ValueError(f"the ordering is for {self.n_points} samples, but the graph has {graph.n_points}.")

    def gradient_on(self, graph: NeighborGraph) -> Array:
        """∇l at the samples, (m, n): as given, or by local PCA."""
        if self.gradient is not None:
            X = _check.need_points(graph.X, "a gradient")
            return _check.node_vectors(self.gradient, X.shape, "gradient")
        k = tangent_neighbors(graph)
        if k < 2:
            raise _check.GraphError(
                "the gradient of the ordering must be estimated, but a sample has fewer than 2 neighbours: give "
                "gradient=, or build the graph with more neighbours."
            )
        tangents = TangentSpaces.fit(graph, k=k)
        i = np.broadcast_to(np.arange(graph.n_points)[:, None], tangents.neighbors.shape)
        return tangents.gradient_from(self.differences(graph, i, tangents.neighbors))

    def speed_on(self, graph: NeighborGraph) -> Array:
        """τ, (m,)."""
        return _check.node_or_scalar(self.speed, graph.n_points, "speed")

    def slope_on(self, graph: NeighborGraph) -> Array:
        """τ/κ, (m,). Under the scale "gradient" it is 0 where ∇l is 0: no direction, no drift."""
        tau = self.speed_on(graph)
        if not isinstance(self.scale, str):
            return tau / _check.node_or_scalar(self.scale, graph.n_points, "scale", positive=True)
        norm = np.linalg.norm(self.gradient_on(graph), axis=1)
        if self.scale == "gradient":
            return np.divide(tau, norm, out=np.zeros_like(tau), where=norm > 0)
        if not (norm > 0).all():
            raise ValueError(
                f"the times are constant around sample {int(np.argmin(norm))}, so the speed there would be infinite: "
                'use scale="gradient", or smooth the times first.'
            )
        return tau / norm**2


def as_orderings(ordering: Any) -> tuple[Ordering, ...]:
    """None, one ordering (or plain values), or several, as a tuple."""
    if ordering is None:
        return ()
    if isinstance(ordering, Ordering):
        return (ordering,)
    if isinstance(ordering, list | tuple) and any(isinstance(one, Ordering) for one in ordering):
        if not all(isinstance(one, Ordering) for one in ordering):
            raise ValueError("a list of orderings must hold Ordering objects only.")
        return tuple(ordering)
    return (Ordering(ordering),)
