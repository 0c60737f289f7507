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
TIMES = {"at", "ledger", "spent", "seconds", "tokens_per_second"}
def plain(value):
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items() if key not in TIMES and not key.endswith("_s")}
    return [plain(one) for one in value] if isinstance(value, list) else value
def told(run):
    lines = (json.loads(line) for line in open(f"{run}/events.jsonl"))
    return [plain(line) for line in lines if line["type"] in ("group", "step", "evaluation")]
def agree(one, two):
    """Whether NEW says all that OLD says; it may say more."""
    if isinstance(one, dict):
        return isinstance(two, dict) and all(key in two and agree(one[key], two[key]) for key in one)
    if isinstance(one, list):
        return isinstance(two, list) and len(one) == len(two) and all(map(agree, one, two))
    return one == two
alone, shared = told("alone"), told("shared")
for number, (one, two) in enumerate(zip(alone, shared)):
    if not agree(one, two):
        sys.exit(f"event {number} differs:\n{one}\n{two}")
if len(alone) != len(shared):
    sys.exit(f"{len(alone)} events alone, {len(shared)} shared")
one, two = (pathlib.Path(run, "checkpoints/step-000008/trainer/model/model.safetensors") for run in ("alone", "shared"))
if one.read_bytes() != two.read_bytes():
    sys.exit("the weights of step 8 differ")
print(f"{len(alone)} events and the weights of step 8 are equal to the bit")
END
