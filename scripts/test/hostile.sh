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
    local log
    log=$(mktemp)
    echo "== $what"
    if ! cargo test --locked --quiet "$@" 2>&1 | tee "$log"; then
        failed+=("$what")
    fi
    local passed
    for passed in $(sed -nE 's/^test result: .* ([0-9]+) passed;.*/\1/p' "$log"); do
        total=$((total + passed))
    done
    rm -f "$log"
}

run "logs of other frameworks" -p scalerl-ingest --test hostile
run "recipes" -p scalerl-recipe --test hostile
run "data sets" -p scalerl-task --test hostile_data
run "answers that a policy might learn" -p scalerl-grader --test hostile
run "programs in the sandbox" -p scalerl-task --test hostile_sandbox
run "model folders, tokenizers, templates" -p scalerl-model --test hostile
run "completions from outside" -p scalerl-engine --test hostile
run "the command line" -p scalerl --test hostile
run "run folders and disks" -p scalerl --test train hostile
if command -v redis-server >/dev/null; then
    export SCALERL_REQUIRE_REDIS=1
    run "messages of a cluster" -p scalerl-worker --test remote hostile
    run "a run among strangers" -p scalerl --test cluster hostile
else
    echo "NOT tested, for want of redis-server: messages of a cluster"
fi

echo
if [ ${#failed[@]} -gt 0 ]; then
    printf 'failed: %s\n' "${failed[@]}"
    exit 1
fi
echo "$total hostile tests passed"
