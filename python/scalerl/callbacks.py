"""Forecasts while another trainer trains: callbacks for TRL (transformers) and Lightning.

At each evaluation the points so far are fitted, one line is printed, and the forecast goes into the
trainer's own log as ``forecast/ceiling``, ``forecast/at_2x``, ``forecast/low``, ``forecast/high``::

    trainer = GRPOTrainer(..., callbacks=[scalerl.callbacks.TrlCallback("eval_reward", range=(0, 2))])
    trainer = L.Trainer(..., callbacks=[scalerl.callbacks.LightningCallback("val/accuracy")])

Neither library is imported until a callback is made; where it is missing, the callback is a plain
object with the same methods, for loops that call them by hand. A fit that fails is a printed line and
never ends a training.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from scalerl._errors import Error
from scalerl._fit import Fit, fit

LEAST_POINTS = 3
"""Fewer cannot be fitted."""


class Forecaster:
    """The points of a run that is going on, and the forecast after each of them.

    For any loop: call it with the compute spent and the value measured.
    """

    def __init__(
        self,
        *,
        history: Any = None,
        samples: float | None = None,
        range: tuple[float, float] = (0.0, 1.0),
        unit: str = "",
        print: Callable[[str], object] = print,
    ) -> None:
        self.points: list[tuple[float, float]] = []
        self.fit: Fit | None = None
        """After the last evaluation; None while there are too few points."""
        self._history, self._samples, self._range = history, samples, range
        self._unit, self._print = unit, print

    def __call__(self, compute: float, value: float) -> dict[str, float]:
        """Adds an evaluation, prints the forecast, and gives what a tracker should log."""
        self.points = [point for point in self.points if point[0] != compute]
        self.points.append((float(compute), float(value)))
        if len(self.points) < LEAST_POINTS:
            return {}
        computes, values = zip(*sorted(self.points))
        try:
            self.fit = fit(
                {"compute": computes, "value": values},
                x="compute",
                y="value",
                history=self._history,
                samples=self._samples,
                range=self._range,
            )
        except Error as error:
            # An evaluation that cannot be fitted must not end a training.
            self.fit = None
            self._print(f"forecast: none at {compute:g}{self._unit}: {error.message}")
            return {}
        self._print(self.line(self.fit))
        return self.logged(self.fit)

    def line(self, found: Fit) -> str:
        """The forecast in one line."""
        twice = found.forecast(2 * found.last_compute)
        return (
            f"forecast: ceiling {found.ceiling}; at {twice.at:g}{self._unit} (2x) "
            f"{twice.value:.3f} [{twice.low:.3f}, {twice.high:.3f}]; {found.verdict}"
        )

    @staticmethod
    def logged(found: Fit) -> dict[str, float]:
        """The forecast for a tracker; an open ceiling is not a number to draw."""
        twice = found.forecast(2 * found.last_compute)
        numbers = {"forecast/at_2x": twice.value, "forecast/low": twice.low, "forecast/high": twice.high}
        if found.ceiling.bounded:
            numbers["forecast/ceiling"] = found.ceiling.value
        return numbers


def _spent(axis: str, steps: int, started: float, gpus: float) -> float:
    if axis == "steps":
        return float(steps)
    return gpus * (time.monotonic() - started) / 3600


def _unit(axis: str) -> str:
    if axis not in ("steps", "gpu_hours"):
        raise ValueError(f"axis is {axis!r}: one of 'steps', 'gpu_hours'")
    return " steps" if axis == "steps" else " GPU-hours"


def _logged_now(state: Any) -> dict[str, float]:
    """What was logged at this step: some trainers of TRL log rewards beside the metrics of an evaluation."""
    now = [entry for entry in state.log_history if entry.get("step") == state.global_step]
    return {key: value for entry in now for key, value in entry.items() if key != "step"}


class _Trl:
    """`TrlCallback` without its base class."""

    def __init__(self, metric: str, *, axis: str = "steps", gpus: float = 1.0, **options: Any) -> None:
        super().__init__()
        self.metric, self.axis, self.gpus = metric, axis, gpus
        self.forecaster = Forecaster(unit=_unit(axis), **options)
        self._started = time.monotonic()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._started = time.monotonic()

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: dict[str, float] | None = None, **kwargs: Any
    ) -> None:
        if not getattr(state, "is_world_process_zero", True):
            return
        there = {**_logged_now(state), **(metrics or {})}
        value = there.get(self.metric)
        if value is None:
            self._missing(there)
            return
        spent = _spent(self.axis, state.global_step, self._started, self.gpus)
        self._log(state, self.forecaster(spent, value), args, control, kwargs)

    def _missing(self, metrics: dict[str, float]) -> None:
        there = ", ".join(sorted(metrics)) or "none"
        self.forecaster._print(f"forecast: no metric {self.metric!r} in this evaluation; there are: {there}")

    def _log(self, state: Any, numbers: dict[str, float], args: Any, control: Any, given: dict[str, Any]) -> None:
        """Into the trainer's history and, through its other callbacks, every tracker it has."""
        if not numbers:
            return
        state.log_history.append({**numbers, "step": state.global_step})
        for callback in self.reporters:
            callback.on_log(args, state, control, logs=dict(numbers), **given)

    reporters: Iterable[Any] = ()
    """Callbacks of the trainer that write logs to trackers; `attach` finds them."""

    def attach(self, trainer: Any) -> Any:
        """Adds this callback to a trainer, with its trackers; gives the trainer."""
        trainer.add_callback(self)
        handler = trainer.callback_handler
        self.reporters = [
            one
            for one in handler.callbacks
            if one is not self and type(one).__module__.endswith("integration_utils")
        ]
        return trainer


