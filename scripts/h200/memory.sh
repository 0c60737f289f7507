#!/usr/bin/env bash
# A model of the 8B shape (random weights, 32 layers, width 4096, vocabulary 128,256) on one GPU of 141 GB: ScaleRL steps with
# completions of 1,024 tokens, by LoRA and by full training with lean memory; then a step at 16,384 tokens a sequence, and the
# optimizer's pass at 494M parameters. Needs no files: a tokenizer of single characters is written here, since random weights say
# nothing anyway. Prints the peak of the device's allocator beside what `train --dry-run` says, and tokens/s. About 5 minutes.
#   scripts/h200/memory.sh [lora full long optimizer]   parts, default all
#   SHAPE=tiny DEVICE=cpu                                the same on a CPU in a minute: that the script runs, and no number
#   STEPS=4  WORK=FOLDER                                 steps of each run; a folder that is kept
source "$(dirname "$0")/environment.sh"
steps=${STEPS:-4} device=${DEVICE:-cuda} parts=${*:-lora full long optimizer}
work=${WORK:-$(mktemp -d)}; mkdir -p "$work"; running=
clean() { [ -z "$running" ] || kill -9 "$running" 2> /dev/null || true; [ -n "${WORK:-}" ] || rm -rf "$work"; }
trap clean EXIT
case ${SHAPE:-8b} in
  8b) shape=(32 4096 32 8 14336 128256) lengths=(64 1024) batch=(8 8) micro=16384 long=16384 optimizer=(24 896 14 2 4864 151936) ;;
  tiny) shape=(2 64 4 2 128 256) lengths=(64 32) batch=(2 4) micro=2048 long=512 optimizer=(2 64 4 2 128 256) ;;
  *) echo "unknown shape $SHAPE" >&2; exit 2 ;;
esac
bench_shape() { echo --layers "$1" --dim "$2" --heads "$3" --kv-heads "$4" --ffn "$5" --vocab "$6"; }
python3 - "$work" "${shape[@]}" <<'PY'
import json, pathlib, sys
work = pathlib.Path(sys.argv[1])
layers, width, heads, kv_heads, ffn, vocabulary = map(int, sys.argv[2:])
model = work / "model"
model.mkdir(exist_ok=True)
tokens = ["<bos>", "<eos>", "\n"] + [chr(code) for code in range(32, 127)]
json.dump({
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": vocabulary, "hidden_size": width,
    "intermediate_size": ffn, "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
    "head_dim": width // heads, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
    "hidden_act": "silu", "tie_word_embeddings": False, "initializer_range": 0.02, "bos_token_id": 0, "eos_token_id": 1,
}, open(model / "config.json", "w"))
json.dump({
    "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
    "added_tokens": [{"id": at, "content": tokens[at], "single_word": False, "lstrip": False, "rstrip": False,
                      "normalized": False, "special": True} for at in (0, 1)],
    "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "[\\s\\S]"}, "behavior": "Isolated", "invert": False},
    "decoder": {"type": "Fuse"},
    "model": {"type": "WordLevel", "vocab": {token: at for at, token in enumerate(tokens)}, "unk_token": "<unknown>"},
}, open(model / "tokenizer.json", "w"))
json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<bos>", "eos_token": "<eos>"},
          open(model / "tokenizer_config.json", "w"))
with open(work / "prompts.jsonl", "w") as out:
    for i in range(2000):
        out.write(json.dumps({"prompt": f"What is {i}+{i * 7 % 13}? ", "answer": "x"}) + "\n")
