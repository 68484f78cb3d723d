"""Draws the figures of the pages with the code that stands in them, into docs/images.

.venv/bin/python docs/figures.py [PAGE ...]
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGES = ("gallery.md", "learning.md")


def draw(page: Path) -> list[str]:
    """Execute the Python blocks of a page in an empty folder, and move what they draw. Returns the names."""
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        names: dict[str, object] = {"__name__": page.stem}
        for number, block in enumerate(blocks):
            exec(compile(block, f"{page.name}, block {number}", "exec"), names)
        written = sorted(Path(folder).glob("*.png"))
        for picture in written:
            shutil.copy(picture, HERE / "images" / picture.name)
        os.chdir(HERE)
    return [picture.name for picture in written]


if __name__ == "__main__":
    for name in sys.argv[1:] or PAGES:
        print(name, *draw(HERE / name))
