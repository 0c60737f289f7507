#!/usr/bin/env bash
# Environments of the packages that people use, as they are: each package in a virtual environment of its own, played by a
# policy that says its lines, then trained in for a few steps.
#   scripts/test/environments.sh [SCALERL_BINARY]
set -euo pipefail
cd "$(dirname "$0")/../.."
binary=${1:-target/debug/scalerl}

install() { # NAME PACKAGES...
    test -x "out/venv-$1/bin/python" || python3 -m venv "out/venv-$1"
    "out/venv-$1/bin/pip" install --quiet "${@:2}"
}
install openenv openenv==0.10.0
install verifiers verifiers==0.4.0 uv
install textarena textarena==0.7.4 gymnasium==1.4.0
export SCALERL_OPENENV_PYTHON=$PWD/out/venv-openenv/bin/python
export SCALERL_VERIFIERS_PYTHON=$PWD/out/venv-verifiers/bin/python
export SCALERL_TEXTARENA_PYTHON=$PWD/out/venv-textarena/bin/python

cargo test --locked --package scalerl-environment --test real_packages -- --ignored --test-threads 1

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$SCALERL_OPENENV_PYTHON" examples/environments/openenv_echo.py "$port" &
server=$!
trap 'kill "$server"' EXIT
until python3 -c "import socket; socket.create_connection(('127.0.0.1', $port))" 2>/dev/null; do
    kill -0 "$server" || { echo "the OpenEnv server ended"; exit 1; }
    sleep 0.2
done

train() { python3 scripts/test/environments.py "$binary" "$@"; } # NAME FEWEST_TURNS ENVIRONMENT
examples=examples/environments
train openenv 3 "{type = \"openenv\", url = \"ws://127.0.0.1:$port/ws\", observation_key = \"word\"}"
train textarena 2 "{type = \"python\", file = \"$examples/textarena_game.py\", python = \"$SCALERL_TEXTARENA_PYTHON\"}"
train gymnasium 2 "{type = \"python\", file = \"$examples/gymnasium_blackjack.py\", python = \"$SCALERL_TEXTARENA_PYTHON\"}"
train verifiers 3 "{type = \"verifiers\", python = \"$SCALERL_VERIFIERS_PYTHON\", environment = \"$examples/verifiers_repeat.py\"}"
