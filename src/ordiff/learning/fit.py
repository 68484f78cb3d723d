"""A fit from snapshots to dynamics, in four stages.

*Look*: a coarse chain of few states and few functions finds how large noise and drift are, and whether the drift
turns. *Design*: the step, the spacing of the states and the radius of their graph follow from them. *Learn*: maximum
likelihood on these states, with smoothness by empirical Bayes. *Read*: the fields, corrected for the length of the
step, and their covariance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordiff._validation import Array, GraphError
from ordiff.geometry import TangentSpaces, usual_neighbors
from ordiff.learning.blocks import GivenOrderings, auto_blocks, parametrise
from ordiff.learning.checkpoint import Checkpoint
from ordiff.learning.choice import noise_level, streams_for, with_rotation_if_worth
from ordiff.learning.data import Snapshots
from ordiff.learning.discretise import (
    DENSITY_FLOOR,
    REACH,
    STEPS,
    coarse_design,
    design,
    first_noise,
    is_resolved,
    levels,
    likelihood_on,
)
from ordiff.learning.likelihood import Dynamics
from ordiff.learning.marginal import marginal_newton_step, maximize_marginal
from ordiff.learning.optimise import (
    STOPS,
    Evaluations,
    PenalisedLikelihood,
    Report,
    Solution,
    first_metric,
    minimise,
    optimise,
)
from ordiff.learning.penalties import ActionPenalty
from ordiff.learning.result import FitResult, FittedChain, read_ordering
from ordiff.learning.rotation import (
    RotationEvidence,
    StreamFunctions,
    read_general,
    strengths_of,
    with_rotation,
    with_tensor,
)
from ordiff.learning.settings import FitSettings, SampleStates, Solver
from ordiff.learning.start import start_density
from ordiff.learning.step import extrapolated
from ordiff.learning.tensor import metric_of
from ordiff.learning.variation import with_possible_variation
from ordiff.states import States

# Functions of the coarse chain.
_COARSE_BASIS = 25
# Updates of the strengths of a fit; with a direction of the noise, which takes up a drift that is not smooth enough.
_UPDATES, _TENSOR_UPDATES = 3, 7
# The fewest samples that a chain is learned from, when others come too early for it or lie apart.
_FEWEST_SAMPLES = 5
# Up to this many coefficients the Fisher information is used.
_MOST_COEFFICIENTS = 1500
# Edges times steps times evaluations with which a second chain on finer states is still learned: some 50 seconds.
_MOST_REFINEMENT = 1e10
# An optimum: a Newton step would gain fewer nats than this over all samples.
_CONVERGED = 0.5


def fit(
    settings: FitSettings, data: Snapshots, report: Report | None = None, checkpoint: Checkpoint | None = None
) -> FitResult:
    """All four stages. An interrupt ends it with the best so far, once there is a first solution."""
    if isinstance(settings.states, States):
        eps = data.horizon / STEPS if settings.solver.eps == "auto" else float(settings.solver.eps)
        return learn(settings, data, settings.states, eps, report, checkpoint=checkpoint)
    designed = not isinstance(settings.states, SampleStates)
    coarse = look(settings if designed else settings.on_designed_states(), data, report, checkpoint)
    if coarse.solution.interrupted:
        return coarse
    try:
        refine = _fit_on_designed_states if designed else _fit_on_samples
        return refine(settings, data, report, coarse, checkpoint)
    except STOPS:
        return replace(coarse, solution=replace(coarse.solution, interrupted=True), converged=False)


def _fit_on_designed_states(
    settings: FitSettings, data: Snapshots, report: Report | None, coarse: FitResult, checkpoint: Checkpoint | None
) -> FitResult:
    """On states as fine as noise and drift of the coarse chain ask for; twice, if those of the first ask for finer."""
    for attempt in range(2):
        if coarse.solution.interrupted:
            return coarse
        try:
            states, eps = design(settings, data, coarse.chain)
        except GraphError:
            if attempt == 0:
                raise
            break  # states as close as the noise asks for do not reach the start: the check tells of the spacing
        if attempt and _work(data, states, eps) * len(coarse.losses) > _MOST_REFINEMENT:
            break  # the check tells of spacing and step
        result = learn(settings, data, states, eps, report, before=coarse, checkpoint=checkpoint)
        if attempt or settings.spacing != "auto" or is_resolved(settings, data, result.chain):
            break
        coarse = result
    return result


def _work(data: Snapshots, states: States, eps: float) -> float:
    """Edges times steps: what an evaluation of the likelihood costs."""
    return states.graph.n_edges * data.horizon / eps


def look(
    settings: FitSettings, data: Snapshots, report: Report | None, checkpoint: Checkpoint | None = None
) -> FitResult:
    """A coarse chain."""
    data = data.here
    states, eps, rho = coarse_design(settings, data)
    return learn(settings.coarse(_COARSE_BASIS), data, states, eps, report, rho=rho, updates=1, checkpoint=checkpoint)


def _fit_on_samples(
    settings: FitSettings, data: Snapshots, report: Report | None, coarse: FitResult, checkpoint: Checkpoint | None
) -> FitResult:
    """The paper's setting: the samples are the states."""
    options = settings.states
    assert isinstance(options, SampleStates)
    eps = data.horizon / STEPS if settings.solver.eps == "auto" else float(settings.solver.eps)
    _, high, drift = levels(data, coarse.chain)
    states = States.samples(
        data.X,
        data.start,
        data.start_weights,
        radius=REACH * np.sqrt(eps) * high + eps * drift,
        k=None if options.n_neighbors == "auto" else options.n_neighbors,
        density=options.density,
        dimension=options.dimension,
    )
    at_states = replace(data, X=states.points)
    return learn(settings, at_states, states, eps, report, before=coarse, checkpoint=checkpoint)


