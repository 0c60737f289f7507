#!/usr/bin/env bash
# `scalerl serve` beside `transformers serve` on the CPU (serve_beside_transformers.py). Installs into out/venv-transformers: 5 GB.
#   scripts/bench/serve_beside_transformers.sh MODEL_FOLDER [OPTIONS]
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
venv=$here/out/venv-transformers
test -x "$venv/bin/python" || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet 'transformers[serving]==5.23.0' torch==2.11.0
exec "$venv/bin/python" "$here/scripts/bench/serve_beside_transformers.py" "$here/target/debug/scalerl" "$@"
