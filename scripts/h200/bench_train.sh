#!/usr/bin/env bash
# One run, one GPU: `scalerl bench train`, FP32 logits, beside PyTorch eager and torch.compile; at mixed lengths also beside
# torch.compile over a packed row with flex attention.
#   scripts/h200/bench_train.sh [29m 444m qwen 8b-4k 8b-16k] > bench_train.txt
#   PARTS="check eager fp32 mixed kernels"    what to run beside ours and torch.compile with a bf16 head
#   REPS=3                                    timed runs of each side; best and median are printed last
source "$(dirname "$0")/environment.sh"
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader || true
"$scalerl" doctor
declare -A shapes=(
  [29m]="--layers 8 --dim 512 --heads 8 --kv-heads 4 --ffn 1536 --vocab 4096 --batch 64 --seq 512"
  [444m]="--layers 24 --dim 1024 --heads 16 --kv-heads 8 --ffn 4096 --vocab 32768 --batch 16 --seq 1024"
  [8b-4k]="--layers 8 --dim 4096 --heads 32 --kv-heads 8 --ffn 14336 --vocab 128256 --batch 4 --seq 4096 --steps 10"
  [8b-16k]="--layers 8 --dim 4096 --heads 32 --kv-heads 8 --ffn 14336 --vocab 128256 --batch 1 --seq 16384 --steps 10"
  [qwen]="--layers 24 --dim 896 --heads 14 --kv-heads 2 --ffn 4864 --vocab 151936 --batch 32 --seq 512"
)
peer=scripts/h200/peer_torch.py
parts=" ${PARTS-check eager fp32 mixed} "
has() { [[ $parts == *" $1 "* ]]; }
results=$(mktemp)
# Runs one side and keeps its tokens a second: NAME WHO COMMAND...
one() {
  local name=$1 who=$2 found; shift 2
  found=$("$@") || { echo "  $who: no result"; return 0; }
  echo "$found"
  sed -n "s/.*tokens\/s=\([0-9]*\).*/$name\t$who\t\1/p" <<< "$found" >> "$results"
}
if has check; then "$scalerl" bench train --device cuda --check | grep -v "^ok" || true; fi
reps=${REPS-1}
for name in ${*:-29m 444m qwen}; do
  shape=${shapes[$name]}
  echo "== $name: $shape"
  ours() { # NAME FLAGS...
    local what=$1 rep kernels; shift
    for rep in $(seq "$reps"); do
      kernels=; if has kernels && [ "$rep" = 1 ]; then kernels=--kernels; fi
      # shellcheck disable=SC2086
      one "$what" "scalerl, FP32 logits" "$scalerl" bench train $shape "$@" --device cuda $kernels
    done
  }
  theirs() { # NAME WHO FLAGS...
    local what=$1 who=$2; shift 2
    # shellcheck disable=SC2086
    one "$what" "$who" python3 $peer train $shape --reps "$reps" "$@"
  }
  ours $name
  theirs $name "torch.compile, bf16 head" --mode compile --head bf16
  if has fp32; then theirs $name "torch.compile, FP32 head" --mode compile; fi
  if has eager; then theirs $name "eager, bf16 head" --mode eager --head bf16; fi
  if has mixed; then
    ours "$name mixed" --mixed
    theirs "$name mixed" "torch.compile, bf16 head, packed" --mixed --packed --mode compile --head bf16
  fi
done
python3 - "$results" <<'PY'
import statistics, sys
rows = {}
for line in open(sys.argv[1]):
    name, who, rate = line.rstrip("\n").split("\t")
    rows.setdefault(name, {}).setdefault(who, []).append(int(rate))
for name, sides in rows.items():
    ours = sides.get("scalerl, FP32 logits", [0])
    for who, rates in sides.items():
        print(f"{name:12} {who:34} best {max(rates):>9,} median {statistics.median(rates):>11,.0f} tokens/s"
              f"   ours / this, medians {statistics.median(ours) / statistics.median(rates):.3f}")
PY