def learn(
    settings: FitSettings,
    data: Snapshots,
    states: States,
    eps: float,
    report: Report | None,
    *,
    before: FitResult | None = None,
    rho: float | None = None,
    updates: int | None = None,
    checkpoint: Checkpoint | None = None,
) -> FitResult:
    """Maximum likelihood on these states, from what was learned before; ``updates`` of the strengths, 1 for a look."""
    if updates is None:
        updates = _TENSOR_UPDATES if settings.noise == "tensor" else _UPDATES
    usable = _UsableSamples.of(data, states, eps)
    used = data.only(usable.kept, usable.farthest, usable.earliest)
    density = None if isinstance(settings.states, States) else start_density(states, data)
    if density is not None:
        states = replace(states, start=density.mass)
    given = GivenOrderings.of(settings, data, states)
    likelihood = likelihood_on(settings, used, states, eps, given.differences(states.graph))
    rho = first_noise(settings, data, states.dimension) if rho is None else rho
    chain = None if before is None else before.chain
    first = None if density is None else density.block(float(used.weights.sum()))
    parameters, a = parametrise(settings, data, states, eps, given, chain, rho, coarse=updates == 1, start=first)
    problem = PenalisedLikelihood(likelihood, parameters, used.weights)
    streams = streams_for(settings, states, given, len(used.X), coarse=updates == 1)
    turned = None if before is None or streams is None else before.chain.rotation
    if streams is not None and turned is not None:
        assert before is not None
        w = before.chain.states.observe(states.points) @ before.chain.own_rotation
        problem, a = with_rotation(problem, streams, states, a, noise_level(parameters.base), w)
        problem = strengths_of(problem, before.solution.parameters)
        if settings.noise == "tensor":
            problem, a = with_tensor(problem, states, a)
    if settings.smoothness.action > 0:
        tangents = TangentSpaces.fit(states.graph, usual_neighbors(states.graph, 12), dimension=states.dimension)
        problem = replace(problem, action=ActionPenalty(tangents), action_strength=float(settings.smoothness.action))
    nowhere = _log_density_of_nowhere(states, len(data.X))
    if before is not None:
        a = _within_reach(problem, a, nowhere)
    evaluations = Evaluations(report)
    solution, converged, evidence = _optimum(
        settings, problem, a, evaluations, updates, None if turned is not None else streams, states,
        before is not None, checkpoint,
    )  # fmt: skip
    if turned is not None:
        assert before is not None
        evidence = before.rotation
    dynamics = solution.parameters.dynamics(solution.a)
    lost = np.flatnonzero(usable.kept)[solution.problem.likelihood.per_sample(dynamics) < nowhere]
    if updates > 1 and lost.size == usable.kept.sum() and not solution.interrupted:
        raise ValueError(
            f"the process reaches none of the {lost.size} samples: check the start, the units of the times, and that "
            "they are counted from the start."
        )

    def read(dynamics: Dynamics) -> FittedChain:
        return _chain(settings, states, dynamics, given, streams)

    chain, step_change = read(dynamics), 0.0
    if updates > 1 and _can_be_extrapolated(settings, solution, states):
        wider = states.with_radius(np.sqrt(2) * states.radius)
        local, metric = replace(chain, states=wider).edge_differences(), replace(chain, states=wider).edge_forms()
        twice = likelihood_on(settings, used, wider, 2 * eps, local, metric)
        try:
            chain, step_change = extrapolated(chain, solution, twice, evaluations, settings.solver.tol, read)
        except STOPS:
            solution, converged = replace(solution, interrupted=True), False
    sampled = _sampled(likelihood.observation.places, used.weights)
    if updates > 1 and settings.smoothness.noise == "auto":
        solution = with_possible_variation(solution, sampled)
    return FitResult(
        chain=chain,
        solution=solution,
        losses=tuple(evaluations.losses),
        stages=tuple(evaluations.stages),
        converged=converged,
        unreached=np.sort(np.concatenate([np.flatnonzero(usable.far), lost])),
        early=np.flatnonzero(usable.early & ~usable.far & data.one_start),
        used=usable.kept,
        sampled=sampled,
        rotation=evidence,
        step_change=step_change,
    )


