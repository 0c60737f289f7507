"""The package says what the command says, number for number."""

from __future__ import annotations

from typing import Any

import pytest
import scalerl
from conftest import CURVE, RECIPES, columns, printed

USUAL = ["--until", 8000, "--at", 16000]


def told(fit: scalerl.Fit) -> dict[str, Any]:
    """The record with the parts that cost more fits."""
    full: dict[str, Any] = fit._native.record(fit._at, 0.01, True, True)
    return full


@pytest.mark.parametrize("method", ["mixture", "marginal", "profile", "paper", "power-law"])
def test_a_fit_of_a_file_is_the_commands(method: str) -> None:
    (expected,) = printed("fit", CURVE, *USUAL, "--method", method)["runs"]
    fit = scalerl.fit(CURVE, until=8000, at=[16000], method=method)
    assert told(fit) == expected


def test_a_fit_of_columns_is_that_of_the_file(data: Any) -> None:
    (expected,) = printed("fit", CURVE, *USUAL)["runs"]
    fit = scalerl.fit(data, x="gpu_hours", y="pass_rate", until=8000, at=[16000])
    found = told(fit)
    assert {key: found[key] for key in found if key != "notes"} == {
        key: expected[key] for key in expected if key != "notes"
    }
    assert (fit.ceiling.value, fit.ceiling.low, fit.ceiling.high) == tuple(
        expected["ceiling"][key] for key in ("value", "low", "high")
    )
    row = fit.predict([16000])
    assert [float(row[name][0]) for name in ("at", "value", "low", "high")] == [
        expected["forecasts"][0][name] for name in ("at", "value", "low", "high")
    ]


def test_the_readme_still_tells_the_truth() -> None:
    fit = scalerl.fit(CURVE, until=8000)
    assert str(fit.ceiling) == "0.610 [0.584, 0.669]"
    assert str(fit.forecast(16000)) == "0.604 [0.584, 0.632] at 16000"


def test_a_target_is_the_commands() -> None:
    (expected,) = printed("fit", CURVE, *USUAL, "--target", 0.6)["runs"][0]["targets"]
    target = scalerl.fit(CURVE, until=8000).compute_to(0.6)
    assert target == scalerl.Target(**expected)
    assert target.outlook == "reachable"


def test_a_comparison_is_the_commands() -> None:
    expected = printed("compare", RECIPES, "--baseline", "scalerl")
    compared = scalerl.compare(RECIPES, baseline="scalerl")
    assert compared.record == expected
    assert {pair.b for pair in compared.pairs} == {"scalerl"}


def test_a_backtest_is_the_commands() -> None:
    expected = printed("backtest", CURVE)
    tested = scalerl.backtest(CURVE)
    assert tested.record == expected
    assert [row.fraction for row in tested.rows] == [row["fraction"] for row in expected["backtests"]]


def test_history_is_the_commands_and_says_its_share() -> None:
    (expected,) = printed("fit", CURVE, "--until", 3000, "--history", RECIPES)["runs"]
    fit = scalerl.fit(CURVE, until=3000, history=RECIPES)
    assert fit.record["ceiling"] == expected["ceiling"]
    assert fit.history_weight == expected["history_weight"] > 0
    # The same finished runs out of memory.
    of_columns = scalerl.fit(CURVE, until=3000, history=[columns(RECIPES)])
    assert of_columns.record["ceiling"] == expected["ceiling"]
    assert scalerl.fit(CURVE, until=3000).record["ceiling"] != expected["ceiling"]
