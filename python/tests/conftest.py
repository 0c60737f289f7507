"""What the tests share: the example curves, and the kinds of data that this environment has."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
CURVE = ROOT / "examples/curves/scalerl-8b.csv"
RECIPES = ROOT / "examples/curves/recipes.csv"


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The command as the package carries it."""
    words = [sys.executable, "-m", "scalerl", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=120)


def printed(*arguments: object) -> Any:
    done = command(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def columns(path: Path = CURVE) -> dict[str, list[Any]]:
    """An example as a dict of lists, read by Python's own reader."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    rows = list(csv.DictReader(lines))
    number = ("gpu_hours", "pass_rate", "samples")
    return {
        name: [float(row[name]) if name in number else row[name] for row in rows]
        for name in rows[0]
    }


def frames() -> list[str]:
    """The kinds of frame here. `make test-python` says which must be: none, pandas or polars."""
    wanted = os.environ.get("SCALERL_TEST_FRAMES")
    found = [kind for kind in ("pandas", "polars") if importlib.util.find_spec(kind)]
    if wanted is not None:
        assert found == ([] if wanted == "none" else [wanted]), (wanted, found)
    return found


@pytest.fixture(params=["dict", *frames()])
def data(request: pytest.FixtureRequest) -> Any:
    """The 8B example in each kind of data."""
    return as_kind(columns(), request.param)


def as_kind(given: dict[str, list[Any]], kind: str) -> Any:
    if kind == "pandas":
        import pandas

        return pandas.DataFrame(given)
    if kind == "polars":
        import polars

        return polars.DataFrame(given)
    return given
