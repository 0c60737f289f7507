"""The callbacks, called as transformers and Lightning call them.

The fakes have the signatures of transformers 5 (`CallbackHandler.call_event`) and lightning 2
(`_call_callback_hooks`); `make test-python-callbacks` runs the libraries themselves.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import scalerl
from scalerl.callbacks import Forecaster, LightningCallback, TrlCallback


def value(step: int) -> float:
    return 0.7 - 0.4 / (1 + (step / 80) ** 1.5)


class FakeTracker:
    """As transformers' WandbCallback and the like."""

    def __init__(self) -> None:
        self.logged: list[dict[str, float]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, model: Any = None, **kwargs: Any) -> None:
        self.logged.append({**logs, "step": state.global_step})


FakeTracker.__module__ = "transformers.integrations.integration_utils"


class FakeTrainer:
    """Fires events as transformers' trainer does: everything but metrics by keyword."""

    def __init__(self) -> None:
        self.state = SimpleNamespace(global_step=0, log_history=[], is_world_process_zero=True)
        self.callback_handler = SimpleNamespace(callbacks=[FakeTracker()])

    def add_callback(self, callback: Any) -> None:
        self.callback_handler.callbacks.append(callback)

    def fire(self, event: str, **given: Any) -> None:
        args, control = SimpleNamespace(), SimpleNamespace()
        for callback in self.callback_handler.callbacks:
            if hasattr(callback, event):
                getattr(callback, event)(
                    args, self.state, control, model=None, processing_class=None, optimizer=None,
                    lr_scheduler=None, train_dataloader=None, eval_dataloader=None, **given,
                )

    def train(self, steps: int, every: int) -> None:
        self.fire("on_train_begin")
        for step in range(every, steps + 1, every):
            self.state.global_step = step
            self.fire("on_evaluate", metrics={"eval_reward": value(step), "eval_loss": 1.0})


def test_trl_prints_and_logs_a_forecast_at_each_evaluation() -> None:
    said: list[str] = []
    trainer = FakeTrainer()
    callback = TrlCallback("eval_reward", print=said.append)
    callback.attach(trainer)
    trainer.train(400, 20)
    assert len(said) == 18  # three points are needed for the first
    assert said[-1].startswith("forecast: ceiling 0.") and " at 800 steps (2x) 0." in said[-1]
    last = trainer.state.log_history[-1]
    assert set(last) == {"forecast/at_2x", "forecast/low", "forecast/high", "forecast/ceiling", "step"}
    assert last["forecast/low"] < value(800) < last["forecast/high"]
    expected = scalerl.fit(
        {"step": list(range(20, 401, 20)), "reward": [value(s) for s in range(20, 401, 20)]}, y="reward"
    )
    assert last["forecast/ceiling"] == expected.ceiling.value
    (tracker, _) = trainer.callback_handler.callbacks
    assert tracker.logged == trainer.state.log_history


def test_trl_finds_a_reward_that_was_logged_beside_the_metrics() -> None:
    """A trainer whose `log` adds the rewards to a copy of the metrics."""
    said: list[str] = []
    trainer = FakeTrainer()
    TrlCallback("eval_reward", print=said.append).attach(trainer)
    for step in range(20, 201, 20):
        trainer.state.global_step = step
        trainer.state.log_history.append({"eval_reward": value(step), "step": step})
        trainer.fire("on_evaluate", metrics={"eval_loss": 1.0})
    assert len(said) == 8 and said[-1].startswith("forecast: ceiling")


def test_trl_names_the_metrics_there_are_when_its_own_is_missing() -> None:
    said: list[str] = []
    trainer = FakeTrainer()
    TrlCallback("eval_accuracy", print=said.append).attach(trainer)
    trainer.train(20, 20)
    assert said == ["forecast: no metric 'eval_accuracy' in this evaluation; there are: eval_loss, eval_reward"]
    assert trainer.state.log_history == []


def test_a_value_that_cannot_be_fitted_does_not_end_the_training() -> None:
    said: list[str] = []
    forecaster = Forecaster(print=said.append)
    for step in range(1, 5):
        assert forecaster(step, 2.0 * step) == {}
    assert len(said) == 2 and "lies outside [0, 1]" in said[-1]
    ranged = Forecaster(print=said.append, range=(0, 10))
    logged = [ranged(step, 2.0 * step) for step in range(1, 5)]
    assert "forecast/at_2x" in logged[-1]


def test_an_evaluation_done_again_replaces_the_first() -> None:
    forecaster = Forecaster(print=lambda line: None)
    forecaster(10, 0.1)
    forecaster(10, 0.2)
    assert forecaster.points == [(10.0, 0.2)]


class FakeLogger:
    def __init__(self) -> None:
        self.logged: list[tuple[int | None, dict[str, float]]] = []

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.logged.append((step, metrics))


def test_lightning_logs_to_every_logger_and_passes_over_the_sanity_check() -> None:
    said: list[str] = []
    loggers = [FakeLogger(), FakeLogger()]
    trainer = SimpleNamespace(
        sanity_checking=True, global_step=0, callback_metrics={"val/accuracy": 0.9}, loggers=loggers,
        is_global_zero=True,
    )
    callback = LightningCallback("val/accuracy", print=said.append)
    callback.on_fit_start(trainer, None)
    callback.on_validation_end(trainer, None)
    trainer.sanity_checking = False
    for step in range(20, 401, 20):
        trainer.global_step = step
        trainer.callback_metrics = {"val/accuracy": value(step)}
        callback.on_validation_end(trainer, None)
    assert len(callback.forecaster.points) == 20 and len(said) == 18
    assert loggers[0].logged == loggers[1].logged
    step, numbers = loggers[0].logged[-1]
    assert step == 400 and numbers["forecast/low"] < value(800) < numbers["forecast/high"]


def test_an_axis_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="one of 'steps', 'gpu_hours'"):
        TrlCallback("eval_reward", axis="tokens")
