"""Every Python block of the README and the docs is executed, block after block, a file at a time; pages with the same
code together."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SLOW = ("capabilities.md", "gallery.md", "howto.md", "learning.md", "scaling.md")


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def programs():
    """The code of the pages that have any, and which pages have it."""
    found = {}
    for page in PAGES:
        if blocks(page):
            found.setdefault(tuple(blocks(page)), []).append(page.name)
    for code, pages in found.items():
        yield pytest.param(code, id=", ".join(pages), marks=[pytest.mark.slow] if set(pages) & set(SLOW) else [])


@pytest.mark.parametrize("code", list(programs()))
def test_code_blocks_run(code, tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    for number, block in enumerate(code):
        exec(compile(block, f"{request.node.callspec.id}, block {number}", "exec"), names)


def test_the_docs_are_found():
    assert sum(len(blocks(page)) for page in PAGES) >= 10


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
