#!/usr/bin/env bash
# Makes the folder in which the studies beside this file run: model/, gsm8k/, and mix/, twelve kinds of reasoning-gym's problems
# with integer answers (7,200 to train on, 600 others to measure).
#   scripts/h200/real/prepare.sh FOLDER MODEL TRAIN.jsonl TEST.jsonl     MODEL: a Hugging Face folder; the rest: GSM8K's files
#   PYTHON=…     one with reasoning-gym (default: what `make test-rewards` installs)
# Then: scripts/h200/study.sh FOLDER scripts/h200/real/leave-one-out.toml …
set -euo pipefail
folder=${1:?a folder} model=$(realpath "${2:?a model}") train=$(realpath "${3:?GSM8K train}") test=$(realpath "${4:?GSM8K test}")
cd "$(dirname "$0")/../../.."
python=${PYTHON:-out/venv-rewards/bin/python}
kinds="aiw basic_arithmetic chain_sum count_bits gcd gsm_symbolic lcm leg_counting letter_counting number_sequence products simple_equations"
mkdir -p "$folder/gsm8k" "$folder/mix"
ln -sfn "$model" "$folder/model"
cp "$train" "$folder/gsm8k/train.jsonl"
cp "$test" "$folder/gsm8k/test.jsonl"
# shellcheck disable=SC2086
"$python" examples/rewards/write_reasoning_gym.py $kinds --size 600 --seed 1 > "$folder/mix/train.jsonl"
# shellcheck disable=SC2086
"$python" examples/rewards/write_reasoning_gym.py $kinds --size 50 --seed 1000000 > "$folder/mix/test.jsonl"
# Problem i of seed s is problem 0 of seed s + i: the seeds lie far apart. A held-out problem that is among those to train on is none.
python3 - "$folder" <<'PYTHON'
import json, sys
folder = sys.argv[1]
seen = {json.loads(line)["question"] for line in open(f"{folder}/mix/train.jsonl")}
rows = [line for line in open(f"{folder}/mix/test.jsonl") if json.loads(line)["question"] not in seen]
open(f"{folder}/mix/test.jsonl", "w").writelines(rows)
print(f"{folder}: {len(seen)} different problems to train on, {len(rows)} to measure")
PYTHON
