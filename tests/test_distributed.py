"""Blocks on the workers of a Dask cluster: the same graph and operator as in memory, whatever happens to a worker."""

from __future__ import annotations

import os
import signal
import sys
import time

import numpy as np
import pytest

import ordiff as od
from ordiff import _blocks

da = pytest.importorskip("dask.array")
pytest.importorskip("distributed")
from ordiff import distributed  # noqa: E402

K, EPS = 40, 0.004


@pytest.fixture(scope="module")
def client():
    from dask.distributed import Client, LocalCluster

    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": 0}
    with LocalCluster(processes=True, **options) as cluster, Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def X():
    X = np.random.default_rng(3).uniform(-1, 1, (2000, 2))
    X.flags.writeable = False
    return X


@pytest.fixture(scope="module")
def graph(client, X):
    return distributed.build_graph(da.from_array(X, chunks=(700, 1)), K, n_blocks=3)


@pytest.fixture(scope="module")
def kernel(X):
    order = od.Ordering(-0.5 * (X**2).sum(axis=1), speed=1 + 0.2 * X[:, 1])
    return od.Kernel(order, noise=1 + 0.1 * np.tanh(X[:, 0]), dimension=2)


@pytest.fixture(scope="module")
def pair(graph, kernel, X):
    """The operator in memory, and in blocks."""
    local = kernel.operator(od.NeighborGraph.build(X, k=K), EPS, density="knn", alpha=0.5)
    return local, distributed.operator(kernel, graph, EPS, density="knn", alpha=0.5)


def test_the_graph_is_that_in_memory(graph, X):
    exact, found = od.NeighborGraph.build(X, k=K), graph.collect()
    np.testing.assert_array_equal(found.indices, exact.indices)
    np.testing.assert_array_equal(found.sqdist, exact.sqdist)
    assert 0 < graph.halo < 2000
    assert graph.n_edges == exact.n_edges
    np.testing.assert_array_equal(graph.radius(7), exact.radius(7))
    with pytest.raises(ValueError, match="k must be"):
        graph.radius(K + 1)


def test_steps_generator_and_adjoint_are_those_in_memory(pair, rng):
    local, blocks = pair
    f, mass = rng.normal(size=(2000, 3)), rng.dirichlet(np.ones(2000))
    close = {"rtol": 1e-12, "atol": 1e-12}
    np.testing.assert_allclose(blocks.density, local.density, **close)
    np.testing.assert_allclose(blocks.backward(f, 3), local.backward(f, 3), **close)
    np.testing.assert_allclose(blocks.forward(mass, 3), local.forward(mass, 3), **close)
    np.testing.assert_allclose(EPS * blocks.generator(f[:, 0]), EPS * local.generator(f[:, 0]), **close)
    np.testing.assert_allclose(EPS * blocks.adjoint(f), EPS * local.adjoint(f), **close)
    np.testing.assert_allclose(blocks.undirected() @ f[:, 0], local.undirected()._pull(f[:, 0]), **close)
    assert not blocks.generator(np.ones(2000)).any()


def test_fates_and_stationary_mass_are_those_in_memory(client, inline, graph, kernel, pair, X):
    here = distributed.DistributedGraph(inline, K, client.gather(list(graph.blocks)))
    local, blocks = pair[0], distributed.operator(kernel, here, EPS, density="knn", alpha=0.5)
    ends = {"left": X[:, 0] < -0.7, "right": X[:, 0] > 0.7}
    fates = distributed.fate_probabilities(blocks, ends)
    np.testing.assert_allclose(fates, od.fate_probabilities(local, ends), rtol=0, atol=1e-9)
    expected = od.stationary(local)
    np.testing.assert_allclose(distributed.stationary(blocks), expected, rtol=0, atol=1e-9 * expected.max())


def test_fates_on_workers(pair, X):
    local, blocks = pair
    ends = {"left": X[:, 0] < -0.1, "right": X[:, 0] > 0.1}
    expected = od.fate_probabilities(local, ends)
    np.testing.assert_allclose(distributed.fate_probabilities(blocks, ends), expected, rtol=0, atol=1e-9)


def test_samples_that_do_not_reach_a_set_are_named(client):
    X = np.concatenate([np.linspace(0, 1, 60), np.linspace(5, 6, 60)])[:, None]
    graph = distributed.build_graph(da.from_array(X), 8, n_blocks=2)
    op = distributed.operator(od.Kernel(dimension=1), graph, 0.001)
    with pytest.raises(od.GraphError, match=r"60 of 120 samples, the first at index 60, do not reach any"):
        distributed.fate_probabilities(op, {"left": [0]})


def test_a_worker_that_is_killed_changes_nothing(client, pair, rng):
    local, blocks = pair
    f = rng.normal(size=2000)
    os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
    np.testing.assert_allclose(blocks.backward(f, 5), local.backward(f, 5), rtol=0, atol=1e-12)


