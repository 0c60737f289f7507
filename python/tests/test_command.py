"""The command that the wheel carries."""

from __future__ import annotations

import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import scalerl
from conftest import CURVE, command


def test_the_script_is_installed_and_says_its_version() -> None:
    script = Path(sysconfig.get_path("scripts")) / "scalerl"
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"scalerl {scalerl.__version__}"


def test_it_prints_what_it_found_to_the_last_line() -> None:
    done = command("fit", CURVE, "--until", 8000, "--at", 16000)
    assert done.returncode == 0, done.stderr
    assert "0.610 [0.584, 0.669]" in done.stdout
    assert done.stdout.endswith("\n")


def test_wrong_use_is_exit_code_2_with_a_hint() -> None:
    done = command("fit", "nowhere.csv")
    assert done.returncode == 2
    assert "nowhere.csv: cannot be read" in done.stderr and "hint: check the path" in done.stderr
    assert command("fit").returncode == 2
    assert command("frobnicate").returncode == 2


def test_a_report_names_the_command_and_not_the_interpreter(tmp_path: Path) -> None:
    page = tmp_path / "fit.html"
    done = command("fit", CURVE, "--report", page)
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert f"scalerl fit {CURVE}" in text
    assert "-m scalerl" not in text and sys.executable not in text


def test_control_c_ends_it_at_once() -> None:
    """It waits for standard input, inside native code."""
    words = [sys.executable, "-m", "scalerl", "fit", "-"]
    # What a shell starts in the background ignores interrupts, and so does what that starts.
    running = subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert running.stdin is not None
    running.stdin.write(b"step,accuracy\n")
    running.stdin.flush()
    try:
        # Until its own handler is set, Python's ends it too; either way it must not outlive this.
        while b"SigCgt" in _status(running.pid) and _catches_interrupts(running.pid):
            pass
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=10) == -signal.SIGINT
    finally:
        running.kill()
        running.communicate()


def _status(pid: int) -> bytes:
    return Path(f"/proc/{pid}/status").read_bytes() if sys.platform == "linux" else b""


def _catches_interrupts(pid: int) -> bool:
    """Whether the handler at start is still Python's: SIG_DFL is not caught."""
    line = next(line for line in _status(pid).splitlines() if line.startswith(b"SigCgt"))
    is_caught = bool(int(line.split()[1], 16) & (1 << (signal.SIGINT - 1)))
    return is_caught
