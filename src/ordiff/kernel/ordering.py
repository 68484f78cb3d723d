"""Orderings: the direction of the process, Δl(i,j), with its speed τ and scale κ.

An ordering is one of three forms, and the kernel sums any number of them:

    tabulated  Δl = values[row_i, j] − values[row_i, i]     global (one row), piecewise (the row of i's phase)
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

from ordiff import _validation
from ordiff._validation import Array, IntArray
from ordiff.geometry import TangentSpaces, usual_neighbors
from ordiff.graph import NeighborGraph

EdgeFunction = Callable[[IntArray, IntArray], Any]


@dataclass(frozen=True, eq=False)
class Tabulated:
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
        X = _validation.need_points(graph.X, "an ordering by a vector field")
        return np.einsum("...c,...c->...", self.vectors[i], X[j] - X[i])


@dataclass(frozen=True, eq=False)
class Function:
    """A function of two index arrays. Only ``pure`` ones, those of this module, are called from several threads."""

    fn: EdgeFunction
    pure: bool = False

    def differences(self, graph: NeighborGraph, i: IntArray, j: IntArray) -> Array:
        rows, columns = i.ravel(), j.ravel()
        values = _validation.as_float(self.fn(rows, columns), "the local ordering")
        if values.shape != rows.shape:
            raise ValueError(
                f"the local ordering must return one value per pair: it got index arrays of shape {rows.shape} and "
                f"returned shape {values.shape}."
            )
        bad = ~np.isfinite(values) | ((rows == columns) & (np.abs(values) > 1e-9))
        if bad.any():
            at = int(np.argmax(bad))
            needs = "it must be 0" if rows[at] == columns[at] else "it must be finite"
            raise ValueError(
                f"the local ordering is {values[at]:g} for the pair ({rows[at]}, {columns[at]}), where {needs}."
            )
        return values.reshape(i.shape)


@dataclass(frozen=True, eq=False)
class _CyclicDifference:
    """Differences of a phase modulo its period, between −period/2 and period/2."""

    phase: Array
    period: float

    def __call__(self, i: IntArray, j: IntArray) -> Array:
        step = self.phase[j] - self.phase[i]
        return step - self.period * np.round(step / self.period)


@dataclass(frozen=True, eq=False)
class _PartialOrder:
    """The least of the differences in several orders."""

    values: Array

    def __call__(self, i: IntArray, j: IntArray) -> Array:
        return np.min([row[j] - row[i] for row in self.values], axis=0)


class Ordering:
    """A global ordering: one value per sample, increasing along the process.

    values: (m,), pseudotime, −potential, or times.
    speed: τ, a number or (m,). scale: κ, a positive number or (m,), "gradient" or "time".
    gradient: ∇l in ambient coordinates, (m, n), when known; otherwise it is estimated by local PCA where it is
    needed (scale "gradient" or "time", uncoupled anisotropy, profiles other than the gaussian).

    Other kinds are made by `times`, `local`, `field`, `cyclic`, `piecewise`, `partial` and `lineages`.

    >>> import numpy as np, ordiff as od
    >>> x = np.linspace(-1, 1, 201).reshape(-1, 1)
    >>> graph = od.NeighborGraph.build(x, radius=0.5)
    >>> op = od.Kernel(od.Ordering(-0.5 * 3.0 * x[:, 0] ** 2), noise=0.5).operator(graph, eps=0.01)
    >>> bool(abs(op.generator(x[:, 0])[120] + 3.0 * x[120, 0]) < 0.02)     # the drift is the gradient, −3x
    True

    A pseudotime has no units of its own: with scale "gradient" the speed is the same everywhere.

    >>> pseudotime = np.exp(x[:, 0])
    >>> order = od.Ordering(pseudotime, speed=2.0, scale="gradient")
    >>> op = od.Kernel(order, noise=0.5).operator(graph, eps=0.005)
    >>> bool(abs(od.velocity(op)[[60, 120], 0] - 2.0).max() < 0.1)
    True
    >>> od.Ordering([0.0, 0.5, float("nan")])
    Traceback (most recent call last):
    ValueError: the ordering has 1 value(s) that are NaN or infinite, the first at index 2. Remove ...
    """

    def __init__(
        self, values: ArrayLike, speed: ArrayLike = 1.0, scale: ArrayLike | str = 1.0, gradient: ArrayLike | None = None
    ) -> None:
        l = _validation.as_float(values, "the ordering")
        l = _validation.nodes(l, l.size, "the ordering").copy()
        self._set(Tabulated(l[None, :], np.zeros(l.size, np.uint32)), l.size, speed, scale, gradient)

    def _set(
        self,
        form: Tabulated | Field | Function,
        n_points: int | None,
        speed: ArrayLike,
        scale: ArrayLike | str,
        gradient: ArrayLike | None,
    ) -> None:
        if isinstance(scale, str):
            _validation.option(scale, "scale", ("gradient", "time"))
        if isinstance(speed, str):
            raise ValueError(f'speed must be a number or an (m,) array; got {speed!r} ("gradient", "time" are scales).')
        self.form, self.n_points = form, n_points
        # copies: what is changed later outside changes nothing here
        self.speed: ArrayLike = _validation.as_float(speed, "speed").copy()
        self.scale: ArrayLike | str = scale if isinstance(scale, str) else _validation.as_float(scale, "scale").copy()
        self.gradient = None if gradient is None else _validation.points(gradient, "gradient").copy()

    @classmethod
    def _make(cls, form: Any, n_points: int | None, speed: Any, scale: Any, gradient: Any) -> Ordering:
        self = cls.__new__(cls)
        self._set(form, n_points, speed, scale, gradient)
        return self

    @classmethod
    def times(cls, times: ArrayLike, speed: ArrayLike = 1.0, gradient: ArrayLike | None = None) -> Ordering:
        """The time at which the process passes each sample, (m,): the drift is ∇t/‖∇t‖², so t grows as time does.

        The times must vary smoothly over the samples (see `smooth`); sampling times of snapshots do not, learn those.

        >>> import numpy as np, ordiff as od
        >>> x = np.linspace(1, 2, 200).reshape(-1, 1)
        >>> graph = od.NeighborGraph.build(x, radius=0.2)
        >>> order = od.Ordering.times(np.log(x[:, 0]))               # dx/dt = x passes x at log x
        >>> op = od.Kernel(order, noise=0.3).operator(graph, eps=0.01)
        >>> bool(abs(od.velocity(op)[100, 0] - x[100, 0]) < 0.05)
        True
        """
        return cls(times, speed, "time", gradient)

    @classmethod
    def local(
        cls,
        fn: EdgeFunction,
        speed: ArrayLike = 1.0,
        scale: ArrayLike | str = 1.0,
        gradient: ArrayLike | None = None,
    ) -> Ordering:
        """A local ordering: ``fn(i, j)`` returns l(x_i, x_j) for index arrays i, j; l(x, x) = 0.

        >>> import numpy as np, ordiff as od
        >>> angle = 2 * np.pi * np.arange(300) / 300
        >>> graph = od.NeighborGraph.build(np.stack([np.cos(angle), np.sin(angle)], axis=1), k=40)
        >>> order = od.Ordering.local(lambda i, j: 2 * np.sin(angle[j] - angle[i]))
        >>> op = od.Kernel(order, noise=0.5).operator(graph, eps=0.01)
        >>> speed = (od.velocity(op) * np.stack([-np.sin(angle), np.cos(angle)], axis=1)).sum(axis=1)
        >>> bool(abs(speed - 2).max() < 0.05)                        # twice round the circle, for ever
        True
        """
        if not callable(fn):
            raise ValueError(f"Ordering.local takes a function of two index arrays; got {type(fn).__name__}.")
        return cls._make(Function(fn), None, speed, scale, gradient)

    @classmethod
    def field(
        cls,
        V: ArrayLike,
        speed: ArrayLike = 1.0,
        scale: ArrayLike | str = 1.0,
        tangents: TangentSpaces | None = None,
    ) -> Ordering:
        """A drift field, V (m, n): l(x, y) = ⟨V(x), y − x⟩, so the drift is (τ/κ) times V's tangent part.

        tangents: project V on these first, for a field that points off the data, such as RNA velocity.

        >>> import numpy as np, ordiff as od
        >>> X = od.datasets.torus(50).X
        >>> graph = od.NeighborGraph.build(X, k=60)
        >>> around = np.stack([X[:, 1], -X[:, 0], 0 * X[:, 0], 0 * X[:, 0]], axis=1)
        >>> measured = around + 0.3 * X                              # a velocity with a part off the torus
        >>> order = od.Ordering.field(measured, tangents=od.TangentSpaces.fit(graph))
        >>> op = od.Kernel(order, noise=0.5).operator(graph, eps=0.02)
        >>> bool(abs(od.velocity(op, "symmetric") - around).max() < 0.06)
        True
        """
        V = _validation.points(V, "V").copy()
        if tangents is not None:
            _validation.instance(tangents, "tangents", TangentSpaces)
            V = tangents.project(V)
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
        """A phase on a cycle, (m,): Δl is the shortest way round, between −period/2 and period/2.

        >>> import numpy as np, ordiff as od
        >>> hour = np.arange(0, 24, 0.1)
        >>> angle = 2 * np.pi * hour / 24
        >>> graph = od.NeighborGraph.build(np.stack([np.cos(angle), np.sin(angle)], axis=1), k=40)
        >>> order = od.Ordering.cyclic(hour, period=24, scale="time")  # one hour per unit of time
        >>> op = od.Kernel(order, noise=0.1).operator(graph, eps=0.2)
        >>> mass = op.forward(np.eye(240)[230], steps=10)            # 23:00, two hours later
        >>> float(hour[np.argmax(mass)])
        1.0
        """
        phi = _validation.nodes(phase, np.size(phase), "phase").copy()
        difference = _CyclicDifference(phi, _validation.positive(period, "period"))
        return cls._make(Function(difference, pure=True), phi.size, speed, scale, gradient)

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
        ordering of each phase at every sample; Δl(i,j) uses the ordering of i's phase.

        >>> import numpy as np, ordiff as od
        >>> x = np.linspace(0, 2, 201).reshape(-1, 1)
        >>> graph = od.NeighborGraph.build(x, radius=0.3)
        >>> early, late = x[:, 0], 3 * x[:, 0]                       # three times as fast in the second phase
        >>> order = od.Ordering.piecewise((x[:, 0] > 1).astype(int), [early, late])
        >>> velocity = od.velocity(od.Kernel(order, noise=0.3).operator(graph, eps=0.01))[:, 0]
        >>> bool(abs(velocity[50] - 1) < 0.01), bool(abs(velocity[150] - 3) < 0.01)
        (True, True)
        """
        table = _validation.table(values, "values", "labels").copy()
        m = table.shape[1]
        return cls._make(Tabulated(table, _validation.labels(labels, m, len(table))), m, speed, scale, gradient)

    @classmethod
    def partial(
        cls,
        values: ArrayLike,
        speed: ArrayLike = 1.0,
        scale: ArrayLike | str = 1.0,
        gradient: ArrayLike | None = None,
    ) -> Ordering:
        """A partial order given by several orders, (n_orders, m): y is ahead of x when it is ahead in all of them.

        Δl(x, y) is the infimum over k of l_k(y) − l_k(x) (appendix B of the paper). Unlike a list of orderings, whose
        drifts add, it pulls towards what no order objects to. It is not smooth at x, so ∇l has no meaning for it.

        >>> import numpy as np, ordiff as od
        >>> X = np.stack(np.meshgrid(np.arange(21.0), np.arange(21.0)), axis=-1).reshape(-1, 2)
        >>> graph = od.NeighborGraph.build(X, radius=4.0)
        >>> op = od.Kernel(od.Ordering.partial(X.T)).operator(graph, eps=1.0)
        >>> drift = od.velocity(op)[220]                             # ahead in both, and equally
        >>> bool(drift[0] > 0.1), bool(abs(drift[0] - drift[1]) < 1e-9)
        (True, True)
        """
        table = _validation.table(values, "values", "orders").copy()
        return cls._make(Function(_PartialOrder(table), pure=True), table.shape[1], speed, scale, gradient)

    @classmethod
    def lineages(
        cls,
        distances: ArrayLike,
        weights: ArrayLike | None = None,
        speed: float = 1.0,
        scale: ArrayLike | str = "gradient",
    ) -> list[Ordering]:
        """Orderings towards several terminal states, from the distance of every sample to each, (n_lineages, m).

        weights: how much each lineage draws a sample, (n_lineages, m), for instance fate probabilities; equal if not
        given. The speeds are ``speed`` times the weights, scaled to sum to 1 at each sample.

        >>> import numpy as np, ordiff as od
        >>> X = np.random.default_rng(0).uniform(-1, 1, (1500, 2))
        >>> graph = od.NeighborGraph.build(X, k=60)
        >>> ends = np.array([[1.0, 1.0], [1.0, -1.0]])
        >>> distances = np.linalg.norm(X - ends[:, None], axis=2)
        >>> order = od.Ordering.lineages(distances)
        >>> op = od.Kernel(order, noise=0.4).operator(graph, eps=0.01, density="knn")
        >>> bool(od.velocity(op, "symmetric")[np.abs(X).max(axis=1) < 0.3, 0].mean() > 0.5)     # to the right
        True
        """
        table, speed = _validation.table(distances, "distances", "lineages"), _validation.number(speed, "speed")
        share = np.ones_like(table) if weights is None else _validation.node_vectors(weights, table.shape, "weights")
        total = share.sum(axis=0)
        if not ((share >= 0).all() and (total > 0).all()):
            at = int(np.argmax((share < 0).any(axis=0) | (total <= 0)))
            raise ValueError(f"weights must not be negative, and must not all be 0 at a sample; see index {at}.")
        return [cls(-row, speed * part / total, scale) for row, part in zip(table, share, strict=True)]

    def differences(self, graph: NeighborGraph, i: IntArray, j: IntArray) -> Array:
        """Δl(i, j) for arrays of index pairs of any one shape."""
        return self.form.differences(graph, i, j)

    def edge_differences(self, graph: NeighborGraph) -> Array:
        """Δl on all edges of a graph, (E,)."""
        return self.differences(graph, graph.sources(), graph.indices.astype(np.intp))

    def check(self, graph: NeighborGraph) -> None:
        """The ordering is for this many samples."""
        if self.n_points is not None and self.n_points != graph.n_points:
            raise ValueError(f"the ordering is for {self.n_points} samples, but the graph has {graph.n_points}.")
        if self.gradient is not None and graph.X is not None:
            _validation.node_vectors(self.gradient, graph.X.shape, "V" if isinstance(self.form, Field) else "gradient")

    def on(self, graph: NeighborGraph, dimension: int | None = None) -> Ordering:
        """The same ordering with its gradient worked out, on data of this dimension if it is known."""
        return self._make(self.form, self.n_points, self.speed, self.scale, self.gradient_on(graph, dimension))

    def gradient_on(self, graph: NeighborGraph, dimension: int | None = None) -> Array:
        """∇l at the samples, (m, n): as given, or by local PCA."""
        if self.gradient is not None:
            X = _validation.need_points(graph.X, "a gradient")
            return _validation.node_vectors(self.gradient, X.shape, "gradient")
        tangents = TangentSpaces.fit(graph, k=usual_neighbors(graph, 20), dimension=dimension)
        i = np.broadcast_to(np.arange(graph.n_points)[:, None], tangents.neighbors.shape)
        return tangents.gradient_from(self.differences(graph, i, tangents.neighbors))

    def speed_on(self, graph: NeighborGraph) -> Array:
        """τ, (m,)."""
        return _validation.node_or_scalar(self.speed, graph.n_points, "speed")

    def slope_on(self, graph: NeighborGraph) -> Array:
        """τ/κ, (m,). Under the scale "gradient" it is 0 where ∇l is 0: no direction, no drift."""
        tau = self.speed_on(graph)
        if not isinstance(self.scale, str):
            return tau / _validation.node_or_scalar(self.scale, graph.n_points, "scale", positive=True)
        norm = np.linalg.norm(self.gradient_on(graph), axis=1)
        if self.scale == "gradient":
            return np.divide(tau, norm, out=np.zeros_like(tau), where=norm > 0)
        if not (norm > 1e-9 * np.median(norm)).all():
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
    if isinstance(ordering, list | tuple) and not all(isinstance(one, int | float | np.number) for one in ordering):
        # a list of orderings; lineages() gives a list of its own
        flat = [one for some in ordering for one in (some if isinstance(some, list | tuple) else [some])]
        if not all(isinstance(one, Ordering) for one in flat):
            raise ValueError("a list of orderings must hold Ordering objects only: wrap each array in Ordering(...).")
        return tuple(flat)
    return () if isinstance(ordering, list | tuple) and not ordering else (Ordering(ordering),)
