#!/usr/bin/env bash
# Builds target/quickstart/scalerl and says beforehand what that takes: the first time, minutes. The profile is
# quicker to compile than release, and for what a first run does as quick to run.
#   scripts/setup/build.sh [cargo options]
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ ! -x "${CARGO_TARGET_DIR:-target}/quickstart/scalerl" ]; then
  # CPU time of a first build on one core, from docs/bench/build.md; libtorch's C++ headers are a fifth of it.
  cpu_minutes=8
  crates=$(cargo tree --locked --package scalerl --edges normal,build --prefix none "$@" | sort -u | wc -l)
  echo "compiling scalerl and the $crates crates that it is made of, once: about $(( (cpu_minutes + $(nproc) - 1) / $(nproc) )) minutes of" \
    "this machine's $(nproc) cores, if nobody else uses them; later builds take seconds. cargo names each crate as it goes." >&2
fi
started=$SECONDS
cargo build --profile quickstart --locked --package scalerl "$@"
echo "built in $(( SECONDS - started )) s: ${CARGO_TARGET_DIR:-target}/quickstart/scalerl" >&2
