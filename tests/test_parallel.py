"""Work on several cores: the same results in the same order, whoever did the work."""

from __future__ import annotations

import _thread
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import threadpoolctl
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import ThreadpoolController

from ordiff import _parallel
from ordiff._parallel import parallel_map
from small_model import small_model


def run(code: str, *args: str, **environment: str) -> str:
    """What a Python program prints; it must not fail, hang, or complain."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code, *args],
        capture_output=True, text=True, timeout=120, check=False, env={**os.environ, **environment},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


# ---------------------------------------------------------------------------------------------------- the map


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_come_in_the_order_of_the_items(set_threads, threads):
    def work(item):
        time.sleep(0.001 * (item % 3))
        return item**2

    set_threads(threads)
    assert parallel_map(work, range(20)) == [item**2 for item in range(20)]
    assert parallel_map(work, [7]) == [49]
    assert parallel_map(work, []) == []


def test_others_share_the_work(set_threads):
    set_threads(2)
    both = threading.Barrier(2, timeout=10)  # passes only if two are at work at once
    parallel_map(lambda _: both.wait(), range(2))


def test_one_thread_is_the_caller(set_threads):
    set_threads(1)
    assert set(parallel_map(lambda _: threading.current_thread(), range(5))) == {threading.current_thread()}


def test_no_more_than_the_threads_are_at_work(set_threads):
    set_threads(3)
    lock, at_work, most = threading.Lock(), [0], [0]

    def work(_):
        with lock:
            at_work[0] += 1
            most[0] = max(most[0], at_work[0])
        time.sleep(0.002)
        with lock:
            at_work[0] -= 1

    parallel_map(work, range(60))
    assert most[0] <= 3


class Log:
    """Work of which some fails; and what was begun and ended."""

    def __init__(self, fails, error):
        self.fails, self.error, self.begun, self.ended = fails, error, [], []

    def __call__(self, item):
        self.begun.append(item)
        try:
            time.sleep(0.005)
            if item in self.fails:
                raise self.error(item)
        finally:
            self.ended.append(item)


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, SystemExit])
def test_errors_reach_the_caller_and_no_work_goes_on(set_threads, threads, error):
    set_threads(threads)
    log = Log({2, 3}, error)
    with pytest.raises(error) as raised:
        parallel_map(log, range(200))
    assert raised.value.args in ((2,), (3,))
    begun = list(log.begun)
    assert sorted(log.ended) == sorted(begun)
    assert len(begun) < 150
    time.sleep(0.05)
    assert log.begun == begun
    assert parallel_map(str, [1, 2]) == ["1", "2"]  # and the threads live on


def test_an_interrupt_ends_the_work(set_threads):
    set_threads(2)
    log = Log((), None)

    def work(item):
        log(item)
        if item == 3:
            _thread.interrupt_main()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background would ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            parallel_map(work, range(1000))
    finally:
        signal.signal(signal.SIGINT, before)
    assert sorted(log.ended) == sorted(log.begun)
    assert len(log.begun) < 900


def test_an_error_while_work_is_handed_out_ends_what_was(set_threads, monkeypatch):
    set_threads(3)
    log, pool = Log((), None), _parallel._pool(2)
    submit, calls = pool.submit, []

    def interrupted(work):
        calls.append(work)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return submit(work)

    monkeypatch.setattr(pool, "submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        parallel_map(log, range(100))
    assert sorted(log.ended) == sorted(log.begun)
    begun = len(log.begun)
    time.sleep(0.05)
    assert len(log.begun) == begun


def test_work_within_work_is_done_by_the_same_thread(set_threads):
    set_threads(2)

    def outer(item):
        here = threading.current_thread()
        assert _parallel.n_threads() == 1
        inner = parallel_map(lambda inner: (item, inner, threading.current_thread() is here), range(3))
        return inner

    assert parallel_map(outer, range(4)) == [[(a, b, True) for b in range(3)] for a in range(4)]
    assert _parallel.n_threads() == 2


def test_several_threads_may_call_at_once(set_threads):
    """Also while there is no pool yet."""
    set_threads(2)
    _parallel._pool.cache_clear()
    together, found = threading.Barrier(6, timeout=20), []

    def call(number):
        together.wait()
        for _ in range(50):
            found.append(parallel_map(lambda item: number * item, range(8)) == [number * item for item in range(8)])

    callers = [threading.Thread(target=call, args=(number,)) for number in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert found == [True] * 300


def test_results_are_not_kept(set_threads):
    class Result:
        pass

    set_threads(2)
    kept = [weakref.ref(result) for result in parallel_map(lambda _: Result(), range(4))]
    end = time.monotonic() + 20
    while any(result() is not None for result in kept):  # until the threads have let go of them
        assert time.monotonic() < end
        time.sleep(0.001)


# ------------------------------------------------------------------------------------------- how many threads


STEPS = """
import sys, threading, numba, numpy as np, ordiff as od
from ordiff import _parallel
_parallel._SHARED, _parallel._PIECE = 10_000, 1_000
x = np.random.default_rng(0).uniform(0, 1, (500, 2))
print(_parallel.n_threads())
for n in sys.argv[1:]:
    numba.set_num_threads(int(n))
    od.Kernel().operator(od.NeighborGraph.build(x, k=60), eps=1e-3).backward(x)
    print(_parallel.n_threads(), any(thread.name.startswith("ordiff") for thread in threading.enumerate()))
