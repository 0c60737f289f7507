#!/usr/bin/env bash
# Generator and trainer at the same time against alternate phases: the same recipe, device and number of steps. Prints
# steps/hour, idle shares and the pass rate reached per device-hour, from the runs' own journals.
#   scripts/bench/pipeline.sh OUT [STEPS] [more options of `scalerl train`, such as --device cuda]
set -euo pipefail
cd "$(dirname "$0")/../.."
scalerl=${SCALERL:-target/release/scalerl}
out=${1:?a folder for the runs}; steps=${2:-64}; shift; shift || true
export OMP_WAIT_POLICY=passive
for scheme in pipeline phases; do
  case $scheme in
    pipeline) off='{ type = "pipeline", steps_behind = 8 }' ;;
    phases) off='{ type = "ppo-off-policy", steps_per_phase = 8 }' ;;
  esac
  if [ ! -e "$out/$scheme" ]; then
    "$scalerl" train recipes/quickstart.toml --run "$out/$scheme" --set "output.folder=\"$out\"" --set "objective.off_policy=$off" \
      --set "budget.steps=$steps" --set evaluation.every_steps=8 "$@" > "$out-$scheme.log" 2>&1 || { tail -5 "$out-$scheme.log"; exit 1; }
  fi
  python3 scripts/bench/step_times.py "$scheme" "$out/$scheme/events.jsonl"
done
"$scalerl" compare "$out/pipeline" "$out/phases"
