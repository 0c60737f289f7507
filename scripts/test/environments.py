#!/usr/bin/env python3
"""Trains a few steps in one environment, and reads from the run's folder what came of it.

  environments.py SCALERL_BINARY NAME FEWEST_TURNS ENVIRONMENT

ENVIRONMENT is what a recipe has in `task.datasets.environment`. Exits 1 where no step was taken, anything failed, or
no episode had FEWEST_TURNS turns.
"""
import json
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS = 2
# What a run writes when an episode, a verdict, a generator or a step went wrong.
BAD = ["verifier-failed", "set-aside", "generator-retried", "failed", "damaged", "warning"]


def make_model(folder):
    """The smallest chat model there is, with room for a conversation."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in (ROOT / "crates/model/testdata/tiny_chat").iterdir():
        shutil.copy(file, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 8192}))


def train(binary, name, environment):
    out = ROOT / "out/environments"
    make_model(out / "model")
    run = out / name
    shutil.rmtree(run, ignore_errors=True)
    dataset = f'{{name = "games", source = {{type = "seeds", count = 32, prompt = "Play."}}, environment = {environment}}}'
    command = [binary, "train", "scripts/test/environments.toml", "--run", run, "--no-history", "--device", "cpu",
               "--set", f'model.path="{out / "model"}"', "--set", f"task.datasets=[{dataset}]"]  # fmt: skip
    subprocess.run(command, cwd=ROOT, check=True)
    return run


def lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def check(run, fewest_turns):
    events = lines(run / "events.jsonl")
    kinds = [event["type"] for event in events]
    for event in events:
        if event["type"] in BAD:
            sys.exit(f"{run}: {json.dumps(event)}")
    if kinds.count("step") != STEPS:
        sys.exit(f"{run}: {kinds.count('step')} steps, not {STEPS}: {sorted(set(kinds))}")
    samples = [sample for file in (run / "samples").iterdir() for sample in lines(file)]
    for sample in samples:
        if "error" in sample:
            sys.exit(f"{run}: {sample['prompt']}: {sample['error']}")
    turns = sorted(sample.get("turns", 1) for sample in samples)
    rewards = sorted({round(sample["reward"]["value"], 3) for sample in samples})
    if not turns or turns[-1] < fewest_turns:
        sys.exit(f"{run}: the longest of {len(turns)} episodes had {turns[-1:]} turns, and {fewest_turns} were expected")
    if len(rewards) < 2:
        sys.exit(f"{run}: every episode earned {rewards}")
    print(f"{run.name}: {STEPS} steps, {len(turns)} episodes shown with {turns[0]} to {turns[-1]} turns, rewards {rewards[0]} to {rewards[-1]}")


if __name__ == "__main__":
    binary, name, fewest_turns, environment = sys.argv[1:5]
    check(train(binary, name, environment), int(fewest_turns))
