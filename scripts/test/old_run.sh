#!/usr/bin/env bash
# old_run.sh OLD NEW: a run that the program OLD has begun and NEW has resumed is, times aside, the run that OLD makes alone.
# Both are paths of `scalerl`, built for this machine; a lag of 0 on the CPU, where a run is the same to the bit.
set -euo pipefail
[ $# = 2 ] || { sed -n 2,3p "$0" >&2; exit 2; }
old=$(realpath "$1") new=$(realpath "$2")
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$root"/crates/cli/tests/train/small.toml "$root"/crates/cli/testdata/run-487dffe/tiny.toml "$work"
cd "$work"
export OMP_WAIT_POLICY=passive XDG_DATA_HOME=$work/data

"$old" train scalerl small.toml tiny.toml --device cpu --run alone --set budget.steps=8
"$old" train scalerl small.toml tiny.toml --device cpu --run shared --set budget.steps=4
"$new" train --device cpu --resume shared --set budget.steps=8

# What training saw and did: steps and groups without times, and the weights at the end.
python3 - <<'END'
import json, pathlib, sys
TIMES = {"at", "ledger", "spent", "generate_s", "judge_s", "step_s", "seconds", "tokens_per_second"}
def plain(value):
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items() if key not in TIMES and not key.endswith("_s")}
    return [plain(one) for one in value] if isinstance(value, list) else value
def told(run):
    lines = (json.loads(line) for line in open(f"{run}/events.jsonl"))
    return [plain(line) for line in lines if line["type"] in ("group", "step", "evaluation")]
alone, shared = told("alone"), told("shared")
weights = [next(pathlib.Path(run).glob("checkpoints/step-000008/trainer/model/model.safetensors")).read_bytes()
           for run in ("alone", "shared")]
for number, (one, two) in enumerate(zip(alone, shared)):
    for key in one:
        if one[key] != two.get(key):
            sys.exit(f"event {number} differs in {key}:\n{one}\n{two}")
if len(alone) != len(shared) or weights[0] != weights[1]:
    sys.exit(f"{len(alone)} and {len(shared)} events, weights {'differ' if weights[0] != weights[1] else 'are equal'}")
print(f"{len(alone)} events and the weights of step 8 are equal to the bit")
END
