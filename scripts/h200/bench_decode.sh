#!/usr/bin/env bash
# One run, one GPU: kernels checked, then `scalerl bench decode` beside PyTorch eager, torch.compile + CUDA graph and
# transformers generate, equal and mixed lengths, FP32 logits; then generator against trainer for the three heads.
#   scripts/h200/bench_decode.sh [444m qwen-256 qwen-768 29m] > bench_decode.txt
#   PEERS="eager compile-graph hf"   which peers (empty: none)
source "$(dirname "$0")/environment.sh"
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader || true
echo "== kernels against torch operations"
"$scalerl" bench decode --device cuda --check
declare -A shapes=(
  [29m]="--layers 8 --dim 512 --heads 8 --kv-heads 4 --ffn 1536 --vocab 4096 --batch 256"
  [444m]="--layers 24 --dim 1024 --heads 16 --kv-heads 8 --ffn 4096 --vocab 32768 --batch 256"
  [qwen-256]="--layers 24 --dim 896 --heads 14 --kv-heads 2 --ffn 4864 --vocab 151936 --batch 256"
  [qwen-768]="--layers 24 --dim 896 --heads 14 --kv-heads 2 --ffn 4864 --vocab 151936 --batch 768"
)
peer=scripts/h200/decode_torch.py
for name in ${*:-444m qwen-256 qwen-768}; do
  shape=${shapes[$name]}
  for lengths in "--prompt 32 --new 256" "--prompt 32 --new 1024 --fewest 64"; do
    echo "== $name $lengths: $shape"
    # shellcheck disable=SC2086
    "$scalerl" bench decode $shape $lengths --device cuda
    for mode in ${PEERS-eager compile-graph hf}; do
      # shellcheck disable=SC2086
      timeout 300 python3 $peer $shape $lengths --mode "$mode" --reps 1 || echo "  $mode: no result"
    done
  done
done
echo "== generator against trainer, Qwen-0.5B shape, bf16"
"$scalerl" bench decode --layers 24 --dim 896 --heads 14 --kv-heads 2 --ffn 4864 --vocab 151936 --batch 64 --prompt 32 --new 160 \
  --device cuda --mismatch
