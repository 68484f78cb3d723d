"""The likelihood of snapshots under a chain, and its exact gradient in one backward pass.

    Dynamics             what may be learned: step, noise, orderings and their slopes, weights of the states
    SnapshotLikelihood   loss, gradient and per-sample likelihoods on one graph, for one `Observation`

The chain starts from a mass p_0 on N states. With fractions θ_1 < … < θ_F several phases run side by side: phase f
first makes a step of length θ_f ε, then steps of length ε. Time slice 0 is p_0 at time 0; slice 1 + sF + f is phase f
after its step s, at time (s + θ_f) ε, s = 0 … S − 1. So there are T = 1 + SF time slices, in the order of their times.

    log K_ij = −|x_j − x_i|²/(2ερ_i²) + (1/ρ_i²) Σ_k slope_k(i) Δl_k(i,j) + w_j,     P_ij = K_ij / Σ_n K_in
    loss     = −Σ_i ω_i log( Σ_r W_ir p̂_i(r) + floor ) / Σ_i ω_i,                    p̂ = B p, or its log-linear form

The derivative Ḡ of the loss by P lives on the pattern of P only, and everything follows from M = P ∘ (Ḡ − rowsum(P∘Ḡ)),
the derivative by log K. Inside, states are in the order of the graph's layout; the border un-sorts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from ordiff import _parallel, _validation
from ordiff._compiled import csr
from ordiff._validation import Array
from ordiff.graph import NeighborGraph
from ordiff.learning.observation import Observation, place_matrix
from ordiff.learning.slices import (
    BlockSchedule,
    ForwardStore,
    LikelihoodAccumulator,
    PooledAccumulator,
    PooledWeights,
    ReceivedSource,
    SliceWeights,
    Workspace,
)
from ordiff.learning.transition import ChainPattern, GradientSums, TransitionMatrix, TransitionParameters

# Time slices per block, at least, and as many more as fit into so many bytes: a state's slices of a block are a vector
# that the sampled product runs over.
_BLOCK_SLICES, _BLOCK_BYTES = 32, 2**21

_Forward = LikelihoodAccumulator | PooledAccumulator
_Backward = _Forward | ReceivedSource


@dataclass(frozen=True)
class Dynamics:
    """The parameters of the chain.

    eps: the step ε. noise: ρ (N,). orderings: values l_k (N,) each. slopes: τ_k/κ_k (N,), one for each ordering.
    local_slopes: (N,), one for each local ordering. log_weight: log v (N,), the logarithm of the states' volumes,
    −α log q. self_weight: a factor on K_ii. initial: p_0 (N,), if it is not that of the likelihood; 0 where that is.
    """

    eps: float
    noise: Array
    orderings: tuple[Array, ...] = ()
    slopes: tuple[Array, ...] = ()
    local_slopes: tuple[Array, ...] = ()
    log_weight: Array | None = None
    self_weight: float = 1.0
    initial: Array | None = None

    def check(self, n: int, n_local: int) -> None:
        """Every part has the shape of n states and is finite; called once, before anything is learned."""
        _validation.positive(self.eps, "eps")
        _validation.node_or_scalar(self.noise, n, "noise", positive=True)
        if _validation.number(self.self_weight, "self_weight") < 0:
            raise ValueError(f"self_weight must not be negative; got {self.self_weight:g}.")
        _same_number(self.orderings, self.slopes, "slopes", "orderings")
        if len(self.local_slopes) != n_local:
            raise ValueError(
                f"local_slopes must have one entry for each of the {n_local} local orderings; "
                f"got {len(self.local_slopes)}."
            )
        for name in ("orderings", "slopes", "local_slopes"):
            for values in getattr(self, name):
                _validation.node_or_scalar(values, n, name)
        if self.log_weight is not None:
            _validation.nodes(self.log_weight, n, "log_weight")


@dataclass(frozen=True)
class DynamicsGradient:
    """The derivative of the loss by each part of `Dynamics`; by eps with the number of steps and W held fixed."""

    eps: float
    noise: Array
    orderings: tuple[Array, ...]
    slopes: tuple[Array, ...]
    local_slopes: tuple[Array, ...]
    log_weight: Array
    initial: Array


class SnapshotLikelihood:
    """loss(dynamics) and its gradient, on one graph and one set of observations. Immutable.

    graph: N states. initial: p_0 (N,), masses. steps: S. fractions: θ_f, ascending, in (0, 1]. sample_weight: ω (m,), 1
    by default. local: differences Δl (E,) of local orderings on the graph's edges; metric: forms (E,) that follow them
    in the slopes, and are divided by the length of a step as squared distances are. memory_budget: bytes; when twice
    the time slices of all steps take more, only the first step of every block of about √S steps is kept, and the others
    are made again on the way back.
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
        local: Sequence[Array] = (),
        metric: Sequence[Array] = (),
        memory_budget: int = 2**31,
    ) -> None:
        n = graph.n_points
        self.graph, self.observation = graph, observation
        self.steps = _validation.count(steps, "steps", 1)
        self.fractions = _fractions(fractions)
        self.local = tuple(_validation.node_vectors(values, (graph.n_edges,), "local") for values in local)
        self.metric = tuple(_validation.node_vectors(values, (graph.n_edges,), "metric") for values in metric)
        self.pattern = ChainPattern(graph, (*self.local, *self.metric), len(self.metric))
        self.initial = self.pattern.inner(_validation.nodes(initial, n, "initial"))
        if not ((self.initial >= 0).all() and self.initial.any()):
            raise ValueError("initial must be masses, not negative and not all 0.")
        started = np.flatnonzero(self.initial)
        self.start, self.start_mass = self.pattern.rows.only(started), self.initial[started]
        phases = len(self.fractions)
        self._stored = 2 * (1 + self.steps * phases) * n * 8 <= memory_budget
        length = max(8, max(_BLOCK_SLICES, _BLOCK_BYTES // (8 * n)) // phases)
        if not self._stored:
            length = min(max(8, round(self.steps**0.5)), 64)
        self.schedule = BlockSchedule(n, self.steps, phases, min(length, self.steps))
        self._prepare_observation(observation, sample_weight)

    # ------------------------------------------------------------------------------------ set-up

    def _prepare_observation(self, observation: Observation, sample_weight: ArrayLike | None) -> None:
        n = self.graph.n_points
        W = observation.time_matrix(self.schedule.n_slices)
        m = W.shape[0]
        places, rank = observation.places, self.pattern.layout.rank
        B = None if places is None else place_matrix(places, (m, n), rank)
        if B is None and m != n:
            raise ValueError(f"without places every sample is a state, but there are {m} samples and {n} states.")
        self._floor = _validation.number(observation.floor, "floor")
        if self._floor < 0:
            raise ValueError(f"floor must not be negative; got {self._floor:g}.")
        self._offset = csr.EMPTY  # δ v, in the log-linear form
        if observation.volumes is not None:
            if B is None or self._floor == 0:
                raise ValueError("the log-linear form (volumes given) needs places and a positive floor.")
            volumes = _validation.node_or_scalar(observation.volumes, n, "volumes", positive=True)
            self._offset = self._floor * self.pattern.inner(volumes)
        weight = np.ones(m) if sample_weight is None else _validation.nodes(sample_weight, m, "sample_weight")
        if not ((weight >= 0).all() and weight.any()):
            raise ValueError("sample_weight must not be negative, and not all 0.")
        # samples, too, are kept in the order of the states that they are near
        near = rank if B is None else B.indices[B.indptr[:-1]]
        self._order = np.argsort(near, kind="stable")
        self._W, self._B = W[self._order], None if B is None else B[self._order]
        self._sample_weight = (weight / weight.sum())[self._order]
        self._pooled = _shared_row(self._W) if self._offset.size == 0 else None
        self._weights = self._slice_weights(self._W, self._B, np.arange(m))

    @property
    def n_samples(self) -> int:
        return self._order.size

    def slice_weights(self, rows: NDArray[np.intp]) -> SliceWeights | PooledWeights:
        """The weights of some samples, by their places in the inner order."""
        return self._slice_weights(self._W[rows], None if self._B is None else self._B[rows], rows)

    def _slice_weights(
        self, W: sp.csr_array, B: sp.csr_array | None, rows: NDArray[np.intp]
    ) -> SliceWeights | PooledWeights:
        place = rows.astype(np.uint32)
        if self._pooled is not None:
            return PooledWeights(self._pooled, B, place, self._floor, self.schedule)
        return SliceWeights(W, B, place, self._offset, self._floor, self.schedule)

    def inner_samples(self, samples: NDArray[np.intp]) -> NDArray[np.intp]:
        """The places of samples in the inner order."""
        rank = np.empty(self.n_samples, np.intp)
        rank[self._order] = np.arange(rank.size)
        return rank[samples]

    def transition(self, dynamics: Dynamics, workspace: Workspace | None = None) -> TransitionMatrix:
        """P of these dynamics."""
        inner, n = self.pattern.inner, self.graph.n_points

        def stack(arrays: tuple[Array, ...]) -> Array:
            return np.array([inner(array) for array in arrays]).reshape(len(arrays), n)

        d = dynamics
        parameters = TransitionParameters(
            d.eps,
            inner(d.noise),
            stack(d.orderings),
            stack(d.slopes),
            stack(d.local_slopes),
            np.zeros(n) if d.log_weight is None else inner(d.log_weight),
            float(np.log(d.self_weight)) if d.self_weight > 0 else -np.inf,
        )
        mass = self.start_mass if d.initial is None else inner(d.initial)[self.start.pattern.rows]
        return TransitionMatrix(self.pattern, self.start, mass, parameters, self.fractions, workspace or Workspace())

    # ------------------------------------------------------------------------------------ what it offers

    def slice_times(self, eps: float) -> Array:
        """The times of the time slices, (T,)."""
        inner = (np.arange(self.steps)[:, None] + np.array(self.fractions)) * eps
        return np.concatenate([[0.0], inner.ravel()])

    def matrix(self, dynamics: Dynamics) -> Array:
        """P, (E,), in the order of the graph's edges."""
        return np.asarray(self.pattern.layout.unsort_edges(self.transition(dynamics).P))

    def time_slices(self, dynamics: Dynamics) -> Array:
        """The masses of all time slices, (T, N)."""
        chain = self.transition(dynamics)
        masses = self.forward(chain, None, ForwardStore.everything(self.schedule, Workspace()))
        inner = np.vstack([chain.initial, masses.transpose(0, 2, 1).reshape(-1, self.schedule.n)])
        return inner[:, self.pattern.layout.rank]

    def per_sample(self, dynamics: Dynamics) -> Array:
        """The logarithm of every sample's likelihood, (m,)."""
        out = np.empty(self.n_samples)
        out[self._order] = self._per_sample(dynamics)
        return out

    def _per_sample(self, dynamics: Dynamics) -> Array:
        accumulator = self._weights.accumulator(Workspace())
        self.forward(self.transition(dynamics), accumulator, ForwardStore.one_block(self.schedule))
        return np.log(positive_likelihood(accumulator.likelihood(), self._order))

    def value(self, dynamics: Dynamics) -> float:
        """The loss of the samples that are here."""
        return -float(self._sample_weight @ self._per_sample(dynamics))

    def value_and_gradient(
        self, dynamics: Dynamics, workspace: Workspace | None = None
    ) -> tuple[float, DynamicsGradient]:
        """The loss and its derivatives; ``workspace``: memory to use again from one call of a caller to the next."""
        workspace = workspace or Workspace()
        if self.observation.elsewhere is not None:
            return self._from_blocks(dynamics, workspace)
        chain, accumulator = self.transition(dynamics, workspace), self._weights.accumulator(workspace)
        if self._stored:
            store = ForwardStore.everything(self.schedule, workspace)
        else:
            store = ForwardStore.block_starts(self.schedule)
        self.forward(chain, accumulator, store)
        likelihood = positive_likelihood(accumulator.likelihood(), self._order)
        sums = self._backward(chain, accumulator, -self._sample_weight / likelihood, store, workspace)
        return -float(self._sample_weight @ np.log(likelihood)), self._gradient(sums)

    def _from_blocks(self, dynamics: Dynamics, workspace: Workspace) -> tuple[float, DynamicsGradient]:
        """The same of samples in blocks elsewhere, which get the time slices and give back sums."""
        chain, store = self.transition(dynamics, workspace), ForwardStore.everything(self.schedule, workspace)
        masses = self.forward(chain, None, store)
        loss, source = self.observation.elsewhere.sums(masses, self.pattern.layout.rank, self.schedule)
        received = ReceivedSource(source, self.schedule, workspace)
        return loss, self._gradient(self._backward(chain, received, csr.EMPTY, store, workspace))

    # ------------------------------------------------------------------------------------ passes

    def forward(self, chain: TransitionMatrix, accumulator: _Forward | None, store: ForwardStore) -> Array:
        """All steps, a block at a time: accumulated, and stored. Returns the store's steps."""
        if accumulator is not None:
            accumulator.accumulate(0, chain.initial[None, :, None])
        here = chain.launch(chain.start_mass)
        for block, first, last in self.schedule.blocks():
            steps = store.block(first, last)
            if store.starts is not None:
                store.starts[block - 1] = here
            steps[0] = here
            chain.forward(steps)
            if accumulator is not None:
                accumulator.accumulate(block, steps)
            if last < self.steps:
                here = np.empty_like(here)
                chain.push(steps[-1], here)
        return store.steps

    def _backward(
        self, chain: TransitionMatrix, accumulator: _Backward, slope: Array, store: ForwardStore, workspace: Workspace
    ) -> GradientSums:
        """λ_s = P λ_{s+1} + src_s from the last step to the first; Ḡ_ij = Σ_s ⟨p_s(i), λ_{s+1}(j)⟩ over phases."""
        schedule, rows = self.schedule, self.pattern.rows.pattern
        G = workspace("G", self.graph.n_edges)
        G[:] = 0.0
        # λ of a block, then the first λ of the next block
        adjoint = workspace("adjoint", schedule.length + 1, schedule.n, schedule.phases)
        ranges = _parallel.row_ranges(rows.indptr, schedule.width)
        for block, first, last in reversed(schedule.blocks()):
            count, steps = last - first, store.block(first, last)
            if store.starts is not None:
                steps[0] = store.starts[block - 1]
                chain.forward(steps)
            states = accumulator.by_state(block, steps)
            adjoint[count] = adjoint[0] if last < self.steps else 0.0
            accumulator.adjoint_source(block, states, slope, adjoint[:count])
            chain.backward(adjoint[: count + 1] if last < self.steps else adjoint[:count])
            later = schedule.by_state(adjoint[1 : count + 1], workspace("later", *states.shape))
            _parallel.over_ranges(ranges, csr.sampled_product, rows.indptr, rows.indices, states, later, G)
        return self._collect(chain, G, adjoint[0])

    def _collect(self, chain: TransitionMatrix, G: Array, first: Array) -> GradientSums:
        """The gradient from Ḡ and from the first λ, (N, F)."""
        p, pattern, start = chain.parameters, self.pattern, self.start
        sums = GradientSums.zeros(p)
        mass = np.repeat(chain.start_mass, start.lengths)
        for f, (theta, P) in enumerate(zip(self.fractions, chain.firsts, strict=True)):
            sums.initial[start.pattern.rows] += chain.start_times(P, np.ascontiguousarray(first[:, f : f + 1]))[:, 0]
            own = mass * first[start.pattern.indices, f]
            if theta == 1.0:
                G[start.edges] += own
                continue
            M = start.centred(P, own)
            start.collect(M, p, theta * p.eps, sums)
            start.collect_columns(M, p, sums)
        M = pattern.rows.centred(chain.P, G)
        pattern.rows.collect(M, p, p.eps, sums)
        pattern.collect_columns(M, p, sums)
        return sums

    def _gradient(self, sums: GradientSums) -> DynamicsGradient:
        outer = self.pattern.outer

        def each(rows: Array) -> tuple[Array, ...]:
            return tuple(outer(row) for row in rows)

        tables, slopes, local = each(sums.tables), each(sums.slopes), each(sums.local_slopes)
        noise, log_weight, initial = each(np.stack([sums.noise, sums.log_weight, sums.initial]))
        return DynamicsGradient(sums.eps, noise, tables, slopes, local, log_weight, initial)


# ------------------------------------------------------------------------------------------- checks


def _fractions(fractions: Sequence[float]) -> tuple[float, ...]:
    theta = np.atleast_1d(np.asarray(fractions, dtype=float))
    if theta.ndim != 1 or not ((theta > 0).all() and (theta <= 1).all() and (np.diff(theta) > 0).all()):
        raise ValueError(f"fractions must be ascending numbers in (0, 1]; got {fractions!r}.")
    return tuple(float(value) for value in theta)


def _shared_row(W: sp.csr_array) -> Array | None:
    """The row of weights that all samples have, (T,), if they do."""
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


def positive_likelihood(likelihood: Array, names: NDArray[np.intp]) -> Array:
    """The likelihoods (m,), or an error that names the first sample without one."""
    bad = ~((likelihood > 0) & (likelihood < np.inf))
    if bad.any():
        raise ValueError(
            f"{int(bad.sum())} sample(s) have a likelihood that is not positive and finite, the first at index "
            f"{int(names[bad].min())}: the process does not reach them. Use more neighbours, more noise, or a floor."
        )
    return likelihood
