"""The callbacks in real trainers: TRL's GRPO, transformers' Trainer, Lightning. Tiny models, on the CPU, offline.

Run by `make test-python-callbacks`; the name keeps it out of the ordinary suite, which has no torch.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from scalerl.callbacks import LightningCallback, TrlCallback

WORDS = ["<pad>", "<eos>", "<unk>", *"abcdefgh"]
NUMBERS = {"forecast/at_2x", "forecast/low", "forecast/high"}


def tiny() -> tuple[Any, Any]:
    """A model of two thousand weights and a tokenizer of eight letters."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )
    config = LlamaConfig(
        vocab_size=len(WORDS), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, pad_token_id=0, eos_token_id=1, bos_token_id=1,
    )
    torch.manual_seed(1)
    return LlamaForCausalLM(config), tokenizer


def check(said: list[str], logged: list[dict[str, Any]], evaluations: int) -> None:
    assert len(said) == evaluations - 2, said
    assert all(line.startswith("forecast: ceiling") for line in said), said
    assert len(logged) == evaluations - 2
    assert all(NUMBERS <= set(entry) for entry in logged), logged


def test_grpo_of_trl_logs_a_forecast_of_its_reward(tmp_path: Path) -> None:
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    def likes_a(completions: list[str], **kwargs: Any) -> list[float]:
        return [text.split().count("a") / 8 for text in completions]

    model, tokenizer = tiny()
    rows = Dataset.from_dict({"prompt": ["b c", "d e", "f g", "h b"] * 8})
    arguments = GRPOConfig(
        output_dir=str(tmp_path), use_cpu=True, report_to=["tensorboard"] if has_tensorboard() else [], max_steps=12,
        per_device_train_batch_size=8, per_device_eval_batch_size=8, num_generations=4, max_completion_length=8,
        learning_rate=1e-2, eval_strategy="steps", eval_steps=2, logging_steps=1, save_strategy="no", bf16=False,
    )
    trainer = GRPOTrainer(
        model=model, reward_funcs=likes_a, args=arguments, train_dataset=rows, eval_dataset=rows.select(range(8)),
        processing_class=tokenizer,
    )
    said: list[str] = []
    callback = TrlCallback("eval_reward", print=said.append)
    assert isinstance(callback, TrainerCallback)
    callback.attach(trainer)
    trainer.train()
    check(said, [entry for entry in trainer.state.log_history if "forecast/at_2x" in entry], 6)
    measured = [entry["eval_reward"] for entry in trainer.state.log_history if "eval_reward" in entry]
    assert [value for _, value in callback.forecaster.points] == pytest.approx(measured)


def has_tensorboard() -> bool:
    import importlib.util

    return importlib.util.find_spec("tensorboard") is not None


def test_a_trainer_of_transformers_takes_it_as_a_callback(tmp_path: Path) -> None:
    from transformers import Trainer, TrainingArguments

    model, tokenizer = tiny()
    rows = [{"input_ids": [3, 4, 5, 6], "labels": [3, 4, 5, 6]} for _ in range(64)]
    arguments = TrainingArguments(
        output_dir=str(tmp_path), use_cpu=True, report_to=[], max_steps=20, per_device_train_batch_size=4,
        learning_rate=1e-2, eval_strategy="steps", eval_steps=2, save_strategy="no",
    )

    def accuracy(predicted: Any) -> dict[str, float]:
        hits = predicted.predictions.argmax(-1)[:, :-1] == predicted.label_ids[:, 1:]
        return {"accuracy": float(hits.mean())}

    said: list[str] = []
    trainer = Trainer(
        model=model, args=arguments, train_dataset=rows, eval_dataset=rows[:8], compute_metrics=accuracy,
        callbacks=[TrlCallback("eval_accuracy", print=said.append)],
    )
    trainer.train()
    check(said, [entry for entry in trainer.state.log_history if "forecast/at_2x" in entry], 10)
    json.dumps(trainer.state.log_history)  # as it is saved with a checkpoint


def test_lightning_sends_it_to_its_loggers(tmp_path: Path) -> None:
    import lightning.pytorch as lightning
    from lightning.pytorch.loggers import CSVLogger

    class Classifier(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)

        def training_step(self, batch: Any, index: int) -> Any:
            return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

        def validation_step(self, batch: Any, index: int) -> None:
            hits = self.layer(batch[0]).argmax(-1) == batch[1]
            self.log("val/accuracy", hits.float().mean())

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.3)

    torch.manual_seed(1)
    inputs = torch.randn(256, 4)
    rows = torch.utils.data.TensorDataset(inputs, (inputs.sum(-1) > 0).long())
    said: list[str] = []
    callback = LightningCallback("val/accuracy", print=said.append)
    assert isinstance(callback, lightning.Callback)
    trainer = lightning.Trainer(
        max_epochs=10, accelerator="cpu", logger=CSVLogger(tmp_path), callbacks=[callback], enable_progress_bar=False,
        enable_checkpointing=False, enable_model_summary=False, log_every_n_steps=1,
    )
    batches = torch.utils.data.DataLoader(rows, batch_size=32)
    trainer.fit(Classifier(), batches, batches)
    assert len(callback.forecaster.points) == 10 and len(said) == 8, said
    trainer.logger.save()
    header = (tmp_path / "lightning_logs/version_0/metrics.csv").read_text().splitlines()[0].split(",")
    assert NUMBERS <= set(header), header
