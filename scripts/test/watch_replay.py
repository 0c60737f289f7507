#!/usr/bin/env python3
"""Replays a recorded run as if it were alive: the lines of its journal, one after another.

    watch_replay.py SOURCE TARGET LINES_PER_SECOND            begin
    watch_replay.py SOURCE TARGET LINES_PER_SECOND --resume   go on from the last checkpoint, as a
                                                              resumed run does
    watch_replay.py SOURCE TARGET LINES_PER_SECOND --to N     end after N lines, as killed

Holds the run's lock and says its process in it; SIGTERM ends it in order, with the event of a stop.
"""

import fcntl
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path


def main() -> None:
    source, target, rate = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
    is_resumed = "--resume" in sys.argv
    last = int(sys.argv[sys.argv.index("--to") + 1]) if "--to" in sys.argv else None
    lines = [json.loads(line) for line in (source / "events.jsonl").open()]
    if not is_resumed:
        (target / "samples").mkdir(parents=True)
        for name in ["recipe.toml", "environment.json"]:
            shutil.copy(source / name, target / name)
    lock = open(target / "run.lock", "a+")
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(True))

    written = [json.loads(line) for line in (target / "events.jsonl").open()] if is_resumed else []
    log = open(target / "events.jsonl", "ab", buffering=0)
    point_file = target / "points.jsonl"
    points = []

    def add(event: dict) -> None:
        log.write(json.dumps({**event, "at": time.time()}, separators=(",", ":")).encode() + b"\n")

    def note(event: dict) -> None:
        if event["type"] != "evaluation":
            return
        spent, one = event["spent"], event["sets"][0]
        roles = spent["device_seconds"]
        hours = (sum(roles.values()) - roles["evaluate"]) / 3600
        points.append({"run": target.name, "step": event["version"], "gpu_hours": hours, "tokens": spent["tokens_generated"],
                       "flops": spent["flops"], "pass_rate": one["pass_rate"], "samples": one["samples"]})
        point_file.write_text("".join(json.dumps(point) + "\n" for point in points))
        sample = source / "samples" / f"step-{event['version']:06}.jsonl"
        if sample.exists():
            shutil.copy(sample, target / "samples" / sample.name)

    begin = 0
    if is_resumed:
        # The source's own line after the last checkpoint that was reached.
        begin = max(index for index, event in enumerate(written) if event["type"] == "checkpoint") + 1
        version = written[begin - 1]["version"]
        ledger = next(event["ledger"] for event in reversed(written) if "ledger" in event)
        add({"v": 1, "at": 0, "type": "resumed", "version": version, "kept": begin, "lost": ledger, "buffered_groups": 0})
        for event in lines[:begin]:
            note(event)
    for event in lines[begin:last]:
        if asked:
            done = next(one for one in reversed(lines[: lines.index(event)]) if "ledger" in one)
            version = done["report"]["version"] if "report" in done else done["version"]
            add({"v": 1, "at": 0, "type": "stopped", "version": version, "reason": "asked", "ledger": done["ledger"]})
            return
        note(event)
        add(event)
        time.sleep(1 / rate)
    if last is not None:
        os.kill(os.getpid(), signal.SIGKILL)


main()
