"""The likelihood of snapshots under a chain, and its exact gradient in one backward pass.

    Dynamics      what may be learned: step, noise, orderings and their slopes, weights of the states
    Observation   what was seen: which records of the chain, and which states, each sample looks at
    Objective     loss, gradient, per-sample likelihoods and scores on one graph

The chain starts from a mass p_0 on N states. With fractions θ_1 < … < θ_F several phases run side by side: phase f
first makes a step of length θ_f ε, then steps of length ε. Record 0 is p_0 at time 0; record 1 + sF + f is phase f
after its step s, at time (s + θ_f) ε, s = 0 … S − 1. So R = 1 + SF records, in the order of their times.

    log K_ij = −|x_j − x_i|²/(2ερ_i²) + (1/ρ_i²) Σ_k slope_k(i) Δl_k(i,j) + w_j,     P_ij = K_ij / Σ_n K_in
    loss     = −Σ_i ω_i log( Σ_r W_ir p̂_i(r) + floor ) / Σ_i ω_i,                    p̂ = B p, or its log-linear form

The derivative Ḡ of the loss by P lives on the pattern of P only, and everything follows from M = P ∘ (Ḡ − rowsum(P∘Ḡ)),
the derivative by log K. Inside, states are sorted so that neighbours are close in memory; the border un-sorts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from ordiff import _check, _sparse, _threads
from ordiff._check import Array
from ordiff.graph import NeighborGraph
from ordiff.inference.chain import Chain, Parts, Pattern, Rows, Sums
from ordiff.inference.records import Kept, Observer, Plan, Scratch, SharedObserver
from ordiff.inference.sensitivity import DIRECTIONS, OrderingChange, RowChange, View

# Records per block, at least, and as many more as fit into so many bytes: a state's records of a block are a vector
# that the sampled product runs over.
_BLOCK_RECORDS, _BLOCK_BYTES = 32, 2**21


@dataclass(frozen=True)
class Dynamics:
    """The parameters of the chain.

    eps: the step ε. noise: ρ (N,). orderings: values l_k (N,) each. slopes: τ_k/κ_k (N,), one for each ordering.
    local: local orderings Δl (E,) in the order of the graph's edges, not learned. local_slopes: (N,), one for each.
    log_weight: log v (N,), the logarithm of the states' volumes, −α log q. self_weight: a factor on P_ii before the
    rows are scaled to sum to 1.
    """

    eps: float
    noise: Array
    orderings: tuple[Array, ...] = ()
    slopes: tuple[Array, ...] = ()
    local: tuple[Array, ...] = ()
    local_slopes: tuple[Array, ...] = ()
    log_weight: Array | None = None
    self_weight: float = 1.0


@dataclass(frozen=True)
class Gradient:
    """The derivative of the loss by each part of `Dynamics`; by eps with the number of steps and W held fixed."""

    eps: float
    noise: Array
    orderings: tuple[Array, ...]
    slopes: tuple[Array, ...]
    local_slopes: tuple[Array, ...]
    log_weight: Array


@dataclass(frozen=True)
class Observation:
    """What m samples see of the chain.

    times: W (m, R) sparse, the weight of every record for every sample; see `time_weights` and `time_quadrature`.
    places: B (m, N) sparse, the states around every sample; None: sample i is state i.
    volumes: v (N,) for the log-linear form, None for the linear one.
    floor: δ ≥ 0.

        linear        likelihood_i = Σ_r W_ir Σ_j B_ij p_r(j) + δ
        log-linear    likelihood_i = Σ_r W_ir exp( Σ_j B_ij log(p_r(j)/v_j + δ) )
    """

    times: Any
    places: Any = None
    volumes: Array | None = None
    floor: float = 0.0


class Objective:
    """loss(dynamics) and its gradient, on one graph and one set of observations.

    graph: N states. initial: p_0 (N,), masses. steps: S. fractions: θ_f, ascending, in (0, 1]. sample_weight: ω (m,),
    1 by default. memory_budget: bytes; when twice the records of all steps take more, only the first step of every
    block of about √S steps is kept, and the others are made again on the way back.
    """

    def __init__(
        self,
        graph: NeighborGraph,
        observation: Observation,
        initial: ArrayLike,
        steps: int,
        fractions: Sequence[float] = (1.0,),
        *,
        sample_weight: ArrayLike | None = None,
        memory_budget: int = 2**31,
    ) -> None:
        n = graph.n_points
        self.graph, self.observation = graph, observation
        self.steps = _check.count(steps, "steps", 1)
        self.fractions = _fractions(fractions)
        self._pattern, self._memory = Pattern(graph), list[Scratch]()
        mass = self._pattern.inner(_check.nodes(initial, n, "initial"))
        if not ((mass >= 0).all() and mass.any()):
            raise ValueError("initial must be masses, not negative and not all 0.")
        self._initial = mass
        started = np.flatnonzero(mass)
        self._start, self._start_mass = self._pattern.all.only(started), mass[started]
        phases = len(self.fractions)
        self._stored = 2 * (1 + self.steps * phases) * n * 8 <= memory_budget
        length = max(8, max(_BLOCK_RECORDS, _BLOCK_BYTES // (8 * n)) // phases)
        if not self._stored:
            length = min(max(8, round(self.steps**0.5)), 64)
        self._plan = Plan(n, self.steps, phases, min(length, self.steps))
        self._prepare_observation(observation, sample_weight)

    # ------------------------------------------------------------------------------------ set-up

    def _prepare_observation(self, observation: Observation, sample_weight: ArrayLike | None) -> None:
        n = self.graph.n_points
        self._W = _time_matrix(observation.times, self._plan.n_records)
        m = self._W.shape[0]
        self._B = self._place_matrix(observation.places, m)
        if self._B is None and m != n:
            raise ValueError(f"without places every sample is a state, but there are {m} samples and {n} states.")
        self._floor = _check.number(observation.floor, "floor")
        if self._floor < 0:
            raise ValueError(f"floor must not be negative; got {self._floor:g}.")
        self._offset = np.empty(0)  # δ v, in the log-linear form
        if observation.volumes is not None:
            if self._B is None or self._floor == 0:
                raise ValueError("the log-linear form (volumes given) needs places and a positive floor.")
            volumes = _check.node_or_scalar(observation.volumes, n, "volumes", positive=True)
            self._offset = self._floor * self._pattern.inner(volumes)
        weight = np.ones(m) if sample_weight is None else _check.nodes(sample_weight, m, "sample_weight")
        if not ((weight >= 0).all() and weight.any()):
            raise ValueError("sample_weight must not be negative, and not all 0.")
        # samples, too, are kept in the order of the states that they are near
        near = self._pattern.rank if self._B is None else self._B.indices[self._B.indptr[:-1]]
        self._samples = np.argsort(near, kind="stable")
        self._W, self._B = self._W[self._samples], None if self._B is None else self._B[self._samples]
        self._sample_weight = (weight / weight.sum())[self._samples]
        self._shared = _shared_row(self._W) if self._offset.size == 0 else None
        self._visitor: Observer | None = None
        if self._shared is None:
            seen = self._observer()
            assert isinstance(seen, Observer)
            self._visitor = seen

    def _place_matrix(self, places: Any, m: int) -> sp.csr_array | None:
        if places is None:
            return None
        B = _sparse_rows(places, (m, self.graph.n_points), "places")
        indices = self._pattern.rank[B.indices].astype(B.indices.dtype)
        B = sp.csr_array((B.data, indices, B.indptr), shape=B.shape)
        B.sort_indices()
        if (np.diff(B.indptr) == 0).any():
            raise ValueError(f"row {int(np.argmin(np.diff(B.indptr)))} of places is empty: that sample is nowhere.")
        return B

    def _observer(
        self, rows: NDArray[np.intp] | None = None, memory: Scratch | None = None
    ) -> Observer | SharedObserver:
        """What all samples see, or some of them; with nothing seen yet."""
        if rows is None and self._visitor is not None:
            return self._visitor.fresh(memory)
        W, B, place = self._W, self._B, np.arange(self._W.shape[0], dtype=np.uint32)
        if rows is not None:
            W, B, place = W[rows], None if B is None else B[rows], place[rows]
        if self._shared is not None:
            return SharedObserver(self._shared, B, place, self._floor, self._plan)
        return Observer(W, B, place, self._offset, self._floor, self._plan)

    def _parts(self, dynamics: Dynamics) -> Parts:
        n, pattern = self.graph.n_points, self._pattern
        eps = _check.positive(dynamics.eps, "eps")
        weight = np.zeros(n) if dynamics.log_weight is None else dynamics.log_weight
        self_weight = _check.number(dynamics.self_weight, "self_weight")
        if self_weight < 0:
            raise ValueError(f"self_weight must not be negative; got {self_weight:g}.")
        _same_number(dynamics.orderings, dynamics.slopes, "slopes", "orderings")
        _same_number(dynamics.local, dynamics.local_slopes, "local_slopes", "local orderings")

        def stack(arrays: tuple[Array, ...], name: str) -> Array:
            rows = [pattern.inner(_check.node_or_scalar(array, n, name)) for array in arrays]
            return np.array(rows).reshape(len(rows), n)

        return Parts(
            eps,
            pattern.inner(_check.node_or_scalar(dynamics.noise, n, "noise", positive=True)),
            stack(dynamics.orderings, "orderings"),
            stack(dynamics.slopes, "slopes"),
            tuple(self._inner_edges(edges) for edges in dynamics.local),
            stack(dynamics.local_slopes, "local_slopes"),
            pattern.inner(_check.nodes(weight, n, "log_weight")),
            float(np.log(self_weight)) if self_weight > 0 else -np.inf,
        )

    def _inner_edges(self, edges: Array) -> Array:
        edges = _check.node_vectors(edges, (self.graph.n_edges,), "local")
        return edges if self._pattern.edges is None else edges[self._pattern.edges]

    def _chain(self, dynamics: Dynamics, memory: Scratch | None = None) -> Chain:
        return Chain(self._pattern, self._start, self._parts(dynamics), self.fractions, memory)

    # ------------------------------------------------------------------------------------ what it offers

    def record_times(self, eps: float) -> Array:
        """The times of the records, (R,)."""
        inner = (np.arange(self.steps)[:, None] + np.array(self.fractions)) * eps
        return np.concatenate([[0.0], inner.ravel()])

    def matrix(self, dynamics: Dynamics) -> Array:
        """P, (E,), in the order of the graph's edges."""
        P = self._chain(dynamics).P
        if self._pattern.edges is None:
            return P
        out = np.empty_like(P)
        out[self._pattern.edges] = P
        return out

    def history(self, dynamics: Dynamics) -> Array:
        """The masses of all records, (R, N)."""
        kept = Kept.all(self._plan)
        self._forward(self._chain(dynamics), None, kept)
        records = kept.steps.transpose(0, 2, 1).reshape(-1, self._plan.n)
        return np.vstack([self._initial, records])[:, self._pattern.rank]

    def per_sample(self, dynamics: Dynamics) -> Array:
        """The logarithm of every sample's likelihood, (m,)."""
        out = np.empty(self._samples.size)
        out[self._samples] = self._per_sample(dynamics)
        return out

    def _per_sample(self, dynamics: Dynamics) -> Array:
        observer = self._observer()
        self._forward(self._chain(dynamics), observer, Kept.nothing(self._plan))
        return np.log(_positive(observer.likelihood(), self._samples))

    def value(self, dynamics: Dynamics) -> float:
        """The loss."""
        return -float(self._sample_weight @ self._per_sample(dynamics))

    def value_and_gradient(self, dynamics: Dynamics) -> tuple[float, Gradient]:
        """The loss and its derivatives."""
        try:
            memory = self._memory.pop()
        except IndexError:  # the first time, or another thread has it
            memory = Scratch()
        chain, observer, plan = self._chain(dynamics, memory), self._observer(memory=memory), self._plan
        kept = Kept.all(plan, memory) if self._stored else Kept.starting(plan)
        self._forward(chain, observer, kept)
        likelihood = _positive(observer.likelihood(), self._samples)
        observer.slope = -self._sample_weight / likelihood
        sums = self._backward(chain, observer, kept, memory)
        self._memory.append(memory)
        return -float(self._sample_weight @ np.log(likelihood)), self._gradient(sums)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_memory": []}

    def release(self) -> None:
        """Give back the memory that is kept from one value and gradient to the next."""
        self._memory.clear()

    # ------------------------------------------------------------------------------------ scores

    def scores(
        self,
        dynamics: Dynamics,
        orderings: tuple[Array | None, ...] = (),
        slopes: tuple[Array | None, ...] = (),
        local_slopes: tuple[Array | None, ...] = (),
        noise: Array | None = None,
        rows: ArrayLike | None = None,
    ) -> Array:
        """∂ log likelihood_i / ∂a for changes U a of the dynamics, exact, (m, K) or, for some ``rows``, (len(rows), K).

        Each U is (N, K_k): one for every ordering, slope and local slope (None: no change), and one for the noise.
        Columns: those of the orderings, then slopes, local slopes, noise. By forward sensitivities, all directions
        of a task at once:  dp_{s+1} = Pᵀ dp_s + dPᵀ p_s.
        """
        chain = self._chain(dynamics)
        wanted = np.arange(self._samples.size) if rows is None else _check.indices(rows, self._samples.size, "rows")
        rank = np.empty(self._samples.size, np.intp)
        rank[self._samples] = np.arange(rank.size)
        observer = self._observer(rank[wanted])
        kept = Kept.all(self._plan)
        self._forward(chain, observer, kept)
        masses = kept.steps
        likelihood = _positive(observer.likelihood(), wanted)
        if isinstance(observer, Observer):
            observer.slope = 1 / likelihood
        view = View(observer, masses, self._initial)
        changes = self._changes(chain, orderings, slopes, local_slopes, noise)
        tasks = [change.columns(a) for change in changes for a in range(0, change.U.shape[1], DIRECTIONS)]
        PT = chain.PT  # before the threads ask for it
        parts = _threads.in_threads(lambda change: self._scores(chain, PT, change, masses, view), tasks)
        return np.hstack([np.empty((wanted.size, 0)), *parts])

    def _changes(
        self,
        chain: Chain,
        orderings: tuple[Array | None, ...],
        slopes: tuple[Array | None, ...],
        local_slopes: tuple[Array | None, ...],
        noise: Array | None,
    ) -> list[OrderingChange | RowChange]:
        parts, n = chain.parts, self._plan.n
        if max(len(orderings), len(slopes)) > len(parts.tables) or len(local_slopes) > len(parts.local):
            raise ValueError("there are more directions of orderings or slopes than the dynamics have.")

        def directions(U: Array, name: str) -> Array:
            checked = _check.functions(U, n, name)
            return np.ascontiguousarray(self._pattern.inner(checked.reshape(n, -1)))

        def of_rows(exponent: Callable[[Rows, float], Array], U: Array, name: str) -> RowChange:
            return RowChange.make(chain, exponent, directions(U, name))

        found: list[OrderingChange | RowChange] = []
        for k, U in enumerate(orderings):
            if U is not None:
                found.append(OrderingChange.make(chain, parts.coefs[k], directions(U, "orderings")))
        for k, U in enumerate(slopes):
            if U is not None:
                found.append(of_rows(partial(parts.by_ordering_slope, k), U, "slopes"))
        for k, U in enumerate(local_slopes):
            if U is not None:
                found.append(of_rows(partial(parts.by_local_slope, k), U, "local_slopes"))
        if noise is not None:
            found.append(of_rows(parts.by_noise, noise, "noise"))
        return found

    def _scores(self, chain: Chain, PT: Array, change: OrderingChange | RowChange, masses: Array, view: View) -> Array:
        """The columns of one task."""
        here = change.launch(chain, self._start_mass)  # (N, F, K)
        n, phases, K = here.shape
        out = view.begin(K)
        view.see(0, here, out)
        for s in range(1, self.steps):
            pushed, after = change.step(chain, masses[s - 1], here)
            flat = after.reshape(n, phases * K)
            chain.push_onto(PT, pushed.reshape(n, phases * K), flat)
            here = after
            view.see(s, here, out)
        return view.finish(out)

    # ------------------------------------------------------------------------------------ passes

    def _forward(self, chain: Chain, observer: Observer | SharedObserver | None, kept: Kept) -> None:
        """All steps, a block at a time: observed, and kept."""
        if observer is not None:
            observer.look(0, self._initial[None, :, None])
        here = chain.launch(self._start_mass)
        for block, first, last in self._plan.blocks():
            steps = kept.room(first, last)
            if kept.starts is not None:
                kept.starts[block - 1] = here
            _fill(chain, here, steps)
            if observer is not None:
                observer.look(block, steps)
            if last < self.steps:
                here = chain.push(steps[-1])

    def _backward(self, chain: Chain, observer: Observer | SharedObserver, kept: Kept, memory: Scratch) -> Sums:
        """λ_s = P λ_{s+1} + src_s from the last step to the first; Ḡ_ij = Σ_s ⟨p_s(i), λ_{s+1}(j)⟩ over phases."""
        plan, rows = self._plan, self._pattern.all
        G = memory("G", self.graph.n_edges)
        G[:] = 0.0
        ring = memory("ring", plan.length + 1, plan.n, plan.phases)  # λ of a block, then the first λ of the next block
        ranges = _threads.edge_ranges(rows.indptr, plan.width)
        for block, first, last in reversed(plan.blocks()):
            count, steps = last - first, kept.room(first, last)
            if kept.starts is not None:
                _fill(chain, kept.starts[block - 1], steps)
            states = observer.states(block, steps)
            ring[count] = ring[0] if last < self.steps else 0.0
            observer.source(block, states, ring[:count])
            chain.backward(ring[: count + 1] if last < self.steps else ring[:count])
            later = plan.states(ring[1 : count + 1], memory("later", *states.shape))
            _threads.over(ranges, _sparse.sampled_product, rows.indptr, rows.indices, states, later, G)
        return self._collect(chain, G, ring[0])

    def _collect(self, chain: Chain, G: Array, first: Array) -> Sums:
        """The gradient from Ḡ and from the first λ, (N, F)."""
        parts, pattern, start = chain.parts, self._pattern, self._start
        sums = Sums.zeros(parts)
        mass = np.repeat(self._start_mass, np.diff(start.indptr))
        for f, (theta, P) in enumerate(zip(self.fractions, chain.firsts, strict=True)):
            own = mass * first[start.indices, f]
            if theta == 1.0:
                G[start.edges] += own
                continue
            M = start.centred(P, own)
            start.collect(M, parts, theta * parts.eps, sums)
            start.collect_columns(M, parts, sums)
        M = pattern.all.centred(chain.P, G)
        pattern.all.collect(M, parts, parts.eps, sums)
        pattern.collect_columns(M, parts, sums)
        return sums

    def _gradient(self, sums: Sums) -> Gradient:
        outer = self._pattern.outer

        def each(rows: Array) -> tuple[Array, ...]:
            return tuple(outer(row) for row in rows)

        tables, slopes, local = each(sums.tables), each(sums.slopes), each(sums.local_slopes)
        return Gradient(sums.eps, outer(sums.noise), tables, slopes, local, outer(sums.log_weight))


