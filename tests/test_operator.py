"""Operators: the torus of the paper, the algebra, and inputs that strain them."""

from __future__ import annotations

import _thread
import copy
import os
import pickle
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import ordiff as od
from ordiff import _parallel
from ordiff._compiled import csr, transition
from ordiff.tuning import p_max
from reference import Surface, make_kernel

# small graphs with wide steps: what is tested is the arithmetic
pytestmark = pytest.mark.filterwarnings("ignore:the graph is too small", "ignore:eps = ")


def rms(x):
    return float(np.sqrt(np.mean(np.square(x))))


# --------------------------------------------------------------------------------------------- torus, 100 × 100


@pytest.fixture(scope="module")
def isotropic():
    return od.datasets.torus(100)


@pytest.fixture(scope="module")
def anisotropic():
    return od.datasets.torus(100, anisotropic=True)


@pytest.fixture(scope="module")
def graph(isotropic):
    return od.NeighborGraph.build(isotropic.X, radius=0.6)


@pytest.fixture(scope="module")
def wide_graph(isotropic):
    return od.NeighborGraph.build(isotropic.X, radius=1.1)


def torus_errors(op, problem):
    f = problem.test_function
    return rms(op.generator(f) - problem.generator), rms(op.adjoint(f) - problem.adjoint)


def assert_within(errors, bounds):
    assert errors[0] <= bounds[0], errors
    assert errors[1] <= bounds[1], errors


def test_torus_isotropic(isotropic, graph):
    kernel = od.Kernel(od.Ordering.local(isotropic.ordering), noise=isotropic.noise)
    assert_within(torus_errors(kernel.operator(graph, 0.0013), isotropic), (0.00788 + 5e-6, 0.01035 + 5e-6))
    assert_within(torus_errors(od.richardson(kernel, graph, 0.002), isotropic), (0.0001, 0.0003))


def test_torus_direct_anisotropic(anisotropic, wide_graph):
    kernel = od.Kernel(
        od.Ordering.field(anisotropic.drift), noise=anisotropic.noise, anisotropy=anisotropic.anisotropy,
        basis=anisotropic.jacobian,
    )  # fmt: skip
    assert_within(torus_errors(kernel.operator(wide_graph, 0.0021), anisotropic), (0.01055, 0.01425))
    assert_within(torus_errors(od.richardson(kernel, wide_graph, 0.003), anisotropic), (0.0003, 0.0008))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("normal_weight", "plain", "extrapolated"),
    [("auto", (0.045, 0.048), (0.0027, 0.0030)), (0.01, (0.031, 0.0355), (0.0027, 0.0029))],
)
def test_torus_strang(anisotropic, wide_graph, normal_weight, plain, extrapolated):
    kernel = od.Kernel(
        od.Ordering.local(anisotropic.ordering), noise=anisotropic.noise, anisotropy=anisotropic.anisotropy,
        basis=anisotropic.jacobian, normal_weight=normal_weight,
    )  # fmt: skip
    assert_within(torus_errors(od.strang(kernel, wide_graph, 0.0063), anisotropic), plain)
    better = od.richardson(kernel, wide_graph, 0.01, scheme=od.strang)
    assert_within(torus_errors(better, anisotropic), extrapolated)


def test_torus_estimated_gradient_gives_the_direct_kernel_of_a_sampled_ordering(anisotropic, graph):
    """Without a field, the direct kernel estimates ∇l by local PCA; on this grid that costs accuracy, not sense."""
    kernel = od.Kernel(
        od.Ordering.local(anisotropic.ordering), noise=anisotropic.noise, anisotropy=anisotropic.anisotropy,
        basis=anisotropic.jacobian,
    )  # fmt: skip
    assert_within(torus_errors(kernel.operator(graph, 0.0021), anisotropic), (0.03, 0.03))


# ----------------------------------------------------------------------------------------------------- algebra


@pytest.fixture(scope="module")
def surface():
    return Surface(m=60)


@pytest.fixture(scope="module")
def chains(surface):
    graph = od.NeighborGraph.build(surface.X, k=25)
    kernel = make_kernel(surface, "several", "tangent", "one-sided", "gaussian")
    return {
        "operator": kernel.operator(graph, 0.4, density=surface.q),
        "strang": od.strang(kernel, graph, 0.4, density=surface.q),
    }


