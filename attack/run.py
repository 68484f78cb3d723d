"""All attacks, and the table: ``python -m attack.run [share] [part ...]``, with a share below 1 for fewer of each."""

from __future__ import annotations

import os
import sys

from attack.outcomes import COLUMNS, in_chunks

# how many, and how many a process
PARTS = {
    "inputs": (4500, 500), "files": (10_000, 1000), "tables": (2000, 500), "interrupts": (160, 40),
    "interrupts while compiling": (40, 5), "kills": (50, 25), "disks": (60, 20),
}  # fmt: skip


def main(share: float, parts: list[str]) -> int:
    os.environ |= dict.fromkeys(("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "2")
    print(f"{'category':<28}" + "".join(f"{name:>10}" for name in COLUMNS), flush=True)
    bad = 0
    for name in parts:
        total, chunk = PARTS[name]
        cold = name == "interrupts while compiling"
        counts, notes = in_chunks("interrupts" if cold else name, max(1, round(share * total)), chunk, cold=cold)
        print(f"{name:<28}" + "".join(f"{counts[column]:>10}" for column in COLUMNS), flush=True)
        for note in notes[:10]:
            print(f"    {note}", flush=True)
        bad += counts["wrong"] + counts["crashed"] + (counts["cryptic"] > 0.01 * counts["tried"])
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0, sys.argv[2:] or list(PARTS)))
