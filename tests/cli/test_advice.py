from __future__ import annotations

import re
from pathlib import Path

import pytest

import ordiff as od
from ordiff.cli.advice import in_options


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("raise the solver's max_iter, or", "raise --max-iter, or"),
        ("Give Solver(eps=0.127) or less.", "Give --eps 0.127 or less."),
        ('Compare it with drift="general", or', "Compare it with --drift general, or"),
        ('or use noise="constant".', "or use --noise constant."),
        ("See model.profile().", "See ordiff profile."),
        ("raise max_states about 2 times", "raise --max-states about 2 times"),
        ("nothing of it", "nothing of it"),
    ],
)
def test_advice_is_in_options(said, told):
    assert in_options(said) == told


def test_reasons_of_a_check_name_no_parameter_of_python():
    """Whatever a reason advises is an option, in the words of the command line."""
    source = (Path(od.__file__).parent / "learning" / "check.py").read_text(encoding="utf-8")
    advised = in_options(source[source.index("def _of_the_moments") :])
    sentences = [line for line in advised.splitlines() if re.search(r"Give |raise |use |See |Compare ", line)]
    assert len(sentences) > 5
    for word in ("max_iter", "Solver(", "max_states", 'noise="', 'drift="', "model."):
        assert not any(word in line for line in sentences), word
