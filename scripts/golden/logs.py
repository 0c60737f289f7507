#!/usr/bin/env python3
"""Writes the binary fixtures of crates/ingest/testdata with the libraries users log with.

    python3 -m venv venv && venv/bin/pip install numpy==2.4.6 tensorboard==2.21.0 \
        tensorboardX==2.6.5 pyarrow==26.0.1 polars==2.1.0 transformers==5.22.2
    venv/bin/python scripts/golden/logs.py crates/ingest/testdata

Times inside the event files differ from run to run; the tests do not look at them beyond order.
"""

import datetime
import math
import pathlib
import sys

import polars
import pyarrow
import pyarrow.parquet as parquet
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboardX import SummaryWriter
from transformers.trainer_callback import TrainerState

OUT = pathlib.Path(sys.argv[1])
START = datetime.datetime.fromtimestamp(1_700_000_000, datetime.UTC)


def rows():
    """40 rows, two runs, an evaluation in every second row."""
    for i in range(40):
        yield {
            "run": "grpo" if i < 20 else "dapo",
            "step": i % 20 * 5,
            "pass_rate": 0.2 + 0.01 * i if i % 2 == 0 else None,
            "nested": {"gpu_hours": (i % 20) * 0.5},
            "started": START + datetime.timedelta(seconds=60 * i),
            "is_final": i % 20 == 19,
            "tags": ["a", "b"],
        }


def parquets():
    table = pyarrow.Table.from_pylist(list(rows()))
    write = lambda name, **options: parquet.write_table(table, OUT / name, **options)
    write("plain.parquet", compression="none", use_dictionary=False)
    write("snappy.parquet", compression="snappy", row_group_size=16)
    write("zstd_v2.parquet", compression="zstd", data_page_version="2.0")
    write("gzip.parquet", compression="gzip")
    write("lz4.parquet", compression="lz4")
    write(
        "delta.parquet",
        compression="none",
        use_dictionary=False,
        column_encoding={
            "run": "DELTA_LENGTH_BYTE_ARRAY",
            "step": "DELTA_BINARY_PACKED",
            "pass_rate": "BYTE_STREAM_SPLIT",
            "is_final": "RLE",
        },
    )
    polars.DataFrame(list(rows())).write_parquet(OUT / "polars.parquet")


def events():
    """simple_value by tensorboardX (two files, as after a restart), tensors by tensorboard."""
    folder = OUT / "tensorboard"
    for old in folder.glob("*/*"):
        old.unlink()
    for part, steps in enumerate([range(0, 6), range(5, 10)]):
        writer = SummaryWriter(str(folder / "simple"), filename_suffix=f".{part}")
        for step in steps:
            wall = 1_700_000_000 + 360 * step
            writer.add_scalar("train/loss", 1.0 / (1 + step), step, walltime=wall)
            writer.add_scalar("eval/gsm8k/accuracy", 0.25 + 0.0625 * step + 0.5 * part * (step == 5), step, walltime=wall)
            writer.add_text("note", "text is passed over", step, walltime=wall)
        writer.close()
    writer = EventFileWriter(str(folder / "tensor"))
    for step in range(8):
        summary = scalar_pb("eval/accuracy", 0.25 + 0.0625 * step)
        writer.add_event(Event(wall_time=1_700_000_000 + 360 * step, step=step, summary=summary))
    writer.close()
    # Names hold the host; the fixture should not.
    for index, path in enumerate(sorted(folder.glob("*/*tfevents*"))):
        path.rename(path.parent / f"events.out.tfevents.170000000{index}.host")


def trainer_state():
    """The keys that TRL's GRPOTrainer logs, written out by transformers' own TrainerState."""
    state = TrainerState(global_step=100, max_steps=100, epoch=1.0, total_flos=5.0e17)
    for step in range(10, 101, 10):
        state.log_history.append({
            "epoch": step / 100, "step": step, "loss": math.nan if step == 30 else 0.1,
            "num_tokens": 20480.0 * step, "reward": 0.3 + step / 400, "step_time": 36.0,
        })
        if step % 20 == 0:
            state.log_history.append({
                "epoch": step / 100, "step": step, "eval_loss": 0.2, "eval_num_tokens": 20480.0 * step,
                "eval_reward": 0.9, "eval_rewards/accuracy_reward/mean": 0.3 + step / 400,
                "eval_rewards/accuracy_reward/std": 0.4, "eval_runtime": 12.5,
            })
    state.log_history.append({
        "epoch": 1.0, "step": 100, "total_flos": 5.0e17, "train_loss": 0.1, "train_runtime": 3700.0,
    })
    state.save_to_json(str(OUT / "trainer_state.json"))


if __name__ == "__main__":
    parquets()
    events()
    trainer_state()
