"""Several runs at once: comparison and backtest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from scalerl import _frames, _native
from scalerl._data import Data, read
from scalerl._errors import OptionError
from scalerl._fit import Fit, choices, fit_runs
from scalerl._records import BacktestRow, Estimate, Pair, Summary

FRACTIONS = (0.1, 0.25, 0.5, 0.75)
"""Shares of the final compute that are fitted."""


class Comparison:
    """Runs side by side. Made by `scalerl.compare`."""

    def __init__(self, fits: dict[str, Fit], baseline: str | None) -> None:
        record, sentences, svg = _native.compare([fit._native for fit in fits.values()], baseline)
        self.fits = fits
        self.record: dict[str, Any] = record
        """What ``scalerl compare --json`` says."""
        self.pairs = [Pair._of(pair) for pair in record["pairs"]]
        self.sentences = sentences
        """A sentence a pair: who leads, and by what."""
        self.shared_ceiling: float = record["shared_ceiling"]
        self.steepness = {row["name"]: Estimate(**row["steepness"]) for row in record["at_shared_ceiling"]}
        """Of each run, at the shared ceiling."""
        self.midpoint = {row["name"]: Estimate(**row["midpoint"]) for row in record["at_shared_ceiling"]}
        self._svg = svg

    def to_frame(self) -> Any:
        """One row a pair: the lead now and ahead, its chance, the verdict."""
        columns: dict[str, list[Any]] = {
            "a": [pair.a for pair in self.pairs],
            "b": [pair.b for pair in self.pairs],
            "lead_now": [pair.now.difference.value for pair in self.pairs],
            "lead_ahead": [pair.ahead.difference.value for pair in self.pairs],
            "a_ahead": [pair.ahead.chance for pair in self.pairs],
            "verdict": [pair.verdict for pair in self.pairs],
        }
        return _frames.frame(columns, next(iter(self.fits.values())).run._kind)

    def plot(self, ax: Any = None) -> Any:
        """Draws all curves with matplotlib; gives the axes."""
        from scalerl import _draw

        return _draw.comparison(self, ax)

    def svg(self) -> str:
        """The figure of ``scalerl compare --plot``."""
        return self._svg

    def __repr__(self) -> str:
        return "\n".join(self.sentences)

    def _repr_html_(self) -> str:
        return self._svg


def compare(data: Data, *more: Data, baseline: str | None = None, **options: Any) -> Comparison:
    """Says who leads at equal compute, and whether by its ceiling or on the way there.

    `data` as in `fit`, with two runs or more. `baseline` names the run that all others are compared
    with. `options` are those of `fit_runs`.
    """
    fits = fit_runs(data, *more, **options)
    if len(fits) < 2:
        hint = "give more data, or the column that tells runs apart with by="
        raise OptionError(f"{len(fits)} run to compare, at least two are needed", hint)
    return Comparison(fits, baseline)


class Backtest:
    """Forecasts from early parts of finished runs. Made by `scalerl.backtest`."""

    def __init__(self, record: dict[str, Any], svgs: list[str], kind: _frames.Kind) -> None:
        self.record = record
        """What ``scalerl backtest --json`` says."""
        self.rows = [BacktestRow._of(row) for row in record["backtests"]]
        self.summary = Summary(**record["summary"])
        self.bounded = Summary(**record["bounded"])
        """Only the forecasts of fits that called their ceiling bounded."""
        self.rivals: list[dict[str, Any]] = record["rivals"]
        """Other ways to forecast, on the same points."""
        self.skipped: list[dict[str, Any]] = record["skipped"]
        """Fractions that could not be tested, and why."""
        self._svgs, self._kind = svgs, kind

    def to_frame(self) -> Any:
        """One row a forecast."""
        names = "name fraction fitted_until at predicted low high actual error covered verdict"
        columns = {name: [getattr(row, name) for row in self.rows] for name in names.split()}
        return _frames.frame(columns, self._kind)

    def __repr__(self) -> str:
        summary = self.summary
        if summary.mean_absolute_error is None or summary.covered is None:
            return "no forecast could be tested"
        return (
            f"{summary.forecasts} forecasts: mean absolute error {summary.mean_absolute_error:.3f}, "
            f"{100 * summary.covered:.0f} % inside their 90 % interval"
        )

    def _repr_html_(self) -> str:
        return "".join(self._svgs)


def backtest(
    data: Data,
    *more: Data,
    fractions: Iterable[float] = FRACTIONS,
    horizon: float = 2.0,
    x: str | None = None,
    y: str | None = None,
    by: str | None = None,
    until: float | None = None,
    history: Data | None = None,
    model: str | None = None,
    evaluation: str | None = None,
    gpus: float | None = None,
    samples: float | None = None,
    format: str | None = None,
    method: str = "mixture",
    floor: str | float | None = None,
    warmup: str | float = "auto",
    range: tuple[float, float] = (0.0, 1.0),
) -> Backtest:
    """Fits early parts of finished runs and sees how good the forecasts were.

    Each of `fractions` of a run's compute is fitted, and the value at `horizon` times as far is
    forecast (the end of the run, where that is nearer). The rest as in `fit`.
    """
    shares = [float(fraction) for fraction in fractions]
    if not shares or not all(0 < share < 1 for share in shares):
        raise OptionError(f"fractions are {shares}, they must lie between 0 and 1")
    if not horizon > 0:
        raise OptionError(f"horizon is {horizon}, it must be above zero")
    runs = read(data, *more, x=x, y=y, by=by, gpus=gpus, samples=samples, format=format)
    given = choices(
        runs,
        columns=(x, y, by, gpus, samples),
        history=history,
        provenance=(model, evaluation),
        range=range,
        method=method,
        floor=floor,
        warmup=warmup,
        until=until,
    )
    record, svgs = _native.backtest([run._native for run in runs], given, shares, float(horizon))
    return Backtest(record, svgs, runs[0]._kind if runs else "table")
