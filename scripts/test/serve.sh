#!/usr/bin/env bash
# The clients that people use, against `scalerl serve`: openai's own, and lm-eval, whose answers and log-likelihoods
# must be those of transformers on the same model. Installs into out/venv-serve (torch for the CPU comes with CUDA's: 5 GB).
#   scripts/test/serve.sh [SCALERL_BINARY]
set -euo pipefail
cd "$(dirname "$0")/../.."
binary=${1:-target/debug/scalerl}
test -x out/venv-serve/bin/python || python3 -m venv out/venv-serve
out/venv-serve/bin/pip install --quiet openai==3.49.0 'lm-eval[api]==0.4.13' accelerate==1.15.0 torch==2.11.0 transformers==5.3.0
HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 TOKENIZERS_PARALLELISM=false PYTHONWARNINGS=ignore \
    out/venv-serve/bin/python scripts/test/serve.py "$binary"
