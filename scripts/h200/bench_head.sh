#!/usr/bin/env bash
# The head's modes at the Qwen-0.5B shape (error against float64, time), and the peak memory of a training step at
# 151,936 vocabulary and 16k tokens with chunked and with whole logits.
source "$(dirname "$0")/environment.sh"
for dtype in bf16 f32; do
  echo "== head modes, hidden states and matrix in $dtype, 16384 tokens"
  "$scalerl" bench head --device cuda --tokens 16384 --dim 896 --vocab 151936 --dtype "$dtype"
done
shape="--layers 24 --dim 896 --heads 14 --kv-heads 2 --ffn 4864 --vocab 151936 --batch 32 --seq 512 --steps 5 --warmup 2"
for mode in exact split bf16; do
  echo "== training step, head $mode"
  # shellcheck disable=SC2086
  "$scalerl" bench train $shape --device cuda --head $mode
done
for flags in "" "--whole-logits" "--recompute" "--recompute --whole-logits"; do
  echo "== peak memory, 16384 tokens: ${flags:-chunked logits}"
  # shellcheck disable=SC2086
  "$scalerl" bench train $shape --device cuda $flags
done
