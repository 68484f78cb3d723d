"""All attacks, and the table: ``python -m attack.run [share]``, with a share below 1 for fewer of each."""

from __future__ import annotations

import os
import sys
import tempfile

from attack.outcomes import COLUMNS, in_chunks

# how many, and how many a process
PARTS = {
    "inputs": (3000, 500), "files": (10_000, 1000), "tables": (2000, 500), "interrupts": (160, 40),
    "interrupts while compiling": (40, 10), "disks": (60, 20),
}  # fmt: skip


def main(share: float) -> int:
    os.environ |= dict.fromkeys(("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "2")
    print(f"{'category':<28}" + "".join(f"{name:>10}" for name in COLUMNS), flush=True)
    bad = 0
    for name, (total, chunk) in PARTS.items():
        if name == "interrupts while compiling":
            with tempfile.TemporaryDirectory() as cold:
                before = os.environ.get("NUMBA_CACHE_DIR")
                os.environ["NUMBA_CACHE_DIR"] = cold
                counts, notes = in_chunks("interrupts", max(1, round(share * total)), chunk)
                os.environ |= {} if before is None else {"NUMBA_CACHE_DIR": before}
        else:
            counts, notes = in_chunks(name, max(1, round(share * total)), chunk)
        print(f"{name:<28}" + "".join(f"{counts[column]:>10}" for column in COLUMNS), flush=True)
        for note in notes[:10]:
            print(f"    {note}", flush=True)
        bad += counts["wrong"] + counts["crashed"] + (counts["cryptic"] > 0.01 * counts["tried"])
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0))