@pytest.mark.parametrize("name", ["operator", "strang"])
def test_steps_match_the_dense_matrix(chains, name, rng):
    op = chains[name]
    P = np.linalg.multi_dot([f.matrix.toarray() for f in op.factors]) if name == "strang" else op.matrix.toarray()
    f, many = rng.normal(size=60), rng.normal(size=(60, 4))
    q = op.density
    for g in (f, many):
        column = q if g.ndim == 1 else q[:, None]
        np.testing.assert_allclose(op @ g, P @ g, atol=1e-13)
        np.testing.assert_allclose(op.matrix @ g, P @ g, atol=1e-13)
        np.testing.assert_allclose(op.backward(g, 3), P @ P @ P @ g, atol=1e-13)
        np.testing.assert_allclose(op.forward(g, 3), P.T @ P.T @ P.T @ g, atol=1e-13)
        np.testing.assert_allclose(op.generator(g), (P @ g - g) / 0.4, atol=1e-12)
        np.testing.assert_allclose(op.adjoint(g), column * (P.T @ (g / column) - g / column) / 0.4, atol=1e-12)
        np.testing.assert_array_equal(op.backward(g, 0), g)
    assert op.shape == P.shape


def test_the_adjoint_is_the_adjoint(chains, rng):
    """⟨L f, g⟩ = ⟨f, L* g⟩ in the inner product Σ f g / q, which samples of density q make of an integral."""
    for op in [*chains.values(), od.richardson(chains["operator"].kernel, chains["operator"].graph, 0.2)]:
        f, g = rng.normal(size=(2, 60))
        q = op.density
        assert (op.generator(f) * g / q).sum() == pytest.approx((f * op.adjoint(g) / q).sum(), rel=1e-10)


def test_mass_is_conserved(chains, rng):
    mass = rng.dirichlet(np.ones(60))
    for op in chains.values():
        assert op.forward(mass, 20).sum() == pytest.approx(1.0, abs=1e-12)


def test_the_undirected_twin_drops_the_orderings_only(surface):
    graph = od.NeighborGraph.build(surface.X, k=25)
    kernel = make_kernel(surface, "several", "tangent", "beta", "gaussian")
    still = make_kernel(surface, "none", "tangent", "beta", "gaussian")
    f = surface.l
    options = {"density": surface.q, "alpha": 0.4}
    for build in (lambda k: k.operator(graph, 0.4, **options), lambda k: od.strang(k, graph, 0.4, **options),
                  lambda k: od.richardson(k, graph, 0.4, **options)):  # fmt: skip
        np.testing.assert_allclose(build(kernel).undirected().generator(f), build(still).generator(f), atol=1e-12)


def test_many_threads_and_functions_agree_with_scipy(rng, monkeypatch, set_threads):
    monkeypatch.setattr("ordiff._parallel._PIECE", 1000)
    monkeypatch.setattr("ordiff._parallel._SHARED", 1000)
    monkeypatch.setattr("ordiff.operator._SCATTER_PART", 1000)
    set_threads(4)
    X = rng.normal(size=(2000, 2))
    op = od.Kernel(X[:, 0], noise=0.7).operator(od.NeighborGraph.build(X, k=40), 0.1)
    assert len(op._scatter_parts) == 4
    f, many = rng.normal(size=2000), rng.normal(size=(2000, 3))
    np.testing.assert_allclose(op @ f, op.matrix @ f, atol=1e-13)
    np.testing.assert_allclose(op.forward(f), op.matrix.T @ f, atol=1e-13)
    np.testing.assert_allclose(op.forward(many), op.matrix.T @ many, atol=1e-13)
    np.testing.assert_array_equal(op.forward(many), op.forward(many))


SAME_BITS = """
import numba, numpy as np, ordiff as od
from ordiff import _parallel
rng = np.random.default_rng(0)
X = rng.uniform(0, 1, (25_000, 2))
graph = od.NeighborGraph.build(X, k=99)
assert graph.n_edges > 2_000_000
f, many = rng.normal(size=25_000), rng.normal(size=(25_000, 3))
made = []
for threads in (1, 2):
    numba.set_num_threads(threads)
    assert _parallel.n_threads() == threads
    op = od.Kernel(X[:, 0]).operator(graph, eps=1e-4, density="knn")
    assert len(op._scatter_parts) > 1
    steps = (g for f in (f, many) for g in (op.backward(f, 3), op.forward(f, 3), op.generator(f), op.adjoint(f)))
    made.append([op.matrix.data, op.density, *steps])
print(all(np.array_equal(a, b) for a, b in zip(*made, strict=True)))
"""


