"""Steps by several threads: the same numbers whoever comes, and nobody waits for one who does not."""

import _thread
import signal
import subprocess
import sys
import threading
import time
import weakref
from functools import partial
from itertools import pairwise
from queue import SimpleQueue

import numba
import numpy as np
import pytest
import scipy.sparse as sp

from ordiff import _atomic, _march, _quads, _sparse, _threads
from ordiff._quads import Quads


@pytest.fixture
def matrix(rng):
    """A matrix with rows of every length up to 60, as SciPy has it and as the loops take it."""
    lengths = rng.integers(0, 60, 700)
    columns = np.concatenate([rng.choice(700, length, replace=False) for length in lengths])
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    P = sp.csr_array((rng.uniform(0, 0.06, columns.size), columns.astype(np.int32), indptr), shape=(700, 700))
    P.sort_indices()
    return P, (P.indptr, _sparse.unsigned(P.indices), P.data)


@pytest.fixture(params=[1, 2, 3])
def threads(request, monkeypatch):
    """One thread, two, or more than there are cores, however little there is to do."""
    monkeypatch.setattr(_march, "_RUN", 500)
    monkeypatch.setattr(_threads, "n_threads", lambda *_: request.param)


@pytest.mark.parametrize("columns", [1, 2, 5])
@pytest.mark.parametrize("sort", [False, True])
@pytest.mark.parametrize("few", [0, 10_000])
def test_powers_are_those_of_the_matrix(matrix, threads, monkeypatch, rng, columns, sort, few):
    P, parts = matrix
    monkeypatch.setattr(_march, "_FEW", few)
    f = rng.normal(size=(700, columns))
    order = rng.permutation(700).astype(np.uint32) if sort else _march.AS_IT_IS
    rows = order if sort else slice(None)
    cuts, shares = _march.runs(parts[0]), _march.shares(parts[0])
    assert cuts.size >= 9
    for steps in (1, 2, 7):
        back, forward = f[rows], f[rows]
        for _ in range(steps):
            back, forward = P @ back, P.T @ forward
        np.testing.assert_allclose(_march.Power(parts, cuts, order)(f, steps)[rows], back, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(
            _march.transposed_power(parts, shares, order, f, steps)[rows], forward, rtol=1e-12, atol=1e-14
        )


def test_columns_of_64_bits(matrix, rng):
    P, (indptr, indices, data) = matrix
    wide, f = (indptr.astype(np.int64), indices.astype(np.uint64), data), rng.normal(size=(700, 1))
    found = _march.Power(wide, _march.runs(indptr), _march.AS_IT_IS)(f, 1)
    np.testing.assert_allclose(found, P @ f, rtol=1e-12, atol=1e-14)
    found = _march.transposed_power(wide, _march.shares(indptr), _march.AS_IT_IS, f, 1)
    np.testing.assert_allclose(found, P.T @ f, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("columns", [1, 2, 5])
@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("onto", [False, True])
def test_a_march_keeps_every_step(matrix, threads, rng, columns, back, onto):
    P, parts = matrix
    steps = rng.normal(size=(9, 700, columns))
    expected = steps.copy()
    order = range(9) if not back else range(8, -1, -1)
    for here, there in pairwise(order):
        expected[there] = P @ expected[here] + onto * expected[there]
    _march.march(parts, _march.runs(parts[0]), steps, back=back, onto=onto)
    np.testing.assert_allclose(steps, expected, rtol=1e-12, atol=1e-14)
    _march.march(parts, _march.runs(parts[0]), steps[:1], back=back, onto=onto)  # nowhere to go


@pytest.fixture(params=[700, 701, 702, 703])
def band(request, rng):
    """A matrix whose rows have most columns in common with the next ones, and some none at all."""
    n = request.param
    near = np.abs(np.arange(n)[:, None] - np.arange(n) + rng.integers(-3, 4, (n, 1))) < 20
    near[[5, 40, 41, 42, 43, n - 1]] = False  # a quad of empty rows too
    P = sp.csr_array(near * rng.uniform(0, 0.05, (n, n)))
    P.data[::2] *= -1
    P.indptr, P.indices = P.indptr.astype(np.int32), P.indices.astype(np.int32)
    return P


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("onto", [False, True])
def test_quads_march_as_rows_do(band, threads, rng, columns, back, onto):
    quads = Quads.of(band.indptr, _sparse.unsigned(band.indices))
    steps = rng.normal(size=(5, band.shape[0], columns))
    expected = steps.copy()
    for here, there in pairwise(range(5) if not back else range(4, -1, -1)):
        expected[there] = band @ expected[here] + onto * expected[there]
    room = np.full(quads.shape, np.nan)  # memory that was used before
    _march.march(quads.matrix(band.data, out=room), quads.runs, steps, back=back, onto=onto)
    np.testing.assert_allclose(steps, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("n", [3, 4, 6])
def test_quads_of_few_rows(rng, n):
    P = sp.csr_array(rng.normal(size=(n, n)))
    quads = Quads.of(P.indptr, _sparse.unsigned(P.indices))
    steps = rng.normal(size=(2, n, 2))
    _march.march(quads.matrix(P.data), quads.runs, steps, back=False, onto=False)
    np.testing.assert_allclose(steps[1], P @ steps[0], rtol=1e-12)


def test_quads_of_a_transposed_pattern(band, rng):
    columns = sp.csr_array((np.arange(band.nnz, dtype=np.int32), band.indices, band.indptr), shape=band.shape).tocsc()
    quads = Quads.of(columns.indptr, _sparse.unsigned(columns.indices))
    steps = rng.normal(size=(2, band.shape[0], 1))
    matrix = quads.matrix(band.data, _sparse.unsigned(columns.data))
    _march.march(matrix, quads.runs, steps, back=False, onto=False)
    np.testing.assert_allclose(steps[1], band.T @ steps[0], rtol=1e-12, atol=1e-13)


def test_quads_are_not_made_where_rows_have_little_in_common(matrix):
    assert Quads.of(*matrix[1][:2]) is None


def test_quads_beyond_the_cache_are_made_only_if_they_are_less_to_read(band, monkeypatch):
    indices = _sparse.unsigned(band.indices)
    monkeypatch.setattr(_quads, "_CACHE", 0)
    quads = Quads.of(band.indptr, indices)
    read = 8 * quads.shape[0] * quads.shape[1] + 4 * quads.shape[0]
    assert read < 12 * band.nnz
    monkeypatch.setattr(_quads, "_EDGE_BYTES", 0.9 * read / band.nnz)
    assert Quads.of(band.indptr, indices) is None


def test_sums_do_not_depend_on_who_came(matrix, monkeypatch, rng):
    """Bit by bit, with several marches at once that share two helpers."""
    _, parts = matrix
    monkeypatch.setattr(_march, "_RUN", 500)
    monkeypatch.setattr(_threads, "n_threads", lambda *_: 3)
    f, order, few = rng.normal(size=(700, 1)), _march.AS_IT_IS, _march.shares(parts[0])
    power = _march.Power(parts, _march.runs(parts[0]), order)

    def both():
        return [power(f, 20), _march.transposed_power(parts, few, order, f, 20)]

    first, found = both(), []

    def again():
        found.extend(both() for _ in range(20))

    callers = [threading.Thread(target=again) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert len(found) == 60
    assert all(np.array_equal(a, b) for pair in found for a, b in zip(pair, first, strict=True))


def test_helpers_that_are_busy_are_not_waited_for(matrix, monkeypatch, rng):
    P, parts = matrix
    monkeypatch.setattr(_threads, "n_threads", lambda *_: 2)
    f, release, found = rng.normal(size=(700, 1)), threading.Event(), []
    power = _march.Power(parts, _march.runs(parts[0]), _march.AS_IT_IS)
    power(f, 1)  # compiled
    caller = threading.Thread(target=lambda: found.append(power(f, 1)))
    with _threads._helpers.called(release.wait, len(_threads._helpers.bells(1))):
        try:
            caller.start()
            caller.join(20)
            assert not caller.is_alive()
        finally:
            release.set()
    np.testing.assert_allclose(found[0], P @ f, rtol=1e-12, atol=1e-14)


@pytest.fixture
def helper():
    """A row for a helper's numbers, which nobody reads yet; and counters."""
    own, counters = np.zeros((1, 8), np.int64), np.zeros(_sparse.COUNTERS, np.int64)
    own[0, _sparse.LOCK], counters[_sparse.NAP] = _threads._held_lock(), _threads._held_lock()
    return own, counters


def idle(own):
    end = time.monotonic() + 20
    while own[0, _sparse.BELL] not in (_sparse._AWAKE, _sparse._ASLEEP):
        assert time.monotonic() < end


def test_a_task_is_never_missed(helper, rng):
    """Called while it is busy, falls asleep or is asleep, a helper comes each time."""
    own, _ = helper
    heard = SimpleQueue()

    def serve():
        while True:
            _sparse.serve(own[0])
            heard.put(None)

    threading.Thread(target=serve, daemon=True).start()
    for wait in rng.uniform(0, 6e-5, 1000):
        pass_time(wait)
        _sparse.call(own, 1, _sparse.TASK)
        heard.get(timeout=20)


@numba.njit(nogil=True)
def meet(counters, number, looks):
    """Until two have come, but not for ever."""
    _atomic.add(counters, 0, 1)
    for _ in range(200_000_000):
        if _atomic.read(counters, 0) >= 2 * number:
            return looks
        _atomic.pause()
    return looks


@numba.njit(nogil=True)
def call_and_meet(helpers, counters, number, looks):
    job = _atomic.job(meet, (counters, number, looks))
    _sparse.call(helpers, 1, job)
    meet(counters, number, looks)
    return _sparse.call_off(helpers, counters, job)


@pytest.mark.parametrize("looks", [0, 1000, 40_000])
def test_a_job_is_never_missed(helper, rng, looks):
    """Called while it looks at its bell, falls asleep or is asleep, a helper comes each time."""
    own, counters = helper
    threading.Thread(target=_sparse.serve, args=(own[0],), daemon=True).start()
    for number, wait in enumerate(rng.uniform(0, 1.5e-4, 1000), start=1):
        pass_time(wait)
        call_and_meet(own, counters, number, looks)
        assert counters[0] == 2 * number


def pass_time(seconds):
    """Shorter than a thread can sleep."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


@numba.njit(nogil=True)
def linger(counters):
    """Begin, and be done with it some 50 ms later."""
    _atomic.add(counters, 0, 1)
    for _ in range(2_000_000):
        _atomic.pause()
    _atomic.add(counters, 1, 1)
    return 0


@numba.njit(nogil=True)
def call_and_leave(helpers, counters, begun):
    """The job's own share is nothing; ``begun``: not before the helper is at it."""
    job = _atomic.job(linger, (counters,))
    _sparse.call(helpers, 1, job)
    while _atomic.read(counters, 0) < begun:
        _atomic.pause()
    return _sparse.call_off(helpers, counters, job)


def test_a_call_ends_when_nobody_is_at_it(helper):
    own, counters = helper
    call_and_leave(own, counters, 0)  # called off before the helper is there
    assert own[0, _sparse.BELL] == _sparse._AWAKE
    threading.Thread(target=_sparse.serve, args=(own[0],), daemon=True).start()
    call_and_leave(own, counters, 1)  # waited for
    assert counters[1] == counters[0] == 1


def test_loops_that_return_nothing_are_no_jobs(helper):
    @numba.njit
    def nothing(counters):
        counters[0] = 1

    @numba.njit
    def wrong(counters):
        return _atomic.job(nothing, (counters,))

    with pytest.raises(numba.TypingError, match="must return an int64"):
        wrong(helper[1])


def test_no_array_of_a_call_is_kept(matrix, monkeypatch, rng):
    _, parts = matrix
    monkeypatch.setattr(_threads, "n_threads", lambda *_: 2)
    f = rng.normal(size=(700, 1))
    out = weakref.ref(_march.Power(parts, _march.runs(parts[0]), _march.AS_IT_IS)(f, 500))
    assert out() is None
    f.resize((800, 1))  # an error if anybody else has it


def test_an_interpreter_ends_with_helpers_at_their_bells():
    """At once after a step, and a little later."""
    code = (
        "import sys, time, numpy as np, ordiff as od; from ordiff import _threads\n"
        "_threads.n_threads = lambda *_: 2\n"
        "X = np.random.default_rng(0).uniform(0, 1, (500, 2))\n"
        "op = od.Kernel().operator(od.NeighborGraph.build(X, k=50), eps=0.002)\n"
        "op.backward(np.ones(500), 50)\n"
        "time.sleep(float(sys.argv[1]))"
    )
    for wait in ("0", "0.001"):
        done = subprocess.run(
            [sys.executable, "-c", code, wait], capture_output=True, text=True, timeout=120, check=True
        )
        assert done.stderr == ""


def test_long_marches_can_be_interrupted(matrix, monkeypatch, rng):
    _, parts = matrix
    monkeypatch.setattr(_threads, "n_threads", lambda *_: 2)
    f, none = rng.normal(size=(700, 1)), _march.AS_IT_IS
    powers = (
        _march.Power(parts, _march.runs(parts[0]), none),
        partial(_march.transposed_power, parts, _march.shares(parts[0]), none),
    )
    for power in powers:
        power(f, 1)  # compiled
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background would ignore it
    try:
        for power in powers:
            threading.Timer(0.2, _thread.interrupt_main).start()
            with pytest.raises(KeyboardInterrupt):
                power(f, 10**8)
    finally:
        signal.signal(signal.SIGINT, before)
    idle(_threads._helpers.bells(1)[:1])
    assert _threads.in_threads(str, [1, 2], 2) == ["1", "2"]