def _fill(chain: Chain, first: Array, steps: Array) -> None:
    """steps[0] = first, and each step from the one before."""
    steps[0] = first
    chain.forward(steps)


# ------------------------------------------------------------------------------------------- checks


def _fractions(fractions: Sequence[float]) -> tuple[float, ...]:
    theta = np.atleast_1d(np.asarray(fractions, dtype=float))
    if theta.ndim != 1 or not ((theta > 0).all() and (theta <= 1).all() and (np.diff(theta) > 0).all()):
        raise ValueError(f"fractions must be ascending numbers in (0, 1]; got {fractions!r}.")
    return tuple(float(value) for value in theta)


def _sparse_rows(matrix: Any, shape: tuple[int, int], name: str) -> sp.csr_array:
    rows = sp.csr_array(matrix, dtype=np.float64, copy=True)
    if rows.shape != shape:
        raise ValueError(f"{name} must have shape {shape}; got {rows.shape}.")
    if not np.isfinite(rows.data).all():
        raise ValueError(f"{name} has values that are NaN or infinite.")
    rows.sum_duplicates()
    rows.eliminate_zeros()
    rows.sort_indices()
    return rows


def _time_matrix(times: Any, n_records: int) -> sp.csr_array:
    W = _sparse_rows(times, (times.shape[0], n_records), "times")
    if (W.data < 0).any():
        raise ValueError("times must hold weights that are not negative.")
    lengths = np.diff(W.indptr)
    if (lengths == 0).any():
        raise ValueError(f"row {int(np.argmin(lengths))} of times has no record with a positive weight.")
    return W


def _shared_row(W: sp.csr_array) -> Array | None:
    """The row of weights that all samples have, (R,), if they do."""
    m = W.shape[0]
    length = W.indptr[1]
    if m == 1 or W.nnz != m * length or (np.diff(W.indptr) != length).any():
        return None
    indices, data = W.indices.reshape(m, length), W.data.reshape(m, length)
    if (indices != indices[0]).any() or (data != data[0]).any():
        return None
    row = np.zeros(W.shape[1])
    row[indices[0]] = data[0]
    return row


def _same_number(these: tuple[Any, ...], those: tuple[Any, ...], name: str, what: str) -> None:
    if len(these) != len(those):
        raise ValueError(f"{name} must have one entry for each of the {len(these)} {what}; got {len(those)}.")


def _positive(likelihood: Array, names: NDArray[np.intp]) -> Array:
    bad = ~((likelihood > 0) & (likelihood < np.inf))
    if bad.any():
        raise ValueError(
            f"{int(bad.sum())} sample(s) have a likelihood that is not positive and finite, the first at index "
            f"{int(names[bad].min())}: the process does not reach them. Use more neighbours, more noise, or a floor."
        )
    return likelihood