def _can_be_extrapolated(settings: FitSettings, solution: Solution, states: States) -> bool:
    """Whether another step tells of the error of this one: not on samples, and only with the curvature at hand."""
    learned = "ordering" in settings.learn and not {"eps", "density", "scale"} & settings.learn
    return learned and not (states.are_samples or solution.interrupted or solution.information is None)


def _chain(
    settings: FitSettings, states: States, dynamics: Dynamics, given: GivenOrderings, streams: StreamFunctions | None
) -> FittedChain:
    """The chain, with its fields corrected for the length of the step."""
    n_given = len(given.local)
    if streams is None or len(dynamics.local_slopes) == n_given:
        ordering, rotation, metric = _ordering(settings, states, dynamics, given), None, None
    else:
        after = n_given + states.dimension
        w = np.stack(dynamics.local_slopes[n_given:after], axis=1)
        stretched = np.array([slope[0] for slope in dynamics.local_slopes[after:]])
        metric = metric_of(stretched, dynamics.eps) if stretched.size else None
        ordering, rotation = read_general(states, dynamics, w, streams, metric)
    if dynamics.initial is not None:
        states = replace(states, start=dynamics.initial)
    return FittedChain(states, dynamics, given.local, ordering, settings.alpha, rotation=rotation, metric=metric)


