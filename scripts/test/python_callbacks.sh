#!/usr/bin/env bash
# The callbacks in the libraries themselves: TRL's GRPO, transformers' Trainer and Lightning, each on a tiny model on the CPU.
# Usage: scripts/test/python_callbacks.sh [WHEEL]
set -euo pipefail
cd "$(dirname "$0")/../.."
out=out/python
wheel=${1:-}
if [ -z "$wheel" ]; then
    make wheel
    wheel=$(ls -t out/wheels/*.whl | head -n 1)
fi
test -x "$out/venv-callbacks/bin/python" || python3 -m venv "$out/venv-callbacks"
"$out/venv-callbacks/bin/pip" install --quiet --disable-pip-version-check torch==2.11.0 transformers==5.23.0 trl==1.16.0 lightning==2.6.6 pytest==8.4.2
"$out/venv-callbacks/bin/pip" install --quiet --disable-pip-version-check --force-reinstall --no-deps "$wheel"
HF_HUB_OFFLINE=1 CUDA_VISIBLE_DEVICES= "$out/venv-callbacks/bin/python" -m pytest --quiet -p no:cacheprovider python/tests/real_callbacks.py
