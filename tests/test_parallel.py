"""Work on several cores: the same results in the same order, whoever did the work."""

import os
import threading
import time
import weakref

import pytest

from ordiff import _threads


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_results_come_in_the_order_of_the_items(workers):
    def work(item):
        time.sleep(0.001 * (item % 3))
        return item**2

    assert _threads.in_threads(work, range(20), workers) == [item**2 for item in range(20)]


def test_others_share_the_work():
    both = threading.Barrier(2, timeout=10)  # passes only if two are at work at once
    _threads.in_threads(lambda _: both.wait(), range(2), 2)


def test_a_late_helper_is_not_waited_for():
    """The caller does what nobody has begun, so that busy helpers delay it by no more than what they hold."""
    release = threading.Event()
    with _threads._helpers.called(lambda: release.wait(10), 4):  # every helper is busy
        try:
            assert _threads.in_threads(lambda item: item, range(3), 2) == [0, 1, 2]
        finally:
            release.set()


def test_results_are_not_kept_for_helpers_that_never_came():
    class Result:
        pass

    release = threading.Event()
    with _threads._helpers.called(lambda: release.wait(10), 4):
        try:
            kept = [weakref.ref(result) for result in _threads.in_threads(lambda item: Result(), range(3), 2)]
            assert [result() for result in kept] == [None] * 3
        finally:
            release.set()


def test_errors_reach_the_caller():
    caller = threading.current_thread()
    both = threading.Barrier(2, timeout=10)

    def work(item):
        both.wait()
        if threading.current_thread() is not caller:
            raise ZeroDivisionError(item)

    with pytest.raises(ZeroDivisionError):
        _threads.in_threads(work, range(2), 2)
    assert _threads.in_threads(str, [1, 2], 2) == ["1", "2"]  # and the helper lives on


def test_work_within_work_is_done_by_the_same_thread():
    def outer(item):
        return _threads.in_threads(lambda inner: (item, inner), range(3), 2)

    assert _threads.in_threads(outer, range(4), 2) == [[(a, b) for b in range(3)] for a in range(4)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_helpers_of_its_own():
    _threads.in_threads(str, [1, 2], 2)
    child = os.fork()
    if child == 0:
        both = threading.Barrier(2, timeout=10)
        try:
            _threads.in_threads(lambda _: both.wait(), range(2), 2)
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
