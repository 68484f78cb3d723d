"""Bad values of one parameter, and beyond the table of two at once."""

from __future__ import annotations

import random
import sys
import warnings

from attack.outcomes import limit_memory, say
from bad_values import TABLE, cases, outcome


def main(start: int, stop: int) -> None:
    limit_memory()
    warnings.simplefilter("ignore")
    table = list(cases())
    for number in range(start, stop):
        rng = random.Random(number)
        name, parameter, value = table[number] if number < len(table) else rng.choice(table)
        if number >= len(table):
            _, given, kinds = TABLE[name]
            others = [case for case in table if case[0] == name and case[1] != parameter]
            if others:
                _, other, bad = rng.choice(others)
                TABLE[name] = (TABLE[name][0], lambda given=given, other=other, bad=bad: given() | {other: bad}, kinds)
                found = outcome(name, parameter, value)
                TABLE[name] = (TABLE[name][0], given, kinds)
            else:
                found = outcome(name, parameter, value)
        else:
            found = outcome(name, parameter, value)
        kind, said = found
        say("wrong" if kind == "accepted" else kind, f"{name}({parameter}={value!r:.60}): {said}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
