#!/usr/bin/env bash
# What serving costs: tokens a second over HTTP beside the generator alone, and the time to the first token, on one GPU.
#   scripts/h200/serve.sh MODEL
source "$(dirname "$0")/environment.sh"
model=${1:?a model folder}
for connections in 64 256; do
  "$scalerl" bench serve "$model" --connections "$connections" --rounds 6 --prompt 64 --new 256 --device cuda
done
