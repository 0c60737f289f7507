#!/usr/bin/env bash
# What one GPU can show of a cluster: trainer ranks over NCCL with one rank, weights between two processes on one GPU, and a whole
# RL step with the generator in the trainer's process and in its own.
#   TESTS=FOLDER     with `ranks` and `channel`: cargo test --release -p scalerl-worker --test ranks --test channel --no-run
#   RANKS=FILE       cargo build --release -p scalerl-worker --example ranks
#   MODEL=FOLDER REDIS_SERVER=FILE      as in bench_step.sh
source "$(dirname "$0")/environment.sh"
export SCALERL_REQUIRE_CUDA=1
# Every part is run, whatever became of the others.
failed=0; part() { echo "== $1"; shift; "$@" || { echo "exit code $?"; failed=1; }; }
cd crates/worker
part "trainer ranks over NCCL" "$TESTS/ranks" one_rank_over_nccl --nocapture
part "weights between two processes" "$TESTS/channel" share_a_gpu --nocapture
cd ../..
# Enough to see what the exchange costs: device, width, layers, sequences, longest, steps, sharding. One rank gathers and
# scatters its own memory: losses are to be those of one process, peak memory without a copy of all weights in `full`.
shape=(cuda 1024 16 64 512 20)
part "update, one process" "$RANKS" "${shape[@]}"
for sharding in optimizer full; do
  part "update, one rank over NCCL, $sharding" env RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 \
    "$RANKS" "${shape[@]}" "$sharding"
done
for scheme in pipeline processes; do
  SCHEMES=$scheme part "RL step, $scheme" scripts/h200/bench_step.sh "${1:-16}"
done
exit "$failed"