@pytest.mark.slow
def test_steps_have_the_same_bits_on_any_number_of_threads():
    done = subprocess.run(
        [sys.executable, "-c", SAME_BITS], capture_output=True, text=True, timeout=300, check=True,
        env={**os.environ, "NUMBA_NUM_THREADS": "2"},
    )  # fmt: skip
    assert done.stdout.strip() == "True"


@pytest.mark.parametrize("name", ["backward", "forward"])
def test_many_steps_can_be_interrupted(rng, monkeypatch, set_threads, name):
    monkeypatch.setattr("ordiff._parallel._PIECE", 1000)
    monkeypatch.setattr("ordiff._parallel._SHARED", 1000)
    set_threads(2)
    X = rng.normal(size=(500, 2))
    step = getattr(od.Kernel(X[:, 0]).operator(od.NeighborGraph.build(X, k=20), 0.1), name)
    step(X[:, 0])  # compiled
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background would ignore it
    try:
        threading.Timer(0.2, _thread.interrupt_main).start()
        with pytest.raises(KeyboardInterrupt):
            step(X[:, 0], 10**8)
    finally:
        signal.signal(signal.SIGINT, before)
    assert np.isfinite(step(X[:, 0])).all()


def graphs_to_sort(rng):
    """Random and sorted samples, distances only, rows of different lengths, edges in one direction, several parts."""
    X = rng.normal(size=(500, 5))
    knn = od.NeighborGraph.build(X, k=15)
    D = knn.matrix(np.sqrt(knn.sqdist)).tocsr()
    far = np.concatenate([X[:300], X[300:] + 100.0])[rng.permutation(500)]
    return {
        "random": knn,
        "sorted": od.NeighborGraph.build(X[knn.layout.order], k=15),
        "distances": od.NeighborGraph.from_distances(D),
        "distances and points": od.NeighborGraph.from_distances(D, X),
        "radius": od.NeighborGraph.build(X, radius=2.0),
        "one direction": od.NeighborGraph.from_distances(sp.triu(D)),
        "parts": od.NeighborGraph.build(far, k=15),
    }


GRAPHS = ["random", "sorted", "distances", "distances and points", "radius", "one direction", "parts"]


def in_own_order(graph):
    """The graph with its samples in the order of its layout, which then leaves them as they are."""
    order = graph.layout.order
    D = graph.matrix(np.sqrt(graph.sqdist) + 1.0)[order][:, order].tocoo()
    D = sp.coo_array((D.data - 1.0, (D.row, D.col)), shape=D.shape)
    other = od.NeighborGraph.from_distances(D, X=None if graph.X is None else graph.X[order])
    np.testing.assert_array_equal(other.layout.order, np.arange(graph.n_points))
    return other, order


