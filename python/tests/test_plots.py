"""Figures by matplotlib, where it is installed."""

from __future__ import annotations

from pathlib import Path

import pytest
import scalerl
from conftest import CURVE, RECIPES

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


def test_a_fit_is_drawn_with_its_points_its_forecast_and_its_ceiling(tmp_path: Path) -> None:
    fit = scalerl.fit(CURVE, until=8000, at=[16000])
    ax = fit.plot()
    assert ax.get_xscale() == "log"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("GPU-hours", "pass_rate")
    drawn = {line.get_label(): line for line in ax.get_lines()}
    assert len(drawn["used"].get_xdata()) == fit.points
    assert len(drawn["left out"].get_xdata()) == fit.left_out > 0
    assert drawn["fit, 90 %"].get_xdata()[-1] == pytest.approx(16000)
    assert "ceiling 0.610 [0.584, 0.669]" in drawn
    ax.figure.savefig(tmp_path / "fit.png")
    assert (tmp_path / "fit.png").stat().st_size > 10_000


def test_it_draws_into_the_axes_it_is_given() -> None:
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2)
    assert scalerl.fit(CURVE, until=8000).plot(left, at=[12000]) is left
    assert scalerl.compare(RECIPES).plot(right) is right
    names = {text.get_text() for text in right.get_legend().get_texts()}
    assert names == set(scalerl.fit_runs(RECIPES))
    pyplot.close(figure)
