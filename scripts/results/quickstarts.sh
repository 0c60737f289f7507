#!/usr/bin/env bash
# The quickstart from several seeds, each beside the finished ones before it: the first has no history, the next
# learns from those that have ended. Prints what each forecast half-way and what came.
#   scripts/results/quickstarts.sh OUT [SEED…]      SCALERL=path/to/scalerl, default target/release/scalerl
set -euo pipefail
scalerl=${SCALERL:-target/release/scalerl}
out=${1:?a folder for the runs}
shift
export XDG_DATA_HOME=$out/no-library OMP_WAIT_POLICY=passive
for seed in "${@:-11 12 13}"; do
  for one in $seed; do
    "$scalerl" train recipes/quickstart.toml --set output.folder="$out" --set seed="$one" --device cpu > "$out-$one.txt" 2> "$out-$one.log"
    echo "== seed $one: $(grep -m1 'learn' "$out-$one.log" || echo 'no history')"
    grep -E "half-time|measured at the end|pass rate" "$out-$one.txt"
  done
done
