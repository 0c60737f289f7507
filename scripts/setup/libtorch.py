#!/usr/bin/env python3
"""Makes libtorch 2.11 available to cargo, once per machine.

Looks for it in this order and stops at the first hit:
  1. $LIBTORCH_DIR, a folder that holds `torch/` (an unpacked wheel or a site-packages folder)
  2. the torch of $VIRTUAL_ENV, then of `python3`, when it is 2.11
  3. the cache folder ${XDG_CACHE_HOME:-~/.cache}/scalerl/libtorch-2.11.0
  4. the wheels on PyPI, unpacked into that cache folder (about 545 MB to download)

and points the symlink `.libtorch` (ignored by git) at it; `.cargo/config.toml` builds against
`.libtorch/torch`. Running it again costs milliseconds. Only the standard library is used.

Not here: GPU libraries. The wheel contains torch's own CUDA code, but NVIDIA's libraries (cuBLAS,
cuDNN, NCCL, NVRTC) come with `pip install torch==2.11.0`; without them the CPU is used.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

VERSION = "2.11.0"
# libtorch_cpu.so itself is linked against the CUDA runtime and CUPTI of its build.
WHEELS = [f"torch=={VERSION}", "nvidia-cuda-runtime==13.0.96", "nvidia-cuda-cupti==13.0.85"]
# What neither compiling nor running on the CPU needs, and what makes the wheel large.
SKIPPED = ("torch/test/", "torch/bin/", "functorch/")

TREE = pathlib.Path(__file__).resolve().parents[2]
LINK = TREE / ".libtorch"


def say(text: str) -> None:
    print(f"libtorch: {text}", file=sys.stderr)


def version_of(folder: pathlib.Path) -> str | None:
    """The version of the torch in `folder/torch`, without its +cu130 suffix; None when there is none."""
    version = folder / "torch" / "version.py"
    if not version.is_file() or not (folder / "torch" / "lib" / "libtorch_cpu.so").is_file():
        return None
    for line in version.read_text().splitlines():
        if line.startswith("__version__"):
            return line.split("=")[1].strip().strip("'\"").split("+")[0]
    return None


def installed() -> pathlib.Path | None:
    """The site-packages folder of an installed torch of the right version."""
    pythons = []
    if os.environ.get("VIRTUAL_ENV"):
        pythons.append(os.path.join(os.environ["VIRTUAL_ENV"], "bin", "python3"))
    pythons.append("python3")
    find = "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
    for python in pythons:
        try:
            found = subprocess.run([python, "-c", find], capture_output=True, text=True).stdout.strip()
        except OSError:
            continue
        if not found:
            continue
        folder = pathlib.Path(found).parent
        version = version_of(folder)
        if version == VERSION:
            return folder
        say(f"{python} has torch {version or 'of an unknown version'}; torch {VERSION} is needed, so it is not used")
    return None


def download(cache: pathlib.Path) -> None:
    """Fetches the wheels and unpacks them beside the cache folder, which then appears whole."""
    cache.parent.mkdir(parents=True, exist_ok=True)
    say(f"downloading {', '.join(WHEELS)} (about 545 MB, once) into {cache}")
    with tempfile.TemporaryDirectory(dir=cache.parent) as temporary:
        wheels = pathlib.Path(temporary) / "wheels"
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        if subprocess.run([*pip, "--dest", str(wheels), *WHEELS]).returncode != 0:
            sys.exit(
                f"libtorch: pip could not download {', '.join(WHEELS)}. Without network, install torch "
                f"{VERSION} elsewhere and set LIBTORCH_DIR to the folder that holds `torch/`."
            )
        unpacked = pathlib.Path(temporary) / "unpacked"
        for wheel in sorted(wheels.glob("*.whl")):
            with zipfile.ZipFile(wheel) as archive:
                names = [name for name in archive.namelist() if not name.startswith(SKIPPED)]
                archive.extractall(unpacked, names)
        if version_of(unpacked) != VERSION:
            sys.exit(f"libtorch: the downloaded wheel holds torch {version_of(unpacked)}, not {VERSION}")
        if cache.exists():
            shutil.rmtree(cache)
        unpacked.rename(cache)


def choose() -> pathlib.Path:
    stated = os.environ.get("LIBTORCH_DIR")
    if stated:
        version = version_of(pathlib.Path(stated))
        if version != VERSION:
            sys.exit(
                f"libtorch: LIBTORCH_DIR={stated} holds torch {version or '(none)'}; tch needs {VERSION} exactly. "
                "Unset it to let this script find or download one."
            )
        return pathlib.Path(stated).resolve()
    found = installed()
    if found:
        return found
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    cache = pathlib.Path(base) / "scalerl" / f"libtorch-{VERSION}"
    if version_of(cache) != VERSION:
        download(cache)
    return cache


def main() -> None:
    # A link that works is kept: choosing anew could silently switch builds between two torches.
    if not os.environ.get("LIBTORCH_DIR") and version_of(LINK) == VERSION:
        return
    folder = choose()
    if LINK.is_symlink() or LINK.exists():
        LINK.unlink()
    LINK.symlink_to(folder)
    say(f"torch {VERSION} in {folder}")


if __name__ == "__main__":
    main()
