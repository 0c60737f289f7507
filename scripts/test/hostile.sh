#!/usr/bin/env bash
# Everything that was attacked and must hold: files, models, recipes, answers, programs, messages, disks.
# These tests are part of `make test`; here they run by themselves and are counted. Messages of a cluster
# need redis-server; without it they are named as not tested (`make test-cluster` installs it).
set -uo pipefail
cd "$(dirname "$0")/../.."
export SCALERL_REQUIRE_SANDBOX=1

total=0
failed=()
run() {
    local what=$1
    shift
    # With the workspace's features, so that nothing is built again after `make test`.
    local log
    log=$(mktemp)
    echo "== $what"
    if ! cargo test --locked --quiet --workspace "$@" 2>&1 | tee "$log"; then
        failed+=("$what")
    fi
    local passed
    for passed in $(sed -nE 's/^test result: .* ([0-9]+) passed;.*/\1/p' "$log"); do
        total=$((total + passed))
    done
    rm -f "$log"
}

run "logs, recipes, answers, models, completions, the command line" --test hostile
run "data sets" --test hostile_data
run "programs in the sandbox" --test hostile_sandbox
run "run folders and disks" --test train hostile
if command -v redis-server >/dev/null; then
    export SCALERL_REQUIRE_REDIS=1
    run "messages of a cluster" --test remote hostile
    run "a run among strangers" --test cluster hostile
else
    echo "NOT tested, for want of redis-server: messages of a cluster"
fi

echo
if [ ${#failed[@]} -gt 0 ]; then
    printf 'failed: %s\n' "${failed[@]}"
    exit 1
fi
echo "$total hostile tests passed"
