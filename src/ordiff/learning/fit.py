"""A fit from snapshots to dynamics, in four stages.

*Look*: a coarse chain of few states and few functions finds how large noise and drift are, and whether the drift
turns. *Design*: the step, the spacing of the states and the radius of their graph follow from them. *Learn*: maximum
likelihood on these states, with smoothness by empirical Bayes. *Read*: the fields, corrected for the length of the
step, and their covariance.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from ordiff._validation import Array, GraphError
from ordiff.learning.blocks import GivenOrderings, auto_blocks
from ordiff.learning.checkpoint import Checkpoint
from ordiff.learning.choice import with_rotation_if_worth
from ordiff.learning.data import Snapshots
from ordiff.learning.discretise import REACH, STEPS, coarse_design, design, is_resolved, levels, likelihood_on
from ordiff.learning.likelihood import Dynamics
from ordiff.learning.marginal import marginal_newton_step, maximize_marginal
from ordiff.learning.optimise import STOPS, Evaluations, Report, Solution, first_metric, minimise, optimise
from ordiff.learning.result import FitResult, FittedChain, read_ordering
from ordiff.learning.rotation import RotationEvidence, read_general
from ordiff.learning.settings import FitSettings, SampleStates, Solver
from ordiff.learning.step import extrapolated
from ordiff.learning.task import FitTask, smoothed
from ordiff.learning.tensor import metric_of
from ordiff.learning.variation import with_possible_variation
from ordiff.states import States

# Functions of the coarse chain.
_COARSE_BASIS = 25
# Updates of the strengths of a fit; with a direction of the noise, which takes up a drift that is not smooth enough.
_UPDATES, _TENSOR_UPDATES = 3, 7
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
        return _interrupted(coarse)


def _interrupted(result: FitResult) -> FitResult:
    """The result of a fit that was ended after it."""
    return replace(result, solution=replace(result.solution, interrupted=True), converged=False)


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
        try:
            result = learn(settings, data, states, eps, report, before=coarse, checkpoint=checkpoint)
        except STOPS:
            if attempt == 0:
                raise
            return _interrupted(coarse)
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
    task = FitTask.of(settings, data, states, eps, before=before, rho=rho, coarse=updates == 1)
    evaluations = Evaluations(report)
    solution, converged, evidence = _optimum(settings, task, evaluations, updates, before, checkpoint)
    lost = task.lost(solution)
    if updates > 1 and lost.size == task.usable.kept.sum() and not solution.interrupted:
        raise ValueError(
            f"the process reaches none of the {lost.size} samples: check the start, the units of the times, and that "
            "they are counted from the start."
        )
    chain, step_change = _chain(settings, task, solution.parameters.dynamics(solution.a)), 0.0
    if updates > 1 and _can_be_extrapolated(settings, solution, states):
        try:
            chain, step_change = _extrapolated(settings, task, chain, solution, evaluations)
        except STOPS:
            solution, converged = replace(solution, interrupted=True), False
    if updates > 1 and settings.smoothness.noise == "auto":
        solution = with_possible_variation(solution, task.sampled)
    return FitResult(
        chain=chain,
        solution=solution,
        losses=tuple(evaluations.losses),
        stages=tuple(evaluations.stages),
        converged=converged,
        unreached=np.sort(np.concatenate([np.flatnonzero(task.usable.far), lost])),
        early=np.flatnonzero(task.usable.early & ~task.usable.far & data.one_start),
        used=task.usable.kept,
        sampled=task.sampled,
        rotation=evidence,
        step_change=step_change,
    )


def _can_be_extrapolated(settings: FitSettings, solution: Solution, states: States) -> bool:
    """Whether another step tells of the error of this one: not on samples, and only with the curvature at hand."""
    learned = "ordering" in settings.learn and not {"eps", "density", "scale"} & settings.learn
    return learned and not (states.are_samples or solution.interrupted or solution.information is None)


def _extrapolated(
    settings: FitSettings, task: FitTask, chain: FittedChain, solution: Solution, evaluations: Evaluations
) -> tuple[FittedChain, float]:
    """The chain extrapolated to a step of 0 by one with twice the step, and how much that changed its drift."""
    wider = replace(chain, states=task.states.with_radius(np.sqrt(2) * task.states.radius))
    local, metric = wider.edge_differences(), wider.edge_forms()
    twice = likelihood_on(settings, task.data, wider.states, 2 * chain.dynamics.eps, local, metric)
    read = partial(_chain, settings, task)
    return extrapolated(chain, solution, twice, evaluations, settings.solver.tol, read)


def _chain(settings: FitSettings, task: FitTask, dynamics: Dynamics) -> FittedChain:
    """The chain, with its fields corrected for the length of the step."""
    states, given, streams = task.states, task.given, task.streams
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


def _ordering(settings: FitSettings, states: States, dynamics: Dynamics, given: GivenOrderings) -> Array:
    """The ordering on the states, (N,), 0 at the start; a learned one corrected for the length of the step."""
    if not dynamics.orderings:
        return np.zeros(len(states.points))
    if "ordering" in settings.learn and not given.local:
        return read_ordering(states, dynamics)
    ordering = dynamics.orderings[0]
    return np.asarray(ordering - states.start @ ordering)


def _optimum(
    settings: FitSettings,
    task: FitTask,
    evaluations: Evaluations,
    updates: int,
    before: FitResult | None,
    checkpoint: Checkpoint | None = None,
) -> tuple[Solution, bool, RotationEvidence | None]:
    """The optimum, whether it is one, and what is to be said of a rotation that was tried, or that came from
    ``before``. An interrupt leaves the best so far."""
    problem, a, solver = task.problem, task.a, settings.solver
    p = problem.parameters
    curvature = p.size <= _MOST_COEFFICIENTS and not {"eps", "density", "scale"} & settings.learn
    information = None
    if before is not None and curvature:  # what another chain found is near enough for a good metric
        information = problem.information(a)
        a = smoothed(problem, a, information, evaluations)
    solution = optimise(
        problem, a, evaluations, auto=auto_blocks(settings.smoothness, p), max_iter=solver.max_iter, tol=solver.tol,
        updates=updates, curvature=curvature, information=information, checkpoint=checkpoint,
    )  # fmt: skip
    evidence = before.rotation if before is not None and task.turns else None
    if task.streams is not None and not task.turns and curvature and not solution.interrupted:
        solution, evidence = with_rotation_if_worth(
            settings, solution, task.streams, task.states, evaluations, updates, a, checkpoint
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