"""


@pytest.mark.slow
def test_the_number_of_threads_that_was_asked_for_is_heeded():
    assert run(STEPS, "1", NUMBA_NUM_THREADS="1").split("\n") == ["1", "1 False"]
    assert run(STEPS, "1", "2", NUMBA_NUM_THREADS="2").split("\n") == ["2", "1 False", "2 True"]


FORK = """
import os, sys, threading, time
from ordiff import _parallel
def both():
    barrier = threading.Barrier(2, timeout=20)  # passes only if two are at work at once
    return _parallel.parallel_map(lambda _: barrier.wait(), range(2))
def limit(forking, end):
    while not end.is_set():
        forking.wait()
        with _parallel.one_blas_thread():
            pass
assert _parallel.n_threads() == 2
both()
forking, end = threading.Event(), threading.Event()
other = threading.Thread(target=limit, args=(forking, end))
other.start()
for n in range(8):  # at any moment of the other thread
    forking.set()
    time.sleep(0.002 * n)
    child = os.fork()
    if child == 0:
        both()
        with _parallel.one_blas_thread():
            pass
        grandchild = os.fork()
        if grandchild == 0:
            both()
            sys.exit(7)  # an ordinary end
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1]))
    forking.clear()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
end.set()
forking.set()
other.join()
both()
print("done")
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_has_threads_of_its_own():
    assert run(FORK, NUMBA_NUM_THREADS="2") == "done"


@pytest.mark.parametrize("wait", ["0", "0.001"])
def test_an_interpreter_ends_with_idle_threads(wait):
    """At once after work, and a little later."""
    code = (
        "import sys, time\nfrom ordiff import _parallel\n"
        "_parallel.parallel_map(str, range(8))\n"
        "time.sleep(float(sys.argv[1]))"
    )
    assert run(code, wait, NUMBA_NUM_THREADS="2") == ""


def test_a_thread_may_work_when_the_main_one_has_ended():
    """Then the interpreter waits for it, but takes no more work for pools."""
    code = (
        "import threading\nfrom ordiff import _parallel\n"
        "def later():\n"
        "    threading.main_thread().join()\n"
        "    found = [_parallel.parallel_map(lambda item: item**2, range(8)) for _ in range(200)]\n"
        "    print(all(one == [item**2 for item in range(8)] for one in found))\n"
        "_parallel.parallel_map(str, range(8))\n"
        "threading.Thread(target=later).start()\n"
    )
    assert run(code, NUMBA_NUM_THREADS="2") == "True"


# ------------------------------------------------------------------------------------------------------- ranges


def patterns():
    """indptr of rows of any lengths, some of them empty, some very long."""
    lengths = st.lists(st.one_of(st.just(0), st.integers(1, 100), st.integers(10**5, 10**6)), min_size=1, max_size=60)
    return lengths.map(lambda each: np.concatenate([[0], np.cumsum(each)]))


def assert_cover(ranges, n):
    """Every row once, in order."""
    assert [row for start, stop in ranges for row in range(start, stop)] == list(range(n))


@given(indptr=patterns(), work=st.integers(1, 100), parts=st.integers(1, 40))
def test_ranges_hold_every_row_once(indptr, work, parts):
    n = len(indptr) - 1
    for ranges in (_parallel.row_ranges(indptr, work), _parallel.row_ranges(indptr.astype(np.int32), work)):
        assert_cover(ranges, n)
        assert len(ranges) <= _parallel._MOST_PIECES
    ranges = _parallel.cut_rows(indptr, parts)
    assert_cover(ranges, n)
    assert len(ranges) == parts
    longest = int(np.diff(indptr).max())
    for start, stop in ranges:  # about equal: off by no more than a row
        assert indptr[stop] - indptr[start] <= indptr[-1] / parts + longest


@given(n=st.integers(0, 3000), work=st.integers(0, 10**9), most=st.integers(1, 20))
def test_even_ranges_hold_every_number_once(n, work, most):
    ranges = _parallel.even_ranges(n, work, most)
    assert_cover(ranges, n)
    assert 1 <= len(ranges) <= min(most, max(n, 1))
    sizes = [stop - start for start, stop in ranges]
    assert max(sizes) - min(sizes) <= 1
    assert len(ranges) == 1 or work >= len(ranges) * _parallel._PIECE


@given(indptr=patterns(), work=st.integers(1, 100), n=st.integers(0, 3000))
def test_ranges_do_not_depend_on_the_threads(indptr, work, n):
    def made():
        return _parallel.row_ranges(indptr, work), _parallel.cut_rows(indptr, 7), _parallel.even_ranges(n, n * 10**6)

    expected = made()
    for threads in (1, 2, 64):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_parallel, "n_threads", lambda n=threads: n)
            assert made() == expected


