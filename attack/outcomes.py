"""What came of an attack, and work in processes that may crash."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

# refused: in words; cryptic: an error that does not say what is wrong; accepted: what was done is right or harmless
COLUMNS = ("tried", "refused", "accepted", "cryptic", "wrong", "crashed")
MEMORY = 4 * 2**30
# A process that is not done in this time hangs.
_SECONDS = 600.0


def limit_memory() -> None:
    """At most 4 GB of data, so that what would take more is seen."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))


def in_chunks(part: str, total: int, chunk: int, *, cold: bool = False) -> tuple[Counter[str], list[str]]:
    """Run ``attack.<part>`` on numbers 0 … total − 1, a process a chunk; after a crash it goes on behind it. ``cold``:
    each process has nothing compiled yet."""
    counts: Counter[str] = Counter()
    notes: list[str] = []
    start = 0
    while start < total:
        stop = min(start + chunk, total)
        command = [sys.executable, "-m", f"attack.{part}", str(start), str(stop)]
        with tempfile.TemporaryDirectory() as empty:
            environ = os.environ | ({"NUMBA_CACHE_DIR": empty} if cold else {})
            try:
                done = subprocess.run(
                    command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=_SECONDS, check=False
                )
                printed, code = done.stdout, done.returncode
            except subprocess.TimeoutExpired as hung:
                printed, code = (hung.stdout or b"").decode(), -1
        found = [json.loads(line) for line in printed.splitlines() if line.startswith('["')]
        for outcome, note in found:
            counts[outcome] += 1
            if outcome in ("cryptic", "wrong"):
                notes.append(f"{outcome}: {note}")
        start += len(found)
        if start < stop:  # what was next ended the process, or did not end
            counts["crashed"] += 1
            notes.append(f"crashed: {part} {start} ended with {code}")
            start += 1
    counts["tried"] = total
    return counts, notes


def say(outcome: str, note: str = "") -> None:
    """One line for `in_chunks`."""
    print(json.dumps([outcome, note[:200]]), flush=True)
