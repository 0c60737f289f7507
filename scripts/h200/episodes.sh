#!/usr/bin/env bash
# GSM8K in episodes with the Python tool, on one GPU (examples/gsm8k-python.toml). Run again, it goes on.
#   scripts/h200/episodes.sh MODEL DATA FOLDER DEVICE_HOURS [--set KEY=VALUE ...]
# DATA holds train.jsonl and test.jsonl of GSM8K. Where there is no bubblewrap, set
# SANDBOX=none: programs then run under limits alone, which only a machine that is thrown away may allow.
source "$(dirname "$0")/environment.sh"
model=$(realpath "${1:?a model folder}"); data=$(realpath "${2:?GSM8K}"); folder=${3:?a folder for the run}; hours=${4:?device hours}; shift 4
binary=$(realpath "$scalerl"); recipe=$(realpath examples/gsm8k-python.toml)
mkdir -p "$folder"; cd "$folder"; ln -sfn "$data" gsm8k
recipe_here=recipe.toml
sed '/^extends/s/.*/extends = "examples\/gsm8k"/' "$recipe" > "$recipe_here"
[ "${SANDBOX:-}" = none ] && sed -i 's/time_s = 3.0 }/time_s = 3.0, allow_without_sandbox = true }/' "$recipe_here"
if [ -d run ]; then
  "$binary" train --resume run --device cuda "$@"
else
  "$binary" train "$recipe_here" --run run --device cuda --set model.path="$model" --set budget.device_hours="$hours" --set output.folder="$PWD" "$@"
fi
