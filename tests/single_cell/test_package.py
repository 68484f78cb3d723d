"""Optional packages, and attributes of the package."""

from __future__ import annotations

import builtins

import pytest

import ordiff as od
from ordiff import single_cell as sc

pytest.importorskip("anndata")


@pytest.mark.parametrize(("package", "says"), [("anndata", r"ordiff\[single-cell\]"), ("cellrank", "cellrank")])
def test_without_the_packages(cells, monkeypatch, package, says):
    real = builtins.__import__

    def absent(name, *args, **kwargs):
        if name.split(".")[0] == package:
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)
    monkeypatch.delitem(vars(sc), "OrdiffKernel", raising=False)
    with pytest.raises(od.MissingExtraError, match=says):
        sc.operator(cells) if package == "anndata" else sc.OrdiffKernel


def test_unknown_attribute():
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = sc.Nothing
