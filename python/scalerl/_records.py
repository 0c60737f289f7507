"""What a fit says, as typed records. Their fields are those of ``scalerl fit --json``.

Intervals are 90 %. ``None`` stands where the data give no number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Verdict = Literal[
    "bounded", "not bounded", "flat", "falling", "not a sigmoid", "too few points"
]


@dataclass(frozen=True)
class Estimate:
    """A value with its interval."""

    value: float
    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


@dataclass(frozen=True)
class Ceiling:
    """The pass rate that unlimited compute would reach."""

    value: float
    """Not to be shown alone when ``bounded`` is false."""
    low: float
    high: float | None
    """None when the data do not bound it from above."""
    bounded: bool

    def __str__(self) -> str:
        if self.high is None:
            return f"not bounded, at least {self.low:.3f}"
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True)
class Floor:
    """The pass rate before training, and where it came from."""

    value: float
    low: float
    high: float
    source: Literal["first", "fit", "given"]


@dataclass(frozen=True)
class Forecast:
    """The value at a compute: [low, high] is for one new measurement, the other for the curve."""

    at: float
    value: float
    low: float
    high: float
    curve_low: float
    curve_high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}] at {self.at:g}"


@dataclass(frozen=True)
class Target:
    """The compute needed for a value, looked for up to a thousand times the compute spent."""

    target: float
    compute: float | None
    low: float | None
    high: float | None
    """None: perhaps never."""
    outlook: Literal["reached", "reachable", "possible", "unlikely"]


@dataclass(frozen=True)
class MoreCompute:
    """Whether ``factor`` times the compute buys more than some gain."""

    factor: float
    more_than: float
    chance: float
    promise: Literal["will", "may", "will_not"]


@dataclass(frozen=True)
class HistoryShare:
    """How much of the forecast rests on one finished run."""

    name: str
    weight: float


@dataclass(frozen=True)
class Cut:
    """The ceiling with another warm-up cut."""

    cut: float
    points: int
    ceiling: Ceiling


@dataclass(frozen=True)
class Wait:
    """The compute from which the ceiling will be bounded, if the run goes on as now."""

    earliest: float | None
    likely: float | None


@dataclass(frozen=True)
class Lead:
    """How far run a lies above run b at one compute."""

    at: float
    difference: Estimate
    chance: float


@dataclass(frozen=True)
class Pair:
    """Run a beside run b; differences are a - b."""

    a: str
    b: str
    now: Lead
    ahead: Lead
    verdict: Literal["ceiling", "efficiency", "undecided", "indistinguishable"]
    ceiling_difference: Estimate
    chance_of_shared_ceiling: float
    shared_ceiling: float
    steepness_difference: Estimate
    midpoint_ratio: Estimate

    @classmethod
    def _of(cls, fields: dict[str, Any]) -> Pair:
        found = dict(fields)
        for name in ("now", "ahead"):
            lead = found[name]
            found[name] = Lead(**{**lead, "difference": Estimate(**lead["difference"])})
        for name in ("ceiling_difference", "steepness_difference", "midpoint_ratio"):
            found[name] = Estimate(**found[name])
        return cls(**found)


@dataclass(frozen=True)
class Rival:
    """What another way of forecasting said of the same measurement."""

    rival: str
    predicted: float
    error: float


@dataclass(frozen=True)
class BacktestRow:
    """One forecast from a part of a run that is over, beside what was measured."""

    name: str
    fraction: float
    fitted_until: float
    points: int
    verdict: Verdict
    ceiling: Ceiling
    at: float
    predicted: float
    low: float
    high: float
    actual: float
    error: float
    covered: bool
    rest_points: int
    rest_error: float
    rest_covered: float
    history_weight: float
    rivals: tuple[Rival, ...]

    @classmethod
    def _of(cls, fields: dict[str, Any]) -> BacktestRow:
        rivals = tuple(Rival(**rival) for rival in fields["rivals"])
        return cls(**{**fields, "ceiling": Ceiling(**fields["ceiling"]), "rivals": rivals})


@dataclass(frozen=True)
class Summary:
    """Forecasts taken together; None where there are none."""

    forecasts: int
    mean_absolute_error: float | None
    covered: float | None
    mean_width: float | None
