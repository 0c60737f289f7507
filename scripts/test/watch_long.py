#!/usr/bin/env python3
"""Many runs and a long journal, from one recorded run: watch_long.py SOURCE FOLDER RUNS MEGABYTES."""

import json
import shutil
import sys
from pathlib import Path

GROUPS_PER_STEP = 48


def main() -> None:
    source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    runs, size = int(sys.argv[3]), int(sys.argv[4]) << 20
    for number in range(runs):
        shutil.copytree(source, folder / f"run-{number:03}", ignore=shutil.ignore_patterns("checkpoints"))
    long = folder / "long"
    shutil.copytree(source, long, ignore=shutil.ignore_patterns("checkpoints", "events.jsonl"))
    events = [json.loads(line) for line in (source / "events.jsonl").open()]
    first = next(event for event in events if event["type"] == "started")
    group = next(event for event in events if event["type"] == "group")
    steps = [event for event in events if event["type"] == "step"]
    evaluations = [event for event in events if event["type"] == "evaluation"]

    def text(event: dict) -> str:
        return json.dumps(event, separators=(",", ":")) + "\n"

    written, version, number = 0, 0, 0
    with (long / "events.jsonl").open("w") as out:
        written += out.write(text(first))
        while written < size:
            version += 1
            lines = []
            for _ in range(GROUPS_PER_STEP):
                number += 1
                lines.append(text({**group, "group": number}))
            step = json.loads(json.dumps(steps[version % len(steps)]))
            step["report"]["version"] = version
            grown = version / len(steps)
            for key in ["wall_s", "tokens_generated", "tokens_trained"]:
                step["ledger"][key] = type(step["ledger"][key])(steps[-1]["ledger"][key] * grown)
            for role in step["ledger"]["device_seconds"]:
                step["ledger"]["device_seconds"][role] = steps[-1]["ledger"]["device_seconds"][role] * grown
            lines.append(text(step))
            if version % 200 == 0:
                one = json.loads(json.dumps(evaluations[-1]))
                one["version"], one["spent"], one["ledger"] = version, step["ledger"], step["ledger"]
                lines.append(text(one))
            written += out.write("".join(lines))
    print(f"{runs} runs; {written / 1e6:.0f} MB, {version} steps, {number} groups in {long}")


main()
