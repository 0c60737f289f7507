#!/usr/bin/env bash
# Tests of runs over several processes. They need a real Redis server: found, installed, or a failure.
set -euo pipefail
cd "$(dirname "$0")/../.."

if ! command -v redis-server >/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get update -qq && apt-get install -y -qq redis-server
    fi
fi
if ! command -v redis-server >/dev/null; then
    echo "test-cluster needs redis-server: install it (Debian: apt-get install redis-server)" >&2
    exit 1
fi

export SCALERL_REQUIRE_REDIS=1 OMP_WAIT_POLICY=passive
cargo test --locked -p scalerl-worker --test remote --test ranks --test channel
cargo test --locked -p scalerl-engine --lib fleet
# One after the other: each starts up to five processes.
cargo test --locked -p scalerl --test cluster -- --test-threads 1
