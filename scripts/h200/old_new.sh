#!/usr/bin/env bash
# Two builds side by side on one GPU, in turns, so that a change of the plan can be held against the speed it had.
#   OLD=path/to/old/scalerl NEW=path/to/new/scalerl scripts/h200/old_new.sh > old_new.txt
SCALERL=${NEW:?} source "$(dirname "$0")/environment.sh"
train="--layers 24 --dim 896 --heads 14 --kv-heads 2 --ffn 4864 --vocab 151936 --batch 32 --seq 512"
decode="--layers 24 --dim 896 --heads 14 --kv-heads 2 --ffn 4864 --vocab 151936 --batch 256 --prompt 32 --new 256 --reps 3"
echo "== kernels of the new one against torch operations"
"$NEW" bench decode --device cuda --check | tail -5
for turn in 1 2 3; do
  for which in OLD NEW; do
    # shellcheck disable=SC2086
    echo "turn $turn $which train:  $("${!which}" bench train $train --device cuda | head -1)"
    # shellcheck disable=SC2086
    echo "turn $turn $which decode: $("${!which}" bench decode $decode --device cuda | head -1)"
  done
done
