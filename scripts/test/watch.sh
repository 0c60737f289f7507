#!/usr/bin/env bash
# The live page in a real browser: watch.sh SCALERL SIMULATE. Installs chromium (Debian, as root) and
# playwright-core into out/watch-browser where they are missing.
#
# A recorded run is replayed line by line as if it were alive, killed, resumed and stopped under the
# page; 200 runs and a journal of 1 GB (SCALERL_WATCH_MB) are opened. Screenshots are left in
# out/watch-browser/shots.
set -euo pipefail
scalerl=$1 simulate=$2
here=$(dirname "$0") out=out/watch-browser
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$browser" ]; then
    apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core
    browser=$(command -v chromium)
fi
mkdir -p "$out/shots"
[ -d "$out/node_modules/playwright-core" ] || npm install --silent --no-save --prefix "$out" playwright-core@1.61
rm -rf "$out/recorded" "$out/runs" "$out/many"
mkdir -p "$out/runs"
"$simulate" "$out/recorded" budget.steps=200 > /dev/null
"$simulate" "$out/runs/other" budget.steps=150 seed=7 > /dev/null
python3 "$here/watch_long.py" "$out/recorded" "$out/many" 200 "${SCALERL_WATCH_MB:-1000}"
SCALERL=$scalerl BROWSER=$browser OUT=$out HERE=$here node "$here/watch.mjs"
rm -rf "$out/many"
