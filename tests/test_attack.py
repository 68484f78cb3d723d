"""A small part of each attack of ``make attack``."""

from __future__ import annotations

import pytest

from attack.outcomes import in_chunks


@pytest.mark.slow
@pytest.mark.parametrize(("part", "total"), [("files", 24), ("tables", 20), ("interrupts", 2), ("disks", 1)])
def test_no_attack_gets_through(part, total):
    counts, notes = in_chunks(part, total, total)
    assert (counts["cryptic"], counts["wrong"], counts["crashed"]) == (0, 0, 0), notes
    assert counts["refused"] + counts["accepted"] == total
