"""Figures by matplotlib, which is imported when a figure is asked for and not before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scalerl._fit import Fit
    from scalerl._several import Comparison

SAMPLES = 120
"""Places at which a curve is drawn."""


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as missing:
        hint = "pip install matplotlib, or use .svg(), which needs nothing"
        raise ImportError(f"plotting needs matplotlib: {hint}") from missing
    return pyplot.subplots(figsize=(8, 4.5), layout="constrained")[1]


def _curve(fit: Fit, end: float, ax: Any, color: str, label: str) -> None:
    used = [point["compute"] for point in fit._native.drawing()["used"] if point["compute"] > 0]
    start = min(used, default=end)
    ratio = math.log(end / start) / SAMPLES
    rows = fit._native.curve([start * math.exp(ratio * i) for i in range(SAMPLES + 1)])
    at = [row["at"] for row in rows]
    ax.plot(at, [row["value"] for row in rows], color=color, label=label, zorder=3)
    low, high = ([row[name] for row in rows] for name in ("curve_low", "curve_high"))
    ax.fill_between(at, low, high, color=color, alpha=0.15, linewidth=0, zorder=1)


def _finish(ax: Any, drawing: dict[str, Any], title: str) -> Any:
    ax.set_xscale("log")
    ax.set_xlabel(drawing["compute"])
    ax.set_ylabel(drawing["value"])
    ax.set_title(title, loc="left")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, loc="best")
    return ax


def fit(fit: Fit, ax: Any, at: Sequence[float]) -> Any:
    """One run: points used and held out, curve with its band, ceiling, forecasts."""
    ax = _axes(ax)
    drawing = fit._native.drawing()
    forecasts = fit._forecasts(at) if at else fit.forecasts
    left_out = [(p["compute"], p["value"]) for p in drawing["left_out"]]
    end = max([fit.last_compute, *(f.at for f in forecasts), *(compute for compute, _ in left_out)])
    _curve(fit, end, ax, "C0", "fit, 90 %")
    used = drawing["used"]
    ax.plot([p["compute"] for p in used], [p["value"] for p in used], "o", color="C0", markersize=4,
            label="used", zorder=4)
    if left_out:
        ax.plot(*zip(*left_out), "o", color="C0", markersize=4, fillstyle="none", label="left out", zorder=4)
    below = [f.value - f.low for f in forecasts]
    above = [f.high - f.value for f in forecasts]
    ax.errorbar([f.at for f in forecasts], [f.value for f in forecasts], yerr=[below, above], fmt="D",
                color="C1", markersize=5, capsize=3, label="forecast, 90 % for one measurement", zorder=5)
    ceiling = fit.ceiling
    if ceiling.bounded and ceiling.high is not None:
        ax.axhspan(ceiling.low, ceiling.high, color="0.5", alpha=0.1, linewidth=0, zorder=0)
        ax.axhline(ceiling.value, color="0.4", linestyle="--", linewidth=1, label=f"ceiling {ceiling}")
    if end > fit.last_compute:
        ax.axvline(fit.last_compute, color="0.6", linestyle=":", linewidth=1)
    return _finish(ax, drawing, f"{fit.name}: {fit.verdict}")


def comparison(compared: Comparison, ax: Any) -> Any:
    """All curves in one figure, each as far as twice the longest run."""
    ax = _axes(ax)
    end = 2 * max(fit.last_compute for fit in compared.fits.values())
    drawing: dict[str, Any] = {}
    for i, (name, fit) in enumerate(compared.fits.items()):
        drawing = fit._native.drawing()
        color = f"C{i % 10}"
        _curve(fit, end, ax, color, name)
        used = drawing["used"]
        ax.plot([p["compute"] for p in used], [p["value"] for p in used], "o", color=color, markersize=3)
    return _finish(ax, drawing, f"{len(compared.fits)} runs compared")