@dataclass(frozen=True, eq=False)
class _UsableSamples:
    """Which samples lie apart, were seen before the first step, and are used; (m,) each."""

    far: NDArray[np.bool_]
    early: NDArray[np.bool_]
    kept: NDArray[np.bool_]
    farthest: float = np.inf  # the largest distance from the states, and the earliest time, of those that are used
    earliest: float = -np.inf

    @classmethod
    def of(cls, data: Snapshots, states: States, eps: float) -> _UsableSamples:
        m, latest = len(data.X), data.latest
        if states.are_samples:
            return cls(np.zeros(m, bool), np.zeros(m, bool), np.ones(m, bool))
        distance = states.distance(data.X)  # noise across a manifold is in it too
        farthest = float(2.5 * states.spacing + 4 * np.median(distance))
        earliest = eps if data.one_start else 1e-9 * data.horizon
        far = distance > farthest
        early = np.zeros(m, bool) if latest is None else latest < earliest
        kept = ~(far | early) & (data.weights > 0)
        if far.sum() > 0.2 * m:
            raise GraphError(
                f"{far.sum()} of {m} samples lie apart from the start, the first at index {int(np.argmax(far))}: "
                "the process cannot reach them by small steps. Check the start and the units, or use a larger spacing."
            )
        if kept.sum() < _FEWEST_SAMPLES:
            raise ValueError(
                f"only {kept.sum()} samples were seen later than one step (eps = {eps:g}) and do not lie apart: use a "
                "smaller eps, or check the units of the times."
            )
        return cls(far, early, kept, farthest, earliest)


def _log_density_of_nowhere(states: States, m: int) -> float:
    """Below this log likelihood a sample is not reached."""
    return float(np.log(1e-11 / m if states.are_samples else 2 * DENSITY_FLOOR / states.volumes.sum()))


def _ordering(settings: FitSettings, states: States, dynamics: Dynamics, given: GivenOrderings) -> Array:
    """The ordering on the states, (N,), 0 at the start; a learned one corrected for the length of the step."""
    if not dynamics.orderings:
        return np.zeros(len(states.points))
    if "ordering" in settings.learn and not given.local:
        return read_ordering(states, dynamics)
    ordering = dynamics.orderings[0]
    return np.asarray(ordering - states.start @ ordering)


def _sampled(places: Any, weights: Array) -> Array:
    """How much the samples see of each state, on average, (N,)."""
    return np.asarray(weights if places is None else weights @ places) / weights.sum()


def _within_reach(problem: PenalisedLikelihood, a: Array, nowhere: float) -> Array:
    """Coefficients from which most samples are reached: what was learned on other states, or that with a flatter
    ordering, or without one and with more noise. From where nothing is reached, nothing shows the way; few functions
    may carry an ordering that badly, and across a gap others so roughly that reaching nothing has the lower loss."""
    p, best = problem.parameters, (np.inf, a)
    orderings = [part for block, part in zip(p.blocks, p.slices, strict=True) if block.target == "ordering"]
    noise = p.part("noise")
    if not orderings:
        return a
    for share, factor in ((1.0, 1.0), (0.5, 1.0), (0.25, 1.0), (0.0, 1.0), (0.0, 2.0), (0.0, 4.0)):
        b = a.copy()
        for part in orderings:
            b[part] *= share
        if noise is not None and noise[0].basis is not None:
            b[noise[1].start] += np.log(factor)
        log_likelihood = problem.likelihood.per_sample(p.dynamics(b))
        loss = p.roughness(b)[0] - float(problem.weights @ log_likelihood) / problem.n_samples
        if problem.weights @ (log_likelihood < nowhere) < 0.3 * problem.n_samples and loss < -nowhere:
            return b
        best = min(best, (loss, b), key=lambda one: one[0])
    return best[1]


