"""Ctrl-C at any moment of searches and fits; what comes next works, and a warm one gives the same numbers."""

from __future__ import annotations

import signal
import sys
import time
import warnings

import numpy as np

import ordiff as od
from attack.outcomes import limit_memory, say
from small_model import small_model


def work(number: int) -> object:
    if number % 2:
        points = np.random.default_rng(0).normal(size=(20_000, 3))
        return od.NeighborGraph.build(points, k=10).radius(5).sum()
    model = small_model()
    return None if model.interrupted_ else model.ordering_.sum()


def main(start: int, stop: int) -> None:
    limit_memory()
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background jobs do not have
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    right: dict[int, object] = {}
    for number in range(start, stop):
        rng, kind = np.random.default_rng(number), number % 2
        signal.setitimer(signal.ITIMER_REAL, float(rng.uniform(0.001, 0.4)))
        try:
            found = work(number)
            time.sleep(0.5)  # it came too late for the work
            outcome = "refused" if found is None else "wrong"
        except KeyboardInterrupt:
            outcome = "refused"
        except Exception as error:
            say("cryptic", f"{number}: {type(error).__name__}: {error}")
            continue
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if kind not in right or number % 10 == 0:
            again = work(kind)
            if right.setdefault(kind, again) != again:
                outcome = "wrong"
        say(outcome, f"{number}: swallowed, or other numbers afterwards")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
