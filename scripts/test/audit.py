#!/usr/bin/env python3
"""Looks through the folder of a run that has ended: no prompt lost, none trained on twice.

    scripts/test/audit.py RUN PROMPTS [LARGEST_LAG]

Reads `events.jsonl` and the newest checkpoint. Every prompt that was handed out must have been judged
once or be in the checkpoint, every judged group must be in one step, set aside, or in the checkpoint, every
position of an epoch of PROMPTS prompts must have been handed out (so the recipe has no curriculum). Exits with 1 and says what is wrong.
The tests in Rust ask the same of runs without Slurm (`crates/cli/tests/train/bench.rs`).
"""

import json
import sys
from pathlib import Path


def counted(path: Path) -> tuple[list[tuple[int, dict]], int]:
    """Events that count after all resumes, each with its line, and how many resumes there were."""
    kept: list[tuple[int, dict]] = []
    resumes = 0
    for index, line in enumerate(path.read_text().splitlines()):
        event = json.loads(line)
        if event["type"] == "resumed":
            kept = [one for one in kept if one[0] < event["kept"]]
            resumes += 1
        kept.append((index, event))
    return kept, resumes


def place_of(place: dict) -> tuple[int, int, int]:
    return place["dataset"], place["epoch"], place["position"]


def audit(run: Path, prompts: int, largest_lag: int) -> list[str]:
    wrong: list[str] = []
    events, resumes = counted(run / "events.jsonl")
    checkpoints = sorted((run / "checkpoints").glob("step-*"))
    if not checkpoints:
        return ["there is no checkpoint"]
    newest = checkpoints[-1]
    state = json.loads((newest / "state.json").read_text())
    places: set[tuple[int, int, int]] = set()
    waiting: set[int] = set()
    steps = again = set_aside = 0
    for line, event in events:
        kind = event["type"]
        if kind == "group" and line >= state["kept"]:
            # Judged after the last checkpoint, of the same step: a resume takes it back and samples it again.
            again += 1
        elif kind == "group":
            place = place_of(event["place"])
            if place in places:
                wrong.append(f"{place} was judged twice")
            places.add(place)
            if event["fate"] == "batch":
                waiting.add(event["group"])
        elif kind in ("step", "empty-batch"):
            for group in event["batch"]["groups"]:
                if group not in waiting:
                    wrong.append(f"group {group} was trained on twice, or was never judged")
                waiting.discard(group)
        elif kind == "set-aside" and line < state["kept"]:
            set_aside += 1
            if event["group"] not in waiting:
                wrong.append(f"group {event['group']} was set aside and trained on, or was never judged")
            waiting.discard(event["group"])
        if kind == "step":
            steps += 1
            if event["report"]["version"] != steps:
                wrong.append(f"step {steps} is called {event['report']['version']}")
            if event["lag"] > largest_lag:
                wrong.append(f"lag {event['lag']} at step {steps}")
    if state["version"] != steps:
        wrong.append(f"the newest checkpoint is of step {state['version']}, the last step is {steps}")
    in_flight = 0
    for line in (newest / "groups.jsonl").read_text().splitlines():
        group = json.loads(line)
        if group["judged"] is None or group["stage"] == "arrived":
            in_flight += 1
            place = place_of(group["handout"]["place"])
            if place in places:
                wrong.append(f"{place} is judged and in flight")
            places.add(place)
        elif group["id"] in waiting:
            waiting.remove(group["id"])
        else:
            wrong.append(f"group {group['id']} is trained on and still buffered")
    wrong += [f"group {group} was judged and then lost" for group in sorted(waiting)]
    for index, (_, epoch, position) in enumerate(sorted(places)):
        if epoch * prompts + position != index:
            wrong.append(f"a prompt was skipped before epoch {epoch}, position {position}")
            break
    print(
        f"{run.name}: {steps} steps, {resumes} resumes, {len(places)} prompts handed out, "
        f"{in_flight} of them in flight in the last checkpoint ({again} judged since), "
        f"{set_aside} groups set aside, {len(wrong)} faults"
    )
    return wrong


def main() -> int:
    if len(sys.argv) not in (3, 4):
        print(__doc__, file=sys.stderr)
        return 2
    lag = int(sys.argv[3]) if len(sys.argv) == 4 else 8
    wrong = audit(Path(sys.argv[1]), int(sys.argv[2]), lag)
    for line in wrong:
        print(f"audit: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