def _optimum(
    settings: FitSettings,
    problem: PenalisedLikelihood,
    a: Array,
    evaluations: Evaluations,
    updates: int,
    streams: StreamFunctions | None,
    states: States,
    looked: bool,
    checkpoint: Checkpoint | None = None,
) -> tuple[Solution, bool, RotationEvidence | None]:
    """The optimum, whether it is one, and what is to be said of a rotation that was tried with the ``streams``. An
    interrupt leaves the best so far. looked: a is what another chain found, so that the information there is a good
    metric."""
    p, solver = problem.parameters, settings.solver
    curvature = p.size <= _MOST_COEFFICIENTS and not {"eps", "density", "scale"} & settings.learn
    information = None
    if looked and curvature:
        information = problem.information(a)
        a = _smoothed(problem, a, information, evaluations)
    solution = optimise(
        problem, a, evaluations, auto=auto_blocks(settings.smoothness, p), max_iter=solver.max_iter, tol=solver.tol,
        updates=updates, curvature=curvature, information=information, checkpoint=checkpoint,
    )  # fmt: skip
    evidence = None
    if streams is not None and curvature and not solution.interrupted:
        solution, evidence = with_rotation_if_worth(
            settings, solution, streams, states, evaluations, updates, a, checkpoint
        )
    converged = solution.decrement < _CONVERGED and not solution.interrupted
    if solution.interrupted or updates == 1 or p.size == 1:
        return solution, converged, evidence
    try:
        if converged and solver.n_starts > 1:
            solution, converged = _confirmed(settings, solution, evaluations, curvature)
        if curvature and not solution.interrupted:
            solution = _marginal_noise(solution, evaluations.aside(), solver)  # not a way down one loss
            converged = converged and solution.decrement < _CONVERGED
    except STOPS:
        solution = replace(solution, interrupted=True)
    return solution, converged and not solution.interrupted, evidence


def _smoothed(problem: PenalisedLikelihood, a: Array, information: Array, evaluations: Evaluations) -> Array:
    """Coefficients after a Newton step of all but the noise, if it gains: fields that come from other states are rough
    on these, and a descent would rather raise the noise, to which roughness is relative, than smooth them."""
    found, free = problem.parameters.part("noise"), np.ones(a.size, bool)
    if found is not None:
        free[found[1]] = False
    loss, slope = evaluations(problem, a)
    b = a.copy()
    b[free] -= np.linalg.solve(problem.curvature(information, a)[np.ix_(free, free)], slope[free])
    return b if evaluations(problem, b)[0] < loss else a


def _marginal_noise(solution: Solution, evaluations: Evaluations, solver: Solver) -> Solution:
    """The solution with the noise at the optimum of its marginal likelihood."""
    found = solution.parameters.part("noise")
    if found is None or found[0].basis is None:
        return solution
    block, part = found
    if part.stop - part.start == 1:
        return maximize_marginal(solution, part.start, evaluations, solver.tol, solver.max_iter)
    if block.strength > 0:  # without smoothness much of a field is not known at all
        return marginal_newton_step(solution, part, evaluations, solver.tol, solver.max_iter)
    return solution


def _confirmed(
    settings: FitSettings, solution: Solution, evaluations: Evaluations, curvature: bool
) -> tuple[Solution, bool]:
    """The best optimum of several starts, and whether all of them end at the same."""
    problem, solver = solution.problem, settings.solver
    rng = np.random.default_rng(settings.random_state)
    matrix = problem.curvature(solution.fisher, solution.a) if curvature else first_metric(problem, solution.a)
    best, same = solution, True
    for _ in range(solver.n_starts - 1):
        a, beside = _elsewhere(solution, rng), evaluations.aside()
        a, loss = minimise(problem, a, matrix, beside, solver.max_iter, solver.tol)
        same = same and problem.n_samples * abs(loss - solution.loss) < 1.0
        if problem.n_samples * (best.loss - loss) > 1.0:
            best = optimise(problem, a, beside, max_iter=solver.max_iter, tol=solver.tol, curvature=curvature)
            evaluations.join(beside)  # else another start is not part of the way to the optimum
        if best.interrupted:
            return best, False
    return best, same


def _elsewhere(solution: Solution, rng: np.random.Generator) -> Array:
    """Another start: a flatter ordering, another level of what is positive."""
    a, p = solution.a.copy(), solution.parameters
    for block, part in zip(p.blocks, p.slices, strict=True):
        if block.target == "ordering":
            a[part] *= rng.uniform(0.3, 0.7)
        elif block.positive and block.basis is not None:
            a[part.start] += rng.choice([-0.4, 0.4])
    return a
