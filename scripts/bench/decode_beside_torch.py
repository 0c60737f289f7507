#!/usr/bin/env python3
"""`scalerl bench decode` beside PyTorch eager on this CPU, in turns, for a model of about one million parameters.

  decode_beside_torch.py [--scalerl target/release/scalerl] [--rounds 3] [--threads 2]

Needs a python3 with torch. Both sides draw at temperature 1 with float32 logits; the best of the rounds counts. Exits 1
when scalerl is slower.
"""
import argparse
import pathlib
import re
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parents[2]
parser = argparse.ArgumentParser()
parser.add_argument("--scalerl", default=str(root / "target/release/scalerl"))
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--threads", type=int, default=2)
args = parser.parse_args()
shape = "--layers 4 --dim 128 --heads 4 --kv-heads 2 --ffn 384 --vocab 512 --batch 64 --prompt 32 --new 256 --device cpu".split()
shape += ["--threads", str(args.threads)]
sides = {
    "scalerl": [args.scalerl, "bench", "decode", "--reps", "2", *shape],
    "torch eager": [sys.executable, str(root / "scripts/h200/decode_torch.py"), "--mode", "eager", "--reps", "2", *shape],
}
best = dict.fromkeys(sides, 0.0)
for turn in range(args.rounds):
    for name, command in sides.items():
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        print(f"[{turn + 1}] {text.strip()}", flush=True)
        best[name] = max(best[name], float(re.search(r"with prefill: (\d+)", text).group(1)))
ours, theirs = best["scalerl"], best["torch eager"]
print(f"new tokens/s with prefill: scalerl {ours:.0f}, torch eager {theirs:.0f}, ratio {ours / theirs:.2f}")
sys.exit(0 if ours >= theirs else 1)
