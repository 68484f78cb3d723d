"""How far a fit is: the number of its evaluations, in a bar when one is shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ordiff import _validation


class EvaluationCount:
    """Counts all evaluations of a fit, also those of its first look; a bar, when there is one, shows the same."""

    def __init__(self, bar: Any = None) -> None:
        self.n, self.bar = 0, bar

    def __call__(self, loss: float) -> None:
        """One evaluation more, and the lowest loss so far."""
        self.n += 1
        if self.bar is not None:
            self.bar.update(1)
            self.bar.set_postfix_str(f"loss {loss:.5f}", refresh=False)

    def go_on_from(self, n: int) -> None:
        """The number at which a fit that was ended was."""
        self.n = n
        if self.bar is not None:
            self.bar.n = n


@contextmanager
def progress_bar(show: bool) -> Iterator[EvaluationCount]:
    """What counts the evaluations of a fit, and shows them and the loss in a bar."""
    if not show:
        yield EvaluationCount()
        return
    try:
        from tqdm import tqdm
    except ImportError:
        raise _validation.missing_extra("tqdm", "progress", "a progress bar") from None
    with tqdm(unit=" evaluations", desc="learning") as bar:
        yield EvaluationCount(bar)
