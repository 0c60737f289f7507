#!/usr/bin/env bash
# One run, one GPU: `scalerl bench train` beside PyTorch eager and torch.compile, FP32 logits on both sides.
#   scripts/h200/bench_train.sh [29m 444m qwen] > bench_train.txt
source "$(dirname "$0")/environment.sh"
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader || true
"$scalerl" doctor
declare -A shapes=(
  [29m]="--layers 8 --dim 512 --heads 8 --kv-heads 4 --ffn 1536 --vocab 4096 --batch 64 --seq 512"
  [444m]="--layers 24 --dim 1024 --heads 16 --kv-heads 8 --ffn 4096 --vocab 32768 --batch 16 --seq 1024"
  [qwen]="--layers 24 --dim 896 --heads 14 --kv-heads 2 --ffn 4864 --vocab 151936 --batch 32 --seq 512"
)
peer=scripts/h200/peer_torch.py
for name in ${*:-29m 444m qwen}; do
  shape=${shapes[$name]}
  for mixed in "" --mixed; do
    echo "== $name ${mixed:-equal lengths}: $shape"
    # shellcheck disable=SC2086
    "$scalerl" bench train $shape $mixed --device cuda
    # The ablation: the same step with logits rounded to bf16.
    "$scalerl" bench train $shape $mixed --device cuda --head bf16 | head -1 | sed 's/^/  head=bf16: /'
    python3 $peer train $shape $mixed --mode eager
    python3 $peer train $shape $mixed --mode compile
    [ -n "$mixed" ] || python3 $peer train $shape --mode eager --head bf16
    [ -n "$mixed" ] || python3 $peer train $shape --mode compile --head bf16
  done
done
