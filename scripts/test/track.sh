#!/usr/bin/env bash
# Real trackers get a run that is killed in the middle, over a restart of their servers, and are compared
# with the journal value by value. Without arguments; needs the network once, for the packages.
set -euo pipefail
cd "$(dirname "$0")/../.."
test -x out/venv-track/bin/python || python3 -m venv out/venv-track
out/venv-track/bin/pip install --quiet wandb==0.31.0 tensorboard==2.21.0 mlflow==3.17.2 trackio==0.43.0
cargo build --locked --package scalerl --no-default-features --features track
cargo build --locked --package scalerl-engine --example simulate
cargo build --locked --package scalerl-track --example replay
out/venv-track/bin/python scripts/test/track.py
