#!/usr/bin/env bash
# Makes docs/results/calibration.md: coverage of the intervals on simulated curves, and forecasts
# of real curves beside their rivals. The real logs are not shipped: give the folder that has
# curves/ and logs/ as first argument, or only the simulations are run.
set -euo pipefail
cd "$(dirname "$0")/../.."
data=${1:-}
seeds=${SEEDS:-200}
real=()
if [ -n "$data" ]; then
  real=(
    "$data/curves/scalerl_fig1_8b.csv"
    "$data/curves/qwen3_gsm8k_grpo.csv"
    "$data/curves/gpg_qwen2-7b_megatron.csv"
    "$data/logs/verl_ppo_qwen2.5-0.5b_gsm8k.log:1"
    "$data/logs/verl_gpg_qwen2-7b_gsm8k_math.log:8"
    "$data/logs/verl_ppo_qwen2.5-0.5b_gsm8k.log:1:critic/score/mean"
    "$data/logs/verl_gpg_qwen2-7b_gsm8k_math.log:8:critic/score/mean"
  )
fi
cargo run --release --quiet --example calibration --package scalerl --no-default-features -- \
  docs/results "$seeds" ${real[@]+"${real[@]}"}
