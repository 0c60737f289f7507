"""Every Python block of docs/python.md runs, in order, in one session, where its comments hold."""

from __future__ import annotations

import importlib.util
import re

import pytest
from conftest import ROOT

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_what_the_guide_shows_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = BLOCK.findall((ROOT / "docs/python.md").read_text())
    assert len(blocks) >= 6
    monkeypatch.chdir(ROOT)
    session: dict[str, object] = {}
    ran = 0
    for block in blocks:
        needs = re.findall(r"^\s*import (pandas|polars|matplotlib)", block, re.MULTILINE)
        needs += re.findall(r"\.plot\(", block) and ["matplotlib"]
        needs += re.findall(r"# needs (\w+)", block)
        if all(importlib.util.find_spec(name) for name in needs):
            if "matplotlib" in needs:
                import matplotlib

                matplotlib.use("Agg")
            exec(compile(block, "docs/python.md", "exec"), session)
            ran += 1
            _check_comments(block, session)
    assert ran >= 4


def _check_comments(block: str, session: dict[str, object]) -> None:
    """`expression  # -> text` means that the expression's text is that."""
    for expression, text in re.findall(r"^(\S.*?)\s+# -> (.*)$", block, re.MULTILINE):
        assert str(eval(expression, session)) == text, expression
