"""What a fit advises, in the options of the command line: its own texts name the parameters of Python."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ordiff.model import SnapshotSDE

_WORDS = [
    (re.compile(pattern), words)
    for pattern, words in (
        (r"the solver's max_iter", "--max-iter"),
        (r"Solver\(eps=([^)]+)\)", r"--eps \1"),
        (r"give a smaller eps", "give a smaller --eps"),
        (r'drift="(\w+)"', r"--drift \1"),
        (r'noise="(\w+)"', r"--noise \1"),
        (r"raise max_states", "raise --max-states"),
        (r"model\.profile\(\)", "ordiff profile"),
        (r"^fate_probabilities is not available", "fates are not available"),
        (r"Use simulate\(\) and predict_drift\(\), or fit", "Use ordiff simulate and count where paths end, or fit"),
        (r"use stronger smoothness", "use stronger smoothness (--smooth-ordering, --smooth-noise)"),
        (r"(the leading (?:two or three )?principal components)", r"\1 (--pca)"),
        (r"standardise X first, with StandardScaler in a pipeline", "use --standardize"),
        (r", as by sample_weight,", ""),
        (r", drop them with numpy\.unique\(.*?\)\.", ", leave them out."),
        (r", count the times from there: times - times\.min\(\)\.", ", use --start time=0."),
        (r" \(a mask\)", " (--start time=0)"),
        (r" \((\d+) more: see model\.check_\)", r" (\1 more: see ordiff check)"),
    )
]


def in_options(text: str) -> str:
    """A text of a fit with the options of the command line in place of parameters of Python."""
    for pattern, words in _WORDS:
        text = pattern.sub(words, text)
    return text


def advise_in_options(model: SnapshotSDE) -> None:
    """Say the reasons of a model's check, from now on, with the options of the command line; not before it is saved."""
    model.check_ = replace(model.check_, reasons=tuple(map(in_options, model.check_.reasons)))
