"""The command ``scalerl``, as the wheel carries it: forecasting, without training."""

from __future__ import annotations

import signal
import sys

from scalerl import _native


def main() -> int:
    # Python's handler waits for the interpreter, which the native code does not come back to.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _native.command(["scalerl", *sys.argv[1:]])
