"""What a caller gives and gets: data, frames, errors."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import scalerl
from conftest import CURVE, RECIPES, as_kind, columns, frames


def test_importing_it_imports_no_frame_and_no_plot() -> None:
    heavy = "numpy pandas polars matplotlib pyarrow torch transformers lightning".split()
    code = f"import scalerl, scalerl.callbacks, sys; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_frame_comes_back_in_the_callers_kind(data: Any) -> None:
    frame = scalerl.fit(data, until=8000).predict([16000, 32000])
    kind = type(data).__module__.partition(".")[0]
    expected = {"builtins": scalerl.Table}.get(kind, type(data))
    assert type(frame) is expected
    assert list(frame.columns) == ["at", "value", "low", "high", "curve_low", "curve_high"]
    assert len(frame) == 2
    assert type(scalerl.forecast(data, 16000, until=8000)) is expected
    assert type(scalerl.read(data)[0].to_frame()) is expected
    assert type(scalerl.backtest(data, fractions=[0.5]).to_frame()) is expected


def test_a_table_needs_no_library() -> None:
    table = scalerl.Table({"at": [1.0, 2.0], "name": ["a", "b<c"]})
    assert table.records() == [{"at": 1.0, "name": "a"}, {"at": 2.0, "name": "b<c"}]
    assert list(table) == table.records()
    assert repr(table).splitlines() == ["at  name", " 1     a", " 2   b<c"]
    assert "b&lt;c" in table._repr_html_()


@pytest.mark.skipif("pandas" not in frames(), reason="no pandas here")
def test_rows_of_pandas_without_an_evaluation_are_no_points() -> None:
    given: dict[str, list[Any]] = {"step": [], "accuracy": []}
    for step in range(1, 401):
        given["step"].append(step)
        given["accuracy"].append(0.7 - 0.4 / (1 + step / 80) if step % 10 == 0 else math.nan)
    (run,) = scalerl.read(as_kind(given, "pandas"), x="step", y="accuracy")
    assert len(run) == 40
    assert not [note for note in run.notes if "left out" in note]
    (of_lists,) = scalerl.read(given, x="step", y="accuracy")
    assert "360 evaluations without a finite value were left out." in of_lists.notes


@pytest.mark.skipif("polars" not in frames(), reason="no polars here")
def test_a_lazy_frame_of_polars_is_collected() -> None:
    lazy = as_kind(columns(), "polars").lazy()
    assert scalerl.fit(lazy).record["ceiling"] == scalerl.fit(CURVE).record["ceiling"]


@pytest.mark.skipif("pandas" not in frames(), reason="numpy comes with pandas here")
def test_arrays_of_numpy_are_columns() -> None:
    import numpy

    given = {name: numpy.array(values) for name, values in columns().items()}
    assert scalerl.fit(given).record["ceiling"] == scalerl.fit(CURVE).record["ceiling"]


def test_several_runs_are_chosen_from_by_name() -> None:
    with pytest.raises(scalerl.OptionError, match="runs in the data: scalerl, ") as caught:
        scalerl.fit(RECIPES)
    assert "run=" in caught.value.hint
    assert scalerl.fit(RECIPES, run="scalerl").name == "scalerl"
    with pytest.raises(scalerl.OptionError, match="no run of that name"):
        scalerl.fit(RECIPES, run="nobody")
    fits = scalerl.fit_runs(RECIPES)
    assert fits["scalerl"].record == scalerl.fit(RECIPES, run="scalerl").record


def test_a_run_that_was_read_can_be_fitted_and_compared() -> None:
    runs = scalerl.read(RECIPES)
    assert [run.name for run in runs] == list(scalerl.fit_runs(runs))
    a, b = runs[:2]
    compared = scalerl.compare(a, b)
    assert [(pair.a, pair.b) for pair in compared.pairs] == [(a.name, b.name)]
    # Two frames without names are told apart.
    first, second = columns(), columns()
    for given in (first, second):
        del given["run"]
    assert list(scalerl.fit_runs([first, second])) == ["data", "data-2"]


def test_errors_have_the_messages_of_the_command_in_words_of_python() -> None:
    with pytest.raises(scalerl.FitError) as caught:
        scalerl.fit({"step": [1, 2], "accuracy": [0.1, 0.2]})
    assert "2 usable points, the mixture fit needs 3" in str(caught.value)
    assert caught.value.hint == "evaluate more often, lower warmup=, or raise until="
    assert isinstance(caught.value, ValueError)
    with pytest.raises(scalerl.ReadError, match="no column `hours` for x=") as missing:
        scalerl.fit(columns(), x="hours")
    assert "gpu_hours, pass_rate" in missing.value.message
    with pytest.raises(scalerl.ReadError, match=r"outside \[0, 1\]") as outside:
        scalerl.fit({"step": [1, 2, 3], "reward": [1.0, 2.0, 3.0]}, y="reward")
    assert "range=-1,1" in outside.value.hint
    with pytest.raises(scalerl.OptionError, match="unknown method `magic`"):
        scalerl.fit(CURVE, method="magic")
    with pytest.raises(scalerl.OptionError, match="a compute is a number above zero"):
        scalerl.fit(CURVE, at=[-1])
    with pytest.raises(scalerl.ReadError, match="different lengths"):
        scalerl.fit({"step": [1, 2, 3], "accuracy": [0.1]})
    with pytest.raises(scalerl.ReadError, match="int cannot be read"):
        scalerl.fit(3)
    with pytest.raises(FileNotFoundError, match="nowhere.csv"):
        scalerl.fit("nowhere.csv")


def test_history_that_is_left_out_is_a_warning(tmp_path: Path) -> None:
    short = {"step": [1, 2, 3, 4], "accuracy": [0.1, 0.2, 0.3, 0.35]}
    with pytest.warns(UserWarning, match="4 points, a finished run needs 8") as warned:
        fit = scalerl.fit(CURVE, history=[short])
    assert warned[0].filename == __file__
    assert fit.history == []


def test_an_open_ceiling_has_no_upper_end() -> None:
    fit = scalerl.fit(CURVE, until=4000)
    assert fit.verdict == "not bounded"
    assert fit.ceiling.high is None and not fit.ceiling.bounded
    assert str(fit.ceiling).startswith("not bounded, at least 0.")
    wait = fit.until_bounded()
    assert wait is not None and wait.likely is not None and wait.likely > 4000
    assert {cut.points for cut in fit.cuts()} != {fit.points}


def test_it_shows_itself() -> None:
    fit = scalerl.fit(CURVE, until=8000, at=[16000])
    assert repr(fit).splitlines()[0] == "scalerl-8b: pass_rate by gpu_hours, 20 points to 8000 GPU-hours"
    assert "  forecast   0.604 [0.584, 0.632] at 16000" in repr(fit).splitlines()
    assert fit._repr_html_().startswith("<svg") and "ceiling 0.610" in fit._repr_html_()
    compared = scalerl.compare(RECIPES, baseline="scalerl")
    assert compared._repr_html_().startswith("<svg")
    assert repr(compared).splitlines() == compared.sentences
    assert "forecasts: mean absolute error" in repr(scalerl.backtest(CURVE))


def test_gains_come_with_their_chance() -> None:
    fit = scalerl.fit(CURVE, until=8000)
    assert fit.gain(2.0) == fit.gain_of_doubling
    more = fit.more_compute(2, more_than=0.2)
    assert more.promise == "will_not" and more.chance < 0.1
    with pytest.raises(scalerl.OptionError, match="1 or more"):
        fit.gain(0.5)


def test_other_threads_run_while_a_fit_is_made() -> None:
    """A counter that needs the interpreter goes on counting: its lock is released."""
    counted, done = 0, threading.Event()

    def count() -> None:
        nonlocal counted
        while not done.is_set():
            counted += 1
            time.sleep(0.001)

    counter = threading.Thread(target=count)
    counter.start()
    before = counted
    fit = scalerl.fit(CURVE, until=4000)
    fit.until_bounded()
    during = counted - before
    done.set()
    counter.join()
    assert during > 10