@pytest.mark.parametrize("threads", [1, 2])
def test_loops_run_over_all_rows(set_threads, threads):
    set_threads(threads)
    indptr = np.arange(0, 10**7, 1000)
    out = np.zeros(len(indptr) - 1)

    def loop(start, stop, indptr, factor):
        out[start:stop] += factor * np.diff(indptr[start : stop + 1])
        return start

    starts = _parallel.over_rows(loop, indptr, 2.0)
    assert starts == sorted(starts)
    assert len(starts) > 1
    np.testing.assert_array_equal(out, 2000.0)
    assert _parallel.over_ranges([(3, 9)], lambda *args: args, "more") == [(3, 9, "more")]


# ------------------------------------------------------------------------------------------------ one BLAS thread


def blas_threads():
    return {library["num_threads"] for library in ThreadpoolController().select(user_api="blas").info()}


def blas_threads_of_all():
    """Of the libraries with one number for all threads: with OpenMP, as in faiss, each thread has its own."""
    libraries = ThreadpoolController().select(user_api="blas").info()
    return {library["num_threads"] for library in libraries if library.get("threading_layer") != "openmp"}


@pytest.fixture
def two_blas_threads():
    with ThreadpoolController().select(user_api="blas").limit(limits=2):
        if blas_threads() != {2}:
            pytest.skip("this BLAS has one thread")
        # from 3.8 on only one Python thread at a time may set a limit of OpenBLAS: not this one
        getattr(threadpoolctl.OpenBLASController, "clear_controlling_thread", lambda: None)()
        yield


@pytest.mark.usefixtures("two_blas_threads")
def test_one_blas_thread_nests_and_restores():
    with _parallel.one_blas_thread():
        assert blas_threads() == {1}
        with _parallel.one_blas_thread():
            assert blas_threads() == {1}
        assert blas_threads() == {1}
    assert blas_threads() == {2}
    with pytest.raises(ZeroDivisionError), _parallel.one_blas_thread():
        1 / 0  # noqa: B018
    assert blas_threads() == {2}


@pytest.mark.usefixtures("two_blas_threads")
def test_one_blas_thread_where_there_is_one():
    with ThreadpoolController().select(user_api="blas").limit(limits=1):
        with _parallel.one_blas_thread():
            assert blas_threads() == {1}
        assert blas_threads() == {1}


@pytest.mark.usefixtures("two_blas_threads")
@pytest.mark.parametrize("first_to_leave", ["first", "second"])
def test_one_blas_thread_of_two_that_overlap(first_to_leave):
    """The one who came first may leave first, or last: in the end all is as it was."""
    inside = {name: threading.Event() for name in ("first", "second")}
    leave = {name: threading.Event() for name in inside}
    found = {}

    def caller(name):
        with _parallel.one_blas_thread():
            found[name] = blas_threads()
            inside[name].set()
            leave[name].wait(20)

    callers = {name: threading.Thread(target=caller, args=(name,)) for name in inside}
    for name, thread in callers.items():
        thread.start()
        assert inside[name].wait(20)
        assert found[name] == blas_threads_of_all() == {1}
    order = sorted(callers, key=lambda name: name != first_to_leave)
    for name in order:
        leave[name].set()
        callers[name].join(20)
    assert blas_threads() == {2}


@pytest.mark.usefixtures("two_blas_threads")
def test_one_blas_thread_of_many_at_once():
    together = threading.Barrier(4, timeout=20)

    def call():
        for _ in range(10):
            together.wait()
            with _parallel.one_blas_thread():
                pass

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert blas_threads() == {2}


# ------------------------------------------------------------------------------------------------ cached_property


@pytest.mark.usefixtures("two_blas_threads")
def test_fits_at_once_have_the_bits_of_one_alone():
    alone = small_model()
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda _: small_model(), range(4)))
    for model in together:
        np.testing.assert_array_equal(model.ordering_, alone.ordering_)
        np.testing.assert_array_equal(model.drift_std_, alone.drift_std_)
    assert blas_threads() == {2}


def test_an_interrupt_does_not_leave_blas_counted():
    def work() -> None:
        with _parallel.one_blas_thread():
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        work()
    item = _parallel._blas_users.get_nowait()
    _parallel._blas_users.put(item)
    assert item[0] == 0


def test_a_cached_property_is_made_once():
    class Made:
        calls = 0

        @_parallel.cached_property
        def value(self):
            """A new object."""
            Made.calls += 1
            return object()

    one, other = Made(), Made()
    assert one.value is one.value
    assert one.value is not other.value
    assert Made.calls == 2
    assert Made.value.__doc__ == "A new object."
    del one.__dict__["value"]
    one.value  # noqa: B018
    assert Made.calls == 3


def test_a_cached_property_is_the_same_for_all_threads():
    together, found = threading.Barrier(4, timeout=20), []

    class Made:
        @_parallel.cached_property
        def value(self):
            together.wait()  # all are making it
            return object()

    one = Made()
    callers = [threading.Thread(target=lambda: found.append(one.value)) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(20)
    assert len(found) == 4
    assert len(set(map(id, found))) == 1
