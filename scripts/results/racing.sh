#!/usr/bin/env bash
# Makes docs/results/racing.md: the recorded studies raced again, and simulated ones whose truth is
# known, beside halving by current value and no stopping. SIMULATED: how many, 200 unless told.
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo run --release --quiet --package scalerl --no-default-features -- \
  replay docs/results --simulated "${SIMULATED:-200}" --out docs/results/racing.md
