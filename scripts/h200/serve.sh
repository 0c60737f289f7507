#!/usr/bin/env bash
# Serving on one GPU, in about three minutes: the generator alone, whole and streamed answers over HTTP, time to the first token
# (`scalerl bench serve`, 64 and 256 connections), then `scalerl serve` beside `transformers serve --continuous-batching`.
#   scripts/h200/serve.sh [MODEL]          SCALERL=path/to/scalerl      CONNECTIONS="64 256"
# MODEL is a folder with config.json, model.safetensors and tokenizer.json. Without one, or where the folder is not there, it is made here by
# scripts/h200/random_model.py (the shape of Qwen2.5-0.5B, random weights, 1 GB, no network; default out/random-qwen): random weights take the same time.
# transformers' server needs fastapi, uvicorn, openai and pydantic besides torch 2.11 and transformers; where one is missing the table says so. To bring
# them to a machine without network, with its version of python (3.12 here), and carry the folder (about 40 MB), which is found by itself:
#   pip install --no-compile --target out/serving --python-version 3.12 --only-binary=:all: fastapi uvicorn openai typer requests
source "$(dirname "$0")/environment.sh"
model=${1:-out/random-qwen}
connections=${CONNECTIONS:-64 256}
# Behind what the machine has: its own packages come first.
serving=$(python3 -c 'import sys; print(next(path for path in sys.path if path.endswith("site-packages")))')
[ -d out/serving ] && export PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}$serving:$PWD/out/serving
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader || true
python3 -c 'import torch, transformers; print("torch", torch.__version__, "transformers", transformers.__version__)'
[ -f "$model/config.json" ] || python3 scripts/h200/random_model.py "$model"
begun=$SECONDS
for count in $connections; do
  "$scalerl" bench serve "$model" --connections "$count" --rounds 6 --prompt 64 --new 256 --device cuda
done
echo "($((SECONDS - begun)) s)"
# transformers' own server writes one answer after the other unless it is told to batch: that side is left out here, 256 answers would take minutes.
python3 scripts/bench/serve_beside_transformers.py "$scalerl" "$model" --device cuda --sides scalerl,batched --connections "${connections// /,}" \
  --new 128 --rounds 2 --warm-ups 1 --seconds 30
echo "($((SECONDS - begun)) s)"