def test_a_scheduler_that_is_gone_is_told():
    from dask.distributed import Client, LocalCluster

    options = {"processes": False, "n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(**options) as cluster, Client(cluster, set_as_default=False) as client:
        x = np.linspace(0, 1, 100)[:, None]
        graph = distributed.build_graph(da.from_array(x), 20, n_blocks=1, client=client)
        op = distributed.operator(od.Kernel(dimension=1), graph, 0.001)
    with pytest.raises(ConnectionError, match="the Dask scheduler is gone"):
        op.backward(x[:, 0])


def test_workers_that_are_all_paused_are_told(monkeypatch):
    from dask.distributed import Client, LocalCluster, Status

    monkeypatch.setattr(distributed, "_PATIENCE", 0.3)
    options = {"processes": False, "threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": 0}
    with LocalCluster(**options) as cluster, Client(cluster, set_as_default=False) as client:
        slow = distributed._submit(client, time.sleep, 3)
        time.sleep(0.5)
        for worker in cluster.workers.values():
            cluster.loop.add_callback(setattr, worker, "status", Status.paused)
        assert distributed._gather(client, [slow]) == [None]  # it runs, and is waited for
        with pytest.raises(MemoryError, match="all workers have been paused by Dask, since their memory is full"):
            distributed._gather(client, [distributed._submit(client, abs, -1)])


def test_an_error_does_not_wait_for_all(client, monkeypatch):
    monkeypatch.setattr(distributed, "_PATIENCE", 0.3)
    start = time.perf_counter()
    both = [distributed._submit(client, time.sleep, 20), distributed._submit(client, np.linalg.inv, np.zeros((2, 2)))]
    with pytest.raises(np.linalg.LinAlgError):
        distributed._gather(client, both)
    assert time.perf_counter() - start < 10
    client.cancel(both)


def test_a_block_with_other_neighbours_is_refused(client, graph, kernel, monkeypatch):
    block = client.gather(graph.blocks[0])
    near = block.graph.indices.copy()
    near[[1, K + 2]] = near[[K + 2, 1]]  # as if it had been computed again with other neighbours
    changed = od.NeighborGraph._make(block.graph._indptr, near, block.graph._sqdist, block.graph._X)
    monkeypatch.setattr(
        graph, "blocks", (client.submit(_blocks.GraphBlock, block.own, block.ids, changed), *graph.blocks[1:])
    )
    for asks in (lambda: distributed.operator(kernel, graph, EPS), graph.collect):
        with pytest.raises(ValueError, match="other neighbours when it was computed again"):
            asks()


def test_what_blocks_hold_is_what_they_say(client, graph):
    block = client.gather(graph.blocks[0])
    arrays = [block.ids, *(getattr(block.graph, name) for name in ("indptr", "indices", "sqdist", "X"))]
    assert sum(a.nbytes for a in arrays) < sys.getsizeof(block) < 1.3 * sum(a.nbytes for a in arrays)


def test_orderings_of_all_forms(graph, X, rng):
    f, exact = rng.normal(size=2000), od.NeighborGraph.build(X, k=K)
    turning = np.stack([-X[:, 1], X[:, 0]], axis=1)
    phase = np.arctan2(X[:, 1], X[:, 0])
    piecewise = od.Ordering.piecewise((X[:, 0] > 0).astype(int), [X[:, 0], 2 * X[:, 1]])
    kernel = od.Kernel([od.Ordering.field(turning), od.Ordering.cyclic(phase, 2 * np.pi), piecewise], dimension=2)
    weight = 1 + rng.random(2000)
    local = kernel.operator(exact, EPS, weight=weight, self_weight=0.5)
    blocks = distributed.operator(kernel, graph, EPS, weight=weight, self_weight=0.5)
    np.testing.assert_allclose(blocks @ f, local @ f, rtol=0, atol=1e-12)


def test_what_is_not_estimated_in_blocks_is_asked_for(graph, X):
    with pytest.raises(ValueError, match="needs the gradient of its ordering"):
        distributed.operator(od.Kernel(od.Ordering(X[:, 0], scale="gradient")), graph, EPS)
    with pytest.raises(ValueError, match="needs the dimension of the data"):
        distributed.operator(od.Kernel(), graph, EPS, density="knn")
    with pytest.raises(ValueError, match="is for 5 samples, but the graph has 2000"):
        distributed.operator(od.Kernel(od.Ordering(np.arange(5.0))), graph, EPS)
    with pytest.raises(ValueError, match="must be a Dask array"):
        distributed.build_graph(X, 5)


def test_other_versions_are_refused():
    here = {"python": "3.11.7", "numpy": "2.4.6"}
    distributed.check_versions(here, {"tcp://a": here})
    with pytest.raises(ValueError, match=r"tcp://b has other versions than the client: numpy 2\.0\.0 \(here 2\.4\.6\)"):
        distributed.check_versions(here, {"tcp://a": here, "tcp://b": here | {"numpy": "2.0.0"}})
    with pytest.raises(ValueError, match="has no workers"):
        distributed.check_versions(here, {})


@pytest.mark.parametrize("recall", [0.9, 0.98])
def test_an_approximate_graph_has_the_recall_that_it_reports(recall, inline, monkeypatch):
    X, k = np.random.default_rng(8).uniform(size=(3000, 10)), 15
    asked, search = [], _blocks.nearest_among
    monkeypatch.setattr(_blocks, "nearest_among", lambda X, q, k: asked.append(len(q)) or search(X, q, k))
    graph = distributed.build_graph(da.from_array(X, chunks=800), k, n_blocks=6, method="approximate", recall=recall)
    exact = od.NeighborGraph.build(X, k=k).indices.reshape(3000, -1)
    found = graph.collect().indices.reshape(3000, -1)
    share = np.mean([np.isin(row, there).sum() - 1 for row, there in zip(exact, found, strict=True)]) / k
    assert share == pytest.approx(recall, abs=0.015)
    assert graph.recall_ == pytest.approx(share, abs=0.015)
    approximate = sum(asked) - 6 * 1000  # without those of the sample
    asked.clear()
    assert distributed.build_graph(da.from_array(X, chunks=800), k, n_blocks=6).recall_ == 1
    assert approximate < (0.6 if recall < 0.95 else 0.8) * sum(asked)


def test_one_block_and_cells_of_hardly_any_points(inline, rng):
    X, k = rng.normal(size=(300, 10)), 12
    one = distributed.build_graph(da.from_array(X), k, n_blocks=1, method="approximate")
    np.testing.assert_array_equal(one.collect().indices, od.NeighborGraph.build(X, k=k).indices)
    assert one.recall_ == 1
    X[1:] = X[1]  # one point, and the others in one place
    for method in ("exact", "approximate"):
        graph = distributed.build_graph(da.from_array(X, chunks=100), k, n_blocks=4, method=method).collect()
        np.testing.assert_array_equal(np.sort(graph.sqdist), np.sort(od.NeighborGraph.build(X, k=k).sqdist))


def test_recall_of_clusters_in_many_coordinates(inline, rng):
    """Distances of the neighbours that were found and of the exact ones agree to rounding."""
    X = rng.normal(size=(1200, 20)) + 1e4 * rng.normal(size=(8, 20))[np.arange(1200) % 8]
    graph = distributed.build_graph(da.from_array(X), 15, n_blocks=3, method="approximate")
    exact = od.NeighborGraph.build(X, k=15).indices
    share = (np.mean([np.isin(a, b).sum() for a, b in zip(graph.collect().indices.reshape(-1, 16),
                                                          exact.reshape(-1, 16), strict=True)]) - 1) / 15  # fmt: skip
    assert graph.recall_ == pytest.approx(share, abs=0.01)


def test_the_system_of_a_block_does_not_cancel(client, rng):
    """A chain that hardly moves: 1 − P_ii would lose ten of sixteen digits."""
    X = np.linspace(0, 1, 200)[:, None]
    graph = distributed.build_graph(da.from_array(X), 4, n_blocks=2)
    with pytest.warns(od.OrdiffWarning, match="too small for the sampling"):
        block = client.gather(distributed.operator(od.Kernel(dimension=1), graph, 6e-7).blocks[0])
    assert 1e-12 < block.moving.min() < 1e-8
    system = _blocks.OwnSystem(block, np.arange(block.own) > 3)
    x, matrix = rng.random(block.own - 4), system.matrix()
    for transposed, expected in ((False, matrix @ x), (True, matrix.T @ x)):
        np.testing.assert_allclose(system.product(x, transposed), expected, rtol=1e-10, atol=1e-14 * expected.max())


@pytest.mark.parametrize(("n", "count"), [(3, 7), (17, 3), (2, 1)])
def test_the_search_in_cells_is_exact(n, count, rng):
    X, k = rng.normal(size=(400, n)), 12
    cells = _blocks.Cells.split(X[:150], count)
    points = _blocks.pieces(X, 0, cells)
    assert sum(len(one.ids) for one in points) == 400
    exact = od.NeighborGraph.build(X, k=k)
    rows = exact.indices.reshape(400, -1)
    for c, one in enumerate(points):
        assert (cells.distance(one.X, c) == 0).all()
        found = _blocks.own_candidates(one, k)
        for other in _blocks.cells_to_search(found, cells, c):
            found = _blocks.with_cell(found, points[other], cells, other)
        block = _blocks.GraphBlock.of(found)
        local = block.graph.indices[: block.graph.indptr[block.own]].reshape(block.own, -1)
        np.testing.assert_array_equal(np.sort(block.ids[local], axis=1), rows[one.ids])
