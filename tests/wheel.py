"""What a newcomer does with an installed wheel: the README's Python, the version. Run by ``make test-wheel``."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import ordiff as od


def main(readme: Path) -> None:
    assert Path(od.__file__).is_relative_to(Path(sys.prefix)), "this is not the installed package"
    assert version("ordiff") == od.__version__
    for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", readme.read_text(), re.DOTALL | re.MULTILINE)):
        exec(compile(block, f"README, block {number}", "exec"), {"__name__": "readme"})
    said = subprocess.run([sys.executable, "-m", "ordiff", "--version"], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["ordiff", od.__version__]
    without = subprocess.run([sys.executable, "-m", "ordiff", "demo", "--quick"], capture_output=True, text=True)
    assert "pip install 'ordiff[plot]'" in without.stderr, without.stderr
    print("The wheel does what the README says.")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