@pytest.mark.parametrize("name", GRAPHS)
def test_operators_are_sorted_and_nobody_sees_it(rng, name):
    """Against the formula, in the order of the caller; masses are scattered at once or in parts."""
    graph = graphs_to_sort(rng)[name]
    l, rho, q = rng.normal(size=500), rng.uniform(0.5, 1, 500), rng.uniform(0.5, 2, 500)
    i, j = graph.sources(), graph.indices
    K = np.exp(-graph.sqdist / (0.2 * rho[i] ** 2) + (l[j] - l[i]) / rho[i] ** 2) / q[j]
    want = graph.matrix(K / np.bincount(i, K)[i])
    f, many = rng.normal(size=500), rng.normal(size=(500, 3))
    f.flags.writeable = False
    results = []
    for parts in (1, 3):
        op = od.Kernel(l, noise=rho).operator(graph, 0.1, density=q)
        other = pickle.loads(pickle.dumps(op))
        given = od.MarkovOperator(graph, op.matrix.data, 0.1, q)
        np.testing.assert_allclose(op.matrix.data, want.data, rtol=1e-12)
        np.testing.assert_array_equal(op.matrix.indices, want.indices)
        np.testing.assert_array_equal(op.matrix.indptr, want.indptr)
        np.testing.assert_array_equal(op.staying(), op.matrix.diagonal())
        for one in (op, other, given):
            np.testing.assert_array_equal(one.matrix.toarray(), op.matrix.toarray())
            one.__dict__["_scatter_parts"] = _parallel.cut_rows(graph.layout.indptr, parts)
        results.append(
            [
                made
                for g in (f, many, np.asfortranarray(many), many[:, ::2])
                for o in (op, other, given)
                for made in (o @ g, o.backward(g, 3), o.generator(g), o.forward(g, 3), o.adjoint(g), o.backward(g, 0))
            ]
        )
    whole, in_parts = results
    for here, there in zip(in_parts, whole, strict=True):
        np.testing.assert_allclose(here, there, rtol=1e-12, atol=1e-12)
    for first in range(0, len(whole), 18):  # of one function: the same bits for an operator and its copies
        for other in (first + 6, first + 12):
            for here, there in zip(whole[other : other + 6], whole[first : first + 6], strict=True):
                np.testing.assert_array_equal(here, there)
    for pulled in (0, 1, 2):
        np.testing.assert_array_equal(in_parts[pulled], whole[pulled])
    P, L = want, (want - sp.eye_array(500)) / 0.1
    for g, first in ((f, 0), (many, 18), (many, 36), (many[:, ::2], 54)):
        column = q if g.ndim == 1 else q[:, None]
        expected = (P @ g, P @ (P @ (P @ g)), L @ g, P.T @ (P.T @ (P.T @ g)), column * (L.T @ (g / column)), g)
        for here, there in zip(whole[first : first + 6], expected, strict=True):
            np.testing.assert_allclose(here, there, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", GRAPHS)
def test_what_is_made_of_an_operator_does_not_depend_on_its_layout(rng, name):
    graph = graphs_to_sort(rng)[name]
    l, f = rng.normal(size=(2, 500))

    def made(graph, l, f):
        op = od.Kernel(l).operator(graph, 0.1)
        out = [p_max(op).rows, op.undirected().generator(f), op.forward(f, 2)]
        if graph.X is not None:
            stretched = od.Kernel(l, anisotropy=np.tile(np.diag([1.0, 2, 3, 4, 5]), (500, 1, 1)))
            split = od.strang(stretched, graph, 0.1)
            out += [*od.local_moments(op), split.forward(f, 2), split.backward(f, 2), split.matrix @ f]
            out += [od.richardson(stretched, graph, 0.1).adjoint(f)]
        return out

    own, order = in_own_order(graph)
    for here, there in zip(made(graph, l, f), made(own, l[order], f[order]), strict=True):
        np.testing.assert_allclose(here[order], there, rtol=1e-12, atol=1e-12)


def test_loops_are_compiled_once_for_every_kernel():
    s = Surface()
    graph = od.NeighborGraph.build(s.X, k=12)

    def compiled():
        loops = (transition.log_kernel, transition.softmax_rows, csr.multiply, csr.increment)
        return [set(loop.signatures) for loop in loops]

    od.Kernel(s.l).operator(graph, 0.4).generator(s.l)
    once = compiled()
    for parts in (("none", "ambient", "constant"), ("several", "tangent", "beta"), ("piecewise", "coupled", "beta")):
        make_kernel(s, *parts, "gaussian").operator(graph, 0.4, density=s.q).generator(s.l)
    assert compiled() == once


def test_copies_keep_what_is_theirs(rng):
    class Named(od.MarkovOperator):
        name = "nobody"

    X = rng.normal(size=(60, 2))
    op = od.Kernel(X[:, 0]).operator(od.NeighborGraph.build(X, k=20), 0.1)
    named, size = Named(op.graph, op.matrix.data, op.eps, op.density), len(pickle.dumps(op))
    named.name = "somebody"
    mass = named.forward(np.full(60, 1 / 60), 2)
    for other in (copy.copy(named), copy.deepcopy(named)):
        assert (type(other), other.name) == (Named, "somebody")
        np.testing.assert_array_equal(other.forward(np.full(60, 1 / 60), 2), mass)
    op.forward(op.backward(X))
    assert len(pickle.dumps(op)) == size  # without what steps keep


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_forked_during_a_first_step_steps_too(rng, monkeypatch):
    X = rng.normal(size=(60, 2))
    graph = od.NeighborGraph.build(X, k=20)
    one, other = (od.Kernel(X[:, 0]).operator(graph, eps) for eps in (0.1, 0.2))
    pickle.loads(pickle.dumps(one)).forward(X)  # compiled
    began, release, cut_rows = threading.Event(), threading.Event(), _parallel.cut_rows

    def slow(*args):
        began.set()
        release.wait(20)
        return cut_rows(*args)

    monkeypatch.setattr(_parallel, "cut_rows", slow)
    caller = threading.Thread(target=one.forward, args=(X,))
    caller.start()
    assert began.wait(20)
    monkeypatch.setattr(_parallel, "cut_rows", cut_rows)
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # ends a child that waits for ever
        other.forward(X)
        os._exit(0)
    release.set()
    caller.join(20)
    assert os.waitpid(child, 0)[1] == 0


def test_an_operator_shares_nothing_that_can_be_changed(rng):
    X = rng.normal(size=(60, 2))
    op = od.Kernel(X[:, 0]).operator(od.NeighborGraph.build(X, k=20), 0.1)
    f = rng.normal(size=60)
    for step in (op.backward, op.forward):
        before = f.copy()
        step(f, 0)[:] = 0
        step(f)[:] = 0
        np.testing.assert_array_equal(f, before)
    want = op @ f
    op.matrix.data[:] = 1.0  # the values are a copy
    np.testing.assert_array_equal(op @ f, want)
    assert (op.matrix.data != 1.0).all()


def test_nothing_that_is_shared_can_be_changed(chains):
    op = chains["operator"]
    for array in (op.matrix.indices, op.matrix.indptr, op.density, op.graph.X, op.graph.sqdist):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_inputs_are_not_kept_or_changed(rng):
    X, l, q = rng.normal(size=(50, 2)), rng.normal(size=50), np.ones(50)
    graph, ordering = od.NeighborGraph.build(X, k=10), od.Ordering(l)
    before = od.Kernel(ordering).operator(graph, 0.1, density=q).matrix.toarray()
    q[:] = 2.0  # still writable
    X[:], l[:] = 0.0, 0.0
    np.testing.assert_array_equal(od.Kernel(ordering).operator(graph, 0.1).matrix.toarray(), before)


# -------------------------------------------------------------------------------------------- random samples


# The least rms error of Δf that pyDiffMap and datafold reach over all ε, by tilt and neighbours (benchmarks/RESULTS.md,
# Accuracy), and an ε that suits each density estimate.
PEERS = {
    (0.0, 64): 0.979,
    (0.0, 256): 0.424,
    (0.0, 2300): 0.317,
    (0.5, 64): 1.154,
    (0.5, 256): 0.490,
    (0.5, 2300): 0.331,
}
STEPS = {"knn": {64: 0.028, 256: 0.05, 2300: 0.08}, "balanced": {64: 0.02, 256: 0.035, 2300: 0.04}}


@pytest.mark.slow
@pytest.mark.parametrize(("tilt", "k"), PEERS)
def test_random_samples_of_a_torus(rng, tilt, k):
    """5,000 of them, with θ-density ∝ 1 + tilt sin θ: Δf for f = sin θ sin 2φ, whose rms is 2.5, driftless."""
    theta = rng.uniform(0, 2 * np.pi, 20_000)
    theta = theta[rng.uniform(0, 1 + tilt, theta.size) < 1 + tilt * np.sin(theta)][:5000]
    phi = rng.uniform(0, 2 * np.pi, theta.size)
    X, f = np.stack([np.sin(theta), np.cos(theta), np.sin(phi), np.cos(phi)], 1), np.sin(theta) * np.sin(2 * phi)
    assert len(X) == 5000
    graph = od.NeighborGraph.build(X, k=k)
    for density, steps in STEPS.items():
        op = od.Kernel(dimension=2).operator(graph, steps[k], density=density)
        error = np.sqrt(np.mean((2 * op.generator(f) + 5 * f) ** 2))
        assert error < PEERS[tilt, k], density


# -------------------------------------------------------------------------------------------- inputs that strain


def assert_stochastic(op):
    data = op.matrix.data
    assert np.isfinite(data).all()
    assert (data >= 0).all()
    assert abs(op.matrix.sum(axis=1) - 1).max() < 1e-12


@pytest.mark.parametrize("eps", [1e-12, 1e-3, 1e3])
@pytest.mark.parametrize("span", [1.0, 1e6])
def test_extreme_steps_and_orderings(eps, span, rng):
    X = rng.normal(size=(300, 3))
    graph = od.NeighborGraph.build(X, k=20)
    for kernel in (
        od.Kernel(od.Ordering(span * X[:, 0])),
        od.Kernel(od.Ordering(span * X[:, 0]), noise=0.1, noise_right=rng.uniform(1, 2, 300)),
        od.Kernel(od.Ordering(span * X[:, 0]), anisotropy=np.tile(np.diag([1.0, 2.0, 3.0]), (300, 1, 1))),
    ):
        assert_stochastic(kernel.operator(graph, eps))
    for profile in ("compact", "supergaussian"):
        try:
            assert_stochastic(od.Kernel(od.Ordering(span * X[:, 0]), profile=profile).operator(graph, eps))
        except od.ResolutionError as error:
            assert "row " in str(error)  # noqa: PT017


@pytest.mark.parametrize("profile", ["gaussian", "compact", "supergaussian"])
def test_coincident_points_and_a_far_outlier(profile, rng):
    X = np.concatenate([rng.normal(size=(200, 2)), np.zeros((12, 2)), [[1e8, 0.0]]])
    graph = od.NeighborGraph.build(X, k=10)
    assert (graph.indices[graph.sources() == graph.indices] == np.arange(213)).all()
    op = od.Kernel(od.Ordering(X[:, 1]), profile=profile, dimension=2).operator(graph, 0.1)
    assert_stochastic(op)
    # the outlier reaches nobody and stays
    assert op.matrix[[212], [212]] == pytest.approx(1.0)


def test_coincident_points_have_no_density():
    X = np.concatenate([np.zeros((20, 2)), np.ones((20, 2)) * np.arange(20)[:, None]])
    with pytest.raises(od.GraphError, match=r"sample 0 coincides with its 12 nearest.*larger k"):
        od.Kernel(dimension=2).operator(od.NeighborGraph.build(X, k=15), 0.1, density="knn")


def test_a_row_that_overflows_is_named(rng):
    X = rng.normal(size=(30, 1))
    l = X[:, 0].copy()
    l[7] = 1e308
    with pytest.raises(od.ResolutionError, match=r"row \d+ of the kernel has no finite mass at eps = 0.1"):
        od.Kernel(od.Ordering(l, speed=1e10)).operator(od.NeighborGraph.build(X, k=10), 0.1)


@given(
    log_eps=st.floats(-8, 2), log_noise=st.floats(-2, 2), log_speed=st.floats(-3, 3), alpha=st.floats(-1, 2),
    beta=st.floats(-1, 2), seed=st.integers(0, 100),
)  # fmt: skip
def test_any_kernel_is_stochastic(log_eps, log_noise, log_speed, alpha, beta, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(80, 3))
    noise = 10**log_noise * rng.uniform(0.5, 2, 80)
    kernel = od.Kernel(od.Ordering(X[:, 0] ** 2, speed=10**log_speed), noise=noise, beta=beta)
    op = kernel.operator(od.NeighborGraph.build(X, k=15), 10**log_eps, density=rng.uniform(0.1, 5, 80), alpha=alpha)
    assert_stochastic(op)
    assert (op.generator(np.ones((80, 2))) == 0).all()


@pytest.mark.filterwarnings("error")
def test_a_step_too_small_for_the_sampling_is_told(rng):
    X = rng.uniform(0, 1, (1000, 2))
    graph = od.NeighborGraph.build(X, k=20)
    with pytest.warns(
        od.OrdiffWarning, match=r"eps = 1e-12 is too small.*stays put with probability 1, .*Use eps of about 0.000"
    ):
        od.Kernel(X[:, 0]).operator(graph, 1e-12)


@pytest.mark.parametrize("make", [
    lambda s: od.Ordering(s.l, scale="gradient"), lambda s: od.Ordering.cyclic(s.phase, 5.0),
    lambda s: od.Ordering.partial(s.table), lambda s: od.Ordering.lineages(abs(s.table)),
])  # fmt: skip
def test_operators_can_be_pickled(surface, make):
    graph = od.NeighborGraph.build(surface.X, k=25)
    kernel = od.Kernel(make(surface), anisotropy=surface.A, basis=surface.J)
    for op in (kernel.operator(graph, 0.4), od.strang(kernel, graph, 0.4), od.richardson(kernel, graph, 0.4)):
        other = pickle.loads(pickle.dumps(op))
        np.testing.assert_array_equal(other.generator(surface.l), op.generator(surface.l))
        np.testing.assert_array_equal(other.undirected().generator(surface.l), op.undirected().generator(surface.l))
        with pytest.raises(ValueError, match="read-only"):
            other.graph.indices[0] = 1


def test_what_was_given_may_be_changed_later(surface):
    """The driftless twin is built when it is asked for, from copies."""
    graph = od.NeighborGraph.build(surface.X, k=25)
    given = {name: getattr(surface, name).copy() for name in ("l", "speed", "scale", "noise", "q")}
    weight = surface.noise_right.copy()
    kernel = od.Kernel(od.Ordering(given["l"], given["speed"], given["scale"]), noise=given["noise"])
    op = kernel.operator(graph, 0.4, density=given["q"], weight=weight)
    want = od.velocity(op, "symmetric"), kernel.operator(graph, 0.4).matrix.data.copy()
    for array in (*given.values(), weight):
        array *= 3.0
    np.testing.assert_array_equal(od.velocity(op, "symmetric"), want[0])
    np.testing.assert_array_equal(kernel.operator(graph, 0.4).matrix.data, want[1])


def test_the_factors_of_a_splitting_are_those_of_the_formula(surface):
    """P^A_{ε/2} and P^μ_ε with density, α, weight and a self-tuning bandwidth, against a dense evaluation."""
    s, eps, split, alpha = surface, 0.4, 0.5, 0.6
    graph = od.NeighborGraph.build(s.X, k=59)
    kernel = od.Kernel(od.Ordering(s.l), noise=s.noise, noise_right=s.noise_right, anisotropy=s.A, basis=s.J)
    op = od.strang(kernel, graph, eps, split, density=s.q, alpha=alpha, weight=s.speed)
    z = s.X[None, :, :] - s.X[:, None, :]
    b = s.noise[:, None] * s.noise_right[None, :]
    right = s.q**-alpha * s.speed
    A = s.J @ s.A @ s.J.transpose(0, 2, 1)
    share = split * np.linalg.eigvalsh(A)[:, 1]
    projector = s.J @ np.linalg.pinv(s.J)
    rest = A - share[:, None, None] * projector
    B = np.linalg.pinv(rest, rcond=1e-10) + (np.eye(3) - projector) / np.linalg.eigvalsh(rest)[:, 2][:, None, None]
    outer = np.exp(-np.einsum("ija,iab,ijb->ij", z, B, z) / (2 * eps / 2 * b)) * right
    u = (z**2).sum(axis=2) / eps - 2 * (s.l[None, :] - s.l[:, None]) + eps
    inner = np.exp(-u / (2 * b * share[:, None])) * right
    for factor, K in zip(op.factors, (outer, inner, outer), strict=True):
        np.testing.assert_allclose(factor.matrix.toarray(), K / K.sum(axis=1, keepdims=True), rtol=1e-8, atol=1e-12)


def test_density_by_name_is_the_density_by_function(surface):
    graph = od.NeighborGraph.build(surface.X, k=40)
    kernel = od.Kernel(dimension=2)
    np.testing.assert_array_equal(kernel.operator(graph, 0.1, "knn").density, od.knn_density(graph, 12, 2))
    np.testing.assert_array_equal(kernel.operator(graph, 0.1, "balanced").density, od.balanced_density(graph, None, 2))


@pytest.mark.filterwarnings("error")
def test_a_graph_that_cuts_the_step_off_is_told(rng):
    """2,000 uniform points: 20 neighbours end at 1 standard deviation of this step, and the diffusion shows it."""
    X = rng.uniform(0, 1, (2000, 2))
    graph = od.NeighborGraph.build(X, k=20)
    with pytest.warns(
        od.OrdiffWarning, match=r"too small for eps = 0.003.*Use eps up to 0.00024, or a graph of radius 0.2"
    ) as told:
        op = od.Kernel().operator(graph, 0.003)
    assert told[0].filename == __file__
    assert np.trace(od.local_moments(op).diffusion, axis1=1, axis2=2).mean() < 0.5
    good = od.Kernel().operator(od.NeighborGraph.build(X, radius=0.2), 0.003, density="balanced")
    inside = (abs(X - 0.5) < 0.3).all(axis=1)
    assert np.trace(od.local_moments(good).diffusion, axis1=1, axis2=2)[inside].mean() == pytest.approx(1.0, abs=0.05)
    od.Kernel().operator(od.NeighborGraph.build(X[:50], k=49), 100.0)  # all samples are neighbours: nothing is cut


# ---------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda k, g: k.operator(g, 0.0), "eps must be one positive number; got 0.0"),
        (lambda k, g: k.operator(g, np.nan), "eps must be one positive number"),
        (lambda k, g: k.operator(g, 0.1, density=np.zeros(60)), "density must be positive; it is 0 at index 0"),
        (
            lambda k, g: k.operator(g, 0.1, density=np.ones(59)),
            r"density must have one value per sample, shape \(60,\)",
        ),
        (lambda k, g: k.operator(g, 0.1, density="kde"), "density must be one of 'knn', 'balanced'"),
        (lambda k, g: k.operator(g, 0.1).generator(np.ones(59)), r"f must have shape \(60,\)"),
        (lambda k, g: k.operator(g, 0.1) @ np.full(60, np.nan), "f has 60 value.s. that are NaN.*index 0"),
        (lambda k, g: k.operator(g, 0.1).forward(np.ones(60), -1), "steps must be at least 0"),
        (lambda k, g: k.operator(g, 0.1).forward(np.ones(60), 1.5), "steps must be a whole number"),
        (lambda k, g: od.strang(k, g, 0.1), "give anisotropy"),
        (lambda k, g: od.strang(k, g, 0.1, split=1.0), "split must be below 1"),
    ],
)
def test_errors(surface, call, message):
    graph = od.NeighborGraph.build(surface.X, k=10)
    with pytest.raises(ValueError, match=message):
        call(od.Kernel(surface.l), graph)


