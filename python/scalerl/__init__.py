"""Forecasts of RL post-training runs.

    import scalerl
    f = scalerl.fit("run.csv", until=8000)
    f.ceiling, f.verdict
    f.predict([16_000])

The guide is docs/python.md; the numbers are those of the command ``scalerl``.
"""

from scalerl._data import Run, read
from scalerl._errors import Error, FitError, OptionError, ReadError
from scalerl._fit import Fit, fit, fit_runs, forecast
from scalerl._frames import Table
from scalerl._native import __version__
from scalerl._records import (
    BacktestRow,
    Ceiling,
    Cut,
    Estimate,
    Floor,
    Forecast,
    HistoryShare,
    Lead,
    MoreCompute,
    Pair,
    Summary,
    Target,
    Verdict,
    Wait,
)
from scalerl._several import Backtest, Comparison, backtest, compare

__all__ = [
    "Backtest",
    "BacktestRow",
    "Ceiling",
    "Comparison",
    "Cut",
    "Error",
    "Estimate",
    "Fit",
    "FitError",
    "Floor",
    "Forecast",
    "HistoryShare",
    "Lead",
    "MoreCompute",
    "OptionError",
    "Pair",
    "ReadError",
    "Run",
    "Summary",
    "Table",
    "Target",
    "Verdict",
    "Wait",
    "__version__",
    "backtest",
    "compare",
    "fit",
    "fit_runs",
    "forecast",
    "read",
]
