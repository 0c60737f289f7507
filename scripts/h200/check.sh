#!/usr/bin/env bash
# The model crate's tests on this GPU: those that need CUDA run only where there is one.
#   TESTS   folder with the test binaries (default: every executable in target/debug/deps named golden*, cuda*)
source "$(dirname "$0")/environment.sh"
tests=${TESTS:-target/debug/deps}
for binary in "$tests"/cuda-*; do
  case $binary in *.d) continue ;; esac
  if [ -x "$binary" ]; then "$binary" --test-threads 1 --nocapture; fi
done
