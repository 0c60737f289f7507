#!/usr/bin/env bash
# One whole RL step on the Qwen-0.5B shape, pipelined: 48 prompts x 16 completions of 256 tokens, reward, CISPO update,
# weights handed over; FP32 logits. Random weights, so every completion has its full length; a pattern that random text
# meets about half the time stands for the reward. Prints the seconds of each step from the run's own journal.
#   MODEL=FOLDER scripts/h200/bench_step.sh [STEPS]      a folder with config.json and tokenizer.json of Qwen2.5-0.5B
#   SCHEMES="pipeline phases"                            which off-policy schemes; `processes` is the pipeline with its generator in a
#                                                        process of its own on the same GPU (REDIS_SERVER names the server's program)
#   WORK=FOLDER                                          keeps what the runs leave
source "$(dirname "$0")/environment.sh"
steps=${1:-16}
work=${WORK:-$(mktemp -d)}; mkdir -p "$work"; redis=
clean() { [ -z "$redis" ] || kill "$redis"; [ -n "${WORK:-}" ] || rm -rf "$work"; }
trap clean EXIT
python3 - "$work/prompts.jsonl" <<'PY'
import json, sys
with open(sys.argv[1], "w") as out:
    for i in range(4000):
        out.write(json.dumps({"prompt": f"Question {i}: what is {i}+{i * 7 % 13}? Think step by step.", "answer": "x"}) + "\n")
PY
cat > "$work/step.toml" <<TOML
extends = "scalerl"
[model]
path = "${MODEL:?a folder with config.json and tokenizer.json}"
weights = "random"
[task]
held_out = 16
prompt = { type = "plain", template = "{prompt}" }
verifier = { type = "regex", pattern = '[a-m]\S*\s*$' }
[[task.datasets]]
name = "sums"
source = { type = "files", path = "$work/prompts.jsonl" }
[format]
thinking = "none"
[sampling]
max_prompt_tokens = 64
max_thinking_tokens = 0
max_answer_tokens = 256
[objective]
length_control = "none"
truncated = "kept"
[evaluation]
every_steps = 1000
at_start = false
generations = 1
[output]
folder = "$work"
checkpoint_every_steps = 1000
TOML
for scheme in ${SCHEMES:-pipeline phases}; do
  more=()
  case $scheme in
    pipeline) off='{ type = "pipeline", steps_behind = 8 }' ;;
    processes)
      off='{ type = "pipeline", steps_behind = 8 }'
      "${REDIS_SERVER:-redis-server}" --port 26379 --bind 127.0.0.1 --save "" --appendonly no > "$work/redis.log" 2>&1 &
      redis=$!
      export SCALERL_REDIS=redis://127.0.0.1:26379
      more=(--set cluster.generators=1) ;;
    phases) off='{ type = "ppo-off-policy", steps_per_phase = 8 }' ;;
    *) echo "unknown scheme $scheme" >&2; exit 2 ;;
  esac
  "$scalerl" train "$work/step.toml" --run "$work/$scheme" --set "objective.off_policy=$off" --set "budget.steps=$steps" "${more[@]}" > "$work/$scheme.log" 2>&1 \
    || { tail -30 "$work/$scheme.log"; exit 1; }
  python3 scripts/bench/step_times.py "$scheme" "$work/$scheme/events.jsonl"
done