def test_edge_values_of_any_layout_and_type(rng):
    graph = od.NeighborGraph.build(rng.uniform(0, 1, (300, 2)), k=20)
    data = od.Kernel().operator(graph, eps=0.002).matrix.data
    f = rng.normal(size=300)
    expected = graph.matrix(data) @ f
    for other in (np.column_stack([data, data])[:, 0], data.astype(np.float32)):
        op = od.MarkovOperator(graph, other, 0.002, np.ones(300))
        np.testing.assert_allclose(op @ f, expected, atol=1e-6)
        np.testing.assert_allclose(op.forward(f), graph.matrix(data).T @ f, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"graph": None}, "graph must be a NeighborGraph"),
        ({"data": np.ones(3)}, "data must have shape"),
        ({"data": np.nan}, "data must have shape"),
        ({"data": lambda data: np.where(data == data.max(), np.nan, data)}, "NaN"),
        ({"data": lambda data: 2 * data}, "row 0 sums to 2"),
        ({"data": lambda data: -data}, "must be probabilities"),
        ({"eps": 0}, "eps must be one positive"),
        ({"density": np.ones(3)}, "density must have one value"),
        ({"density": 0.0}, "density must be positive"),
    ],
)
def test_values_that_are_no_chain_are_refused(changes, said, rng):
    op = od.Kernel(noise=1.0).operator(od.NeighborGraph.build(rng.normal(size=(40, 2)), k=8), 0.5)
    given = {"graph": op.graph, "data": op.matrix.data, "eps": 0.5, "density": op.density}
    changed = {name: value(given[name]) if callable(value) else value for name, value in changes.items()}
    with pytest.raises(ValueError, match=said):
        od.MarkovOperator(**given | changed)


def test_operators_on_different_samples_do_not_combine(rng):
    one, other = (
        od.Kernel(noise=1.0).operator(od.NeighborGraph.build(rng.normal(size=(m, 2)), k=8), 0.5) for m in (40, 50)
    )
    with pytest.raises(ValueError, match="have 40 and 50"):
        od.Product((one, other), 0.5, undirected=one.undirected)
    with pytest.raises(ValueError, match="have 40 and 50"):
        od.Extrapolation(one, other)
