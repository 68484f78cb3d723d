"""Parametrisations: their derivatives against finite differences, for everything that can be learned."""

from __future__ import annotations

import numpy as np
import pytest

from chain_reference import slope_along
from ordiff.learning.likelihood import Dynamics, SnapshotLikelihood
from ordiff.learning.optimise import PenalisedLikelihood
from ordiff.learning.parameters import ParameterBlock, Parameters
from ordiff.learning.scores import scores


def make(base: Dynamics, target: str, kind: str) -> tuple[Parameters, np.ndarray]:
    rng = np.random.default_rng(1)
    n = base.noise.size
    U = {"values": None, "constant": np.ones((n, 1)), "basis": rng.standard_normal((n, 5))}[kind]
    K = n if U is None else U.shape[1]
    centre = {"eps": np.log(base.eps), "noise": 0.0}.get(target, 0.0)
    floor = 0.7 if target == "noise" else 0.0
    penalty = np.arange(1.0, K + 1)
    block = ParameterBlock(target, U, index=0, centre=centre, penalty=penalty, strength=0.3, floor=floor)
    a = 0.1 * rng.standard_normal(K)
    if target == "eps":
        a[0] = np.log(base.eps)
    return Parameters((block,), base, alpha=0.7), a


@pytest.mark.parametrize("kind", ["values", "constant", "basis"])
@pytest.mark.parametrize("target", ["ordering", "rotation", "noise", "speed", "scale", "local_speed", "eps", "density"])
def test_gradient(chain, target: str, kind: str) -> None:
    if target == "eps" and kind != "constant":
        pytest.skip("eps is one number")
    parameters, a = make(chain.base, target, kind)
    problem = PenalisedLikelihood(chain.likelihood, parameters, np.ones(chain.n))
    _, gradient = problem.value_and_gradient(a)
    u = np.random.default_rng(2).standard_normal(a.size)
    slope = slope_along(lambda b: problem.value_and_gradient(b)[0], a, u)
    assert gradient @ u == pytest.approx(slope, rel=1e-6, abs=1e-10)


@pytest.mark.parametrize("target", ["ordering", "rotation", "noise", "speed", "local_speed"])
def test_scores_are_the_gradient_sample_by_sample(chain, target: str) -> None:
    parameters, a = make(chain.base, target, "basis")
    problem = PenalisedLikelihood(chain.likelihood, parameters, np.ones(chain.n))
    found = scores(chain.likelihood, parameters.dynamics(a), parameters.directions(a), dtype=np.float64)
    _, gradient = problem.value_and_gradient(a)
    _, rough = parameters.blocks[0].roughness(a)
    np.testing.assert_allclose(-found.mean(axis=0), gradient - 0.3 * rough, rtol=1e-8, atol=1e-12)


def test_gradient_and_scores_by_the_start(chain) -> None:
    """With the masses of a start beside an ordering: dp_0 = p_0 ∘ (U − p_0·U) a."""
    rng = np.random.default_rng(3)
    n, old = chain.n, chain.likelihood
    initial = np.where(np.arange(n) < n // 2, rng.uniform(0.1, 1.0, n), 0.0)
    likelihood = SnapshotLikelihood(old.graph, old.observation, initial, old.steps, old.fractions, local=old.local)
    A = rng.standard_normal((4, 4))
    with np.errstate(divide="ignore"):
        start = ParameterBlock("start", rng.standard_normal((n, 4)), centre=np.log(initial), penalty=A @ A.T)
    ordering, b = make(chain.base, "ordering", "basis")
    parameters = Parameters((start, *ordering.blocks), chain.base)
    problem = PenalisedLikelihood(likelihood, parameters, np.ones(n))
    a = np.concatenate([0.3 * rng.standard_normal(4), b])
    _, gradient = problem.value_and_gradient(a)
    for u in np.eye(a.size)[:5]:
        slope = slope_along(lambda c: problem.value_and_gradient(c)[0], a, u)
        assert gradient @ u == pytest.approx(slope, rel=1e-6, abs=1e-10)
    found = scores(likelihood, parameters.dynamics(a), parameters.directions(a), dtype=np.float64)
    rough = parameters.roughness(a)[1]
    np.testing.assert_allclose(-found.mean(axis=0), gradient - rough, rtol=1e-8, atol=1e-12)
    assert parameters.dynamics(a).initial.sum() == pytest.approx(1)
    assert not parameters.dynamics(a).initial[n // 2 :].any()


@pytest.mark.parametrize("target", ["scale", "eps", "density"])
def test_what_has_no_scores_says_so(chain, target: str) -> None:
    parameters, a = make(chain.base, target, "constant")
    with pytest.raises(ValueError, match=f"scores by {target} are not available"):
        parameters.directions(a)


def test_positive_quantities_stay_within_bounds() -> None:
    block = ParameterBlock("noise", None, centre=0.0, limit=np.log(10.0))
    value, slope = block.field(np.array([-1e3, 0.0, 1e3]))
    assert value[1] == 1
    np.testing.assert_allclose(value[[0, 2]], [0.1, 10.0])
    assert np.isfinite(slope).all()
    above = ParameterBlock("noise", None, centre=0.0, floor=0.5, limit=np.log(10.0))
    z = np.array([-20.0, -1.0, 0.0, 1.0])
    value, _ = above.field(z)
    np.testing.assert_allclose(value**2, block.field(z)[0] ** 2 + 0.25)
    assert value[0] == pytest.approx(np.hypot(0.5, 0.1), abs=2e-4)
    np.testing.assert_allclose(above.exponent(value[1:]), z[1:], atol=0.02)  # but for the limiter
    assert np.isfinite(above.exponent(np.array([0.1, 0.5]))).all()


def test_what_is_not_learned_stays(chain) -> None:
    blocks = (ParameterBlock("ordering", None, index=1), ParameterBlock("noise", np.ones((chain.n, 1))))
    parameters = Parameters(blocks, chain.base)
    a = np.append(np.arange(60.0), np.log(0.9))
    dynamics = parameters.dynamics(a)
    np.testing.assert_array_equal(dynamics.orderings[0], chain.base.orderings[0])
    np.testing.assert_array_equal(dynamics.orderings[1], a[:60])
    np.testing.assert_allclose(dynamics.noise, 0.9, rtol=1e-4)
    assert dynamics.slopes == chain.base.slopes
    assert parameters.slices == [slice(0, 60), slice(60, 61)]
    assert parameters.part("noise") == (blocks[1], slice(60, 61))
    assert parameters.part("speed") is None
    changes = parameters.directions(a, without="noise")
    assert changes.noise is None
    assert changes.orderings[0] is None
    np.testing.assert_array_equal(changes.orderings[1], np.eye(60))
