"""Fits: one run's curve, what it is worth, and what it says of compute not spent yet."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from scalerl import _frames, _native
from scalerl._data import Data, Path, Run, one_run, read
from scalerl._errors import OptionError
from scalerl._records import (
    Ceiling,
    Cut,
    Estimate,
    Floor,
    Forecast,
    HistoryShare,
    MoreCompute,
    Target,
    Verdict,
    Wait,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MORE_THAN = 0.01
"""Gains below this are not worth asking about."""


Columns: TypeAlias = "tuple[str | None, str | None, str | None, float | None, float | None]"
"""x, y, by, gpus, samples of `read`."""


class Fit:
    """A fitted curve. Made by `scalerl.fit`."""

    def __init__(self, native: _native.Fitted, run: Run, at: tuple[float, ...] = ()) -> None:
        self._native, self.run, self._at = native, run, at
        record = native.record(at, MORE_THAN, False, False)
        self.record: dict[str, Any] = record
        """Everything above as a plain dict, spelled as in ``scalerl fit --json``."""
        self.name: str = record["name"]
        self.method: str = record["method"]
        self.ceiling = Ceiling(**record["ceiling"])
        self.floor = Floor(**record["floor"])
        self.steepness = Estimate(**record["steepness"])
        self.midpoint = Estimate(**record["midpoint"])
        self.verdict: Verdict = record["verdict"]
        self.advice: str = record["advice"]
        """What the verdict means and what to do."""
        self.points: int = record["points"]
        self.left_out: int = record["left_out"]
        self.last_compute: float = record["last_compute"]
        self.rmse: float = record["rmse"]
        self.noise: float = record["noise"]
        self.gain_of_doubling = Estimate(**record["gain_of_doubling"])
        self.forecasts = [Forecast(**row) for row in record["forecasts"]]
        """At the computes of `at=`, else at 2 and 10 times the compute spent."""
        self.history_weight: float = record["history_weight"]
        """Share of the forecast that rests on finished runs."""
        self.history = [HistoryShare(**share) for share in record["history"]]
        self.notes: list[str] = record["notes"]

    def forecast(self, at: float) -> Forecast:
        """The value at one compute."""
        return self._forecasts([at])[0]

    def predict(self, at: Iterable[float] | float) -> Any:
        """Forecasts as a frame of the caller's kind, one row a compute.

        Columns: at, value, low, high (90 % for one measurement), curve_low, curve_high (for the curve).
        """
        computes = [at] if isinstance(at, (int, float)) else at
        rows = self._forecasts(computes)
        names = ("at", "value", "low", "high", "curve_low", "curve_high")
        columns = {name: [getattr(row, name) for row in rows] for name in names}
        return _frames.frame(columns, self.run._kind)

    def _forecasts(self, at: Iterable[float]) -> list[Forecast]:
        return [Forecast(**row) for row in self._native.forecasts(_computes("at", at))]

    def compute_to(self, target: float) -> Target:
        """The compute needed to reach a value."""
        return Target(**self._native.compute_to(float(target)))

    def gain(self, factor: float) -> Estimate:
        """What `factor` times the compute buys."""
        if not factor >= 1:
            raise OptionError(f"factor is {factor}, it must be 1 or more")
        return Estimate(**self._native.gain(float(factor)))

    def more_compute(self, factor: float, more_than: float = MORE_THAN) -> MoreCompute:
        """Whether `factor` times the compute buys more than a gain."""
        if not factor >= 1:
            raise OptionError(f"factor is {factor}, it must be 1 or more")
        return MoreCompute(**self._native.more_compute(float(factor), more_than))

    def cuts(self) -> list[Cut]:
        """The ceiling under other warm-up cuts; costs five fits."""
        rows = self._native.record(self._at, MORE_THAN, True, False)["cuts"]
        return [Cut(row["cut"], row["points"], Ceiling(**row["ceiling"])) for row in rows]

    def until_bounded(self) -> Wait | None:
        """When an open ceiling will be bounded; costs about twenty fits."""
        found = self._native.record(self._at, MORE_THAN, False, True)["until_bounded"]
        return None if found is None else Wait(found["earliest"], found["likely"])

    def plot(self, ax: Axes | None = None, at: Iterable[float] = ()) -> Any:
        """Draws points, curve, band, ceiling and forecasts with matplotlib; gives the axes."""
        from scalerl import _draw

        return _draw.fit(self, ax, _computes("at", at))

    def svg(self) -> str:
        """The figure of ``scalerl fit --plot``."""
        return self._native.svg(self._at)

    def __repr__(self) -> str:
        unit = self.run._native.unit
        lines = [
            f"{self.name}: {self.run.metric} by {self.run.x}, {self.points} points to "
            f"{self.last_compute:g} {unit}".rstrip(),
            f"  ceiling    {self.ceiling}",
            f"  steepness  {self.steepness}",
            f"  midpoint   {self.midpoint}",
        ]
        lines += [f"  forecast   {forecast}" for forecast in self.forecasts]
        return "\n".join([*lines, f"  verdict    {self.verdict}"])

    def _repr_html_(self) -> str:
        return self.svg()


def _computes(argument: str, at: Iterable[float]) -> list[float]:
    computes = [float(compute) for compute in at]
    for compute in computes:
        if not (math.isfinite(compute) and compute > 0):
            raise OptionError(f"{argument} has {compute}, a compute is a number above zero")
    return computes


def _learned(
    history: Data | None,
    runs: list[Run],
    range: tuple[float, float],
    columns: Columns,
    provenance: tuple[str | None, str | None],
) -> _native.History | None:
    """Finished runs to learn from; says which were left out as a warning."""
    if history is None:
        return None
    given = history if isinstance(history, (list, tuple)) else [history]
    paths: list[Path] = []
    native: list[_native.Run] = []
    for item in given:
        if isinstance(item, Fit):
            native.append(item.run._native)
        elif _frames.is_frame(item) or isinstance(item, Run):
            x, y, by, gpus, samples = columns
            found = read(item, x=x, y=y, by=by, gpus=gpus, samples=samples)
            native.extend(run._native for run in found)
        else:
            paths.append(item)
    files = sorted({path for run in runs for path in run._files}, key=str)
    found_history, said = _native.history(paths, native, columns, range, provenance, files)
    for line in said:
        warnings.warn(line, stacklevel=4)
    return found_history


def choices(
    runs: list[Run],
    *,
    columns: Columns,
    history: Data | None,
    provenance: tuple[str | None, str | None],
    range: tuple[float, float],
    method: str,
    floor: str | float | None,
    warmup: str | float,
    until: float | None,
) -> tuple[tuple[float, float], str, str | None, str, float | None, _native.History | None]:
    """How to fit these runs, as the native code takes it, with what finished ones teach."""
    known = _learned(history, runs, range, columns, provenance)
    if until is not None:
        (until,) = _computes("until", [until])
    low, high = range
    floor = None if floor is None else str(floor)
    return (float(low), float(high)), method, floor, str(warmup), until, known


def fit(
    data: Data,
    *,
    x: str | None = None,
    y: str | None = None,
    by: str | None = None,
    run: str | None = None,
    until: float | None = None,
    at: Iterable[float] = (),
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
) -> Fit:
    """Fits the compute-performance curve of one run.

    `data` is a path (any log that ``scalerl fit`` reads, a run folder), a pandas or polars frame, a
    dict of lists or arrays, or a `Run`. `until` leaves out later points, `at` asks for forecasts,
    `history` names finished runs of the same model and evaluation to learn from. The rest are the
    options of ``scalerl fit``.
    """
    runs = read(data, x=x, y=y, by=by, gpus=gpus, samples=samples, format=format)
    chosen = one_run(runs, run)
    given = choices(
        [chosen],
        columns=(x, y, by, gpus, samples),
        history=history,
        provenance=(model, evaluation),
        range=range,
        method=method,
        floor=floor,
        warmup=warmup,
        until=until,
    )
    (native,) = _native.fit([chosen._native], given)
    return Fit(native, chosen, tuple(_computes("at", at)))


def fit_runs(
    data: Data,
    *more: Data,
    x: str | None = None,
    y: str | None = None,
    by: str | None = None,
    until: float | None = None,
    at: Iterable[float] = (),
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
) -> dict[str, Fit]:
    """Fits every run in the data, on all cores; arguments as in `fit`."""
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
    natives = _native.fit([run._native for run in runs], given)
    computes = tuple(_computes("at", at))
    return {run.name: Fit(native, run, computes) for native, run in zip(natives, runs)}


def forecast(data: Data, at: Iterable[float] | float, **options: Any) -> Any:
    """Fits one run and forecasts: a frame of the caller's kind. `options` are those of `fit`."""
    return fit(data, **options).predict(at)
