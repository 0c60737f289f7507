#!/usr/bin/env bash
# One run, one GPU: kernels checked, then `scalerl bench decode` beside PyTorch eager, torch.compile + CUDA graph and
# transformers generate, equal and mixed lengths, FP32 logits; then generator against trainer for the three heads.
#   scripts/h200/bench_decode.sh [444m qwen-256 qwen-768 29m] > bench_decode.txt
#   PARTS="check ours compile-graph eager hf mismatch"   what to run
#   LENGTHS="equal mixed"                                at which lengths
#   REPS=1                                               timed repetitions, after one that is thrown away
# Mixed lengths: eight batches' worth of requests. Peers are timed on the first batches, each of which runs to its longest:
# two for torch.compile + CUDA graph, one for eager and transformers, which takes minutes as it is.
source "$(dirname "$0")/environment.sh"
parts=" ${PARTS-check ours compile-graph eager hf mismatch} "
has() { [[ $parts == *" $1 "* ]]; }
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader || true
if has check; then
  echo "== kernels against torch operations"
  "$scalerl" bench decode --device cuda --check
fi
declare -A shapes=(
  [29m]="--layers 8 --dim 512 --heads 8 --kv-heads 4 --ffn 1536 --vocab 4096 --batch 256"
  [444m]="--layers 24 --dim 1024 --heads 16 --kv-heads 8 --ffn 4096 --vocab 32768 --batch 256"
  [qwen-256]="--layers 24 --dim 896 --heads 14 --kv-heads 2 --ffn 4864 --vocab 151936 --batch 256"
  [qwen-768]="--layers 24 --dim 896 --heads 14 --kv-heads 2 --ffn 4864 --vocab 151936 --batch 768"
)
declare -A lengths=([equal]="--prompt 32 --new 256" [mixed]="--prompt 32 --new 1024 --fewest 64")
for name in ${*:-444m qwen-256 qwen-768}; do
  for kind in ${LENGTHS-equal mixed}; do
    what="${shapes[$name]} ${lengths[$kind]} --reps ${REPS-1}"
    echo "== $name, $kind lengths: $what"
    # shellcheck disable=SC2086
    if has ours; then "$scalerl" bench decode $what --device cuda --breakdown; fi
    for mode in compile-graph eager hf; do
      if ! has $mode; then continue; fi
      some=""
      if [ $kind = mixed ]; then some="--batches $([ $mode = compile-graph ] && echo 2 || echo 1)"; fi
      # shellcheck disable=SC2086
      timeout 300 python3 scripts/h200/decode_torch.py $what $some --mode $mode || echo "  $mode: no result"
    done
  done
done
if has mismatch; then
  echo "== generator against trainer, Qwen-0.5B shape, bf16"
  # shellcheck disable=SC2086
  "$scalerl" bench decode ${shapes[qwen-256]/--batch 256/--batch 64} --prompt 32 --new 160 --device cuda --mismatch
fi