class _Lightning:
    """`LightningCallback` without its base class."""

    def __init__(self, metric: str, *, axis: str = "steps", gpus: float = 1.0, **options: Any) -> None:
        super().__init__()
        self.metric, self.axis, self.gpus = metric, axis, gpus
        self.forecaster = Forecaster(unit=_unit(axis), **options)
        self._started = time.monotonic()

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        self._started = time.monotonic()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        # The check before training measures a few batches only.
        if getattr(trainer, "sanity_checking", False):
            return
        if not getattr(trainer, "is_global_zero", True):
            return
        value = trainer.callback_metrics.get(self.metric)
        if value is None:
            there = ", ".join(sorted(trainer.callback_metrics)) or "none"
            self.forecaster._print(
                f"forecast: no metric {self.metric!r} in this validation; there are: {there}"
            )
            return
        spent = _spent(self.axis, trainer.global_step, self._started, self.gpus)
        numbers = self.forecaster(spent, float(value))
        for logger in getattr(trainer, "loggers", ()) if numbers else ():
            logger.log_metrics(numbers, step=trainer.global_step)


def _with_base(own: type[Any], name: str, module: str, base: str) -> type[Any]:
    """The callback as a subclass of the library's own, where the library is there."""
    import importlib

    for candidate in module.split():
        try:
            found = getattr(importlib.import_module(candidate), base)
        except ImportError:
            continue
        return type(name, (own, found), {"__doc__": own.__doc__, "__module__": __name__})
    return own


def TrlCallback(metric: str, *, axis: str = "steps", gpus: float = 1.0, **options: Any) -> Any:
    """A `transformers.TrainerCallback` for TRL's trainers and transformers' `Trainer`.

    `metric` is the key of the evaluation's metrics (``eval_reward``), `axis` is "steps" or
    "gpu_hours" (wall time times `gpus`); `options` are those of `Forecaster`. The numbers go into
    ``trainer.state.log_history``; ``callback.attach(trainer)`` instead of ``callbacks=[...]`` sends
    them to the trainer's trackers too.
    """
    made = _with_base(_Trl, "TrlCallback", "transformers", "TrainerCallback")
    return made(metric, axis=axis, gpus=gpus, **options)


def LightningCallback(metric: str, *, axis: str = "steps", gpus: float = 1.0, **options: Any) -> Any:
    """A Lightning `Callback`: after each validation the forecast goes to the trainer's loggers.

    `metric` is the name under which the module logs it (``val/accuracy``); the rest as in
    `TrlCallback`.
    """
    made = _with_base(
        _Lightning, "LightningCallback", "lightning.pytorch pytorch_lightning", "Callback"
    )
    return made(metric, axis=axis, gpus=gpus, **options)