PY
cat > "$work/base.toml" <<TOML
extends = "scalerl"
[model]
path = "$work/model"
weights = "random"
compute = "bf16"
activation_checkpointing = true
[task]
held_out = 8
prompt = { type = "plain", template = "{prompt}" }
# Random text meets it about half the time.
verifier = { type = "regex", pattern = '[ -P]\s*$' }
[[task.datasets]]
name = "sums"
source = { type = "files", path = "$work/prompts.jsonl" }
[format]
thinking = "none"
[sampling]
max_prompt_tokens = ${lengths[0]}
max_thinking_tokens = 0
max_answer_tokens = ${lengths[1]}
[pipeline]
groups_per_step = ${batch[0]}
group_size = ${batch[1]}
micro_batch_tokens = $micro
[objective]
length_control = "none"
truncated = "kept"
off_policy = { type = "pipeline", steps_behind = 1 }
[evaluation]
every_steps = 1000
at_start = false
generations = 1
[budget]
steps = 100000
[output]
folder = "$work"
checkpoint_every_steps = 1000000
TOML
cat > "$work/lora.toml" <<TOML
extends = "base.toml"
[adapter]
type = "lora"
rank = 32
TOML
cat > "$work/full.toml" <<TOML
extends = "base.toml"
[optimizer]
moments = "bf16"
gradients = "bf16"
[pipeline]
weights = "shared"
TOML
# Ends the run after its steps, before its checkpoint: 80 GB on a disk are not what is measured.
run() {
  local name=$1 events="$work/$1/events.jsonl" count=0 before=$SECONDS
  # What a bare GPU has free, so before the run.
  "$scalerl" train "$work/$name.toml" --dry-run --device "$device" --run "$work/$name" > "$work/$name.dry" 2>&1 \
    || echo "  dry run: exit $?: $(tail -2 "$work/$name.dry" | tr '\n' ' ')"
  "$scalerl" train "$work/$name.toml" --run "$work/$name" --device "$device" > "$work/$name.log" 2>&1 & running=$!
  while kill -0 "$running" 2> /dev/null; do
    count=$(grep -c '"type":"step"' "$events" 2> /dev/null || true)
    [ "${count:-0}" -lt "$steps" ] || break
    sleep 1
  done
  [ "${count:-0}" -ge "$steps" ] || { running=; tail -30 "$work/$name.log"; return 1; }
  kill -9 "$running"; wait "$running" 2> /dev/null || true; running=
  python3 - "$name" "$events" "$work/$name.dry" $((SECONDS - before)) <<'PY'
import json, sys
name, events, dry, wall = sys.argv[1:]
steps = [event for event in map(json.loads, open(events)) if event["type"] == "step"]
peak = max((step["report"].get("peak_memory_bytes") or 0) for step in steps)
# The first step waits for the first completions, and kernels are chosen in it.
first, last = steps[0]["ledger"], steps[-1]["ledger"]
span = last["wall_s"] - first["wall_s"]
rate = lambda key: (last[key] - first[key]) / span
report = steps[-1]["report"]
print(f"{name}: peak {peak / 2**30:.2f} GiB; {len(steps) - 1} steps in {span:.2f} s (the last update alone {report['seconds']:.2f} s, "
      f"{report['tokens'] / report['seconds']:.0f} tokens/s): generated {rate('tokens_generated'):.0f} tokens/s, trained on "
      f"{rate('tokens_trained'):.0f} tokens/s; mean |log ratio| {report['ratio']['mean_abs_log']:.1e}; {wall} s in all")
for line in open(dry):
    if line.startswith(("memory", "          of ", "          DOES NOT FIT")):
        print("  said before:", line.strip())
PY
}
for part in $parts; do
  case $part in
    lora | full) run "$part" ;;
    long)
      # shellcheck disable=SC2046
      "$scalerl" bench train $(bench_shape "${shape[@]}") --batch 1 --seq $long --recompute --bf16-moments --bf16-gradients \
        --dtype bf16 --warmup 0 --steps 1 --device "$device" | sed "s/^/one sequence of $long: /" ;;
    optimizer)
      for lean in "" "--bf16-moments --bf16-gradients"; do
        echo "optimizer at 494M parameters, ${lean:-all float32} (before: 9.1 ms, a fused AdamW, a norm and a copy):"
        # shellcheck disable=SC2046,SC2086
        "$scalerl" bench train $(bench_shape "${optimizer[@]}") --batch 4 --seq 512 --dtype bf16 --warmup 2 --steps 5 $lean \
          --device "$device" | sed "s/^/  /"
      done ;;
    *) echo "unknown part $part" >&2; exit 2 ;;
  esac
done
