#!/usr/bin/env python3
"""Finds or fetches libtorch 2.11, and NVIDIA's libraries where a driver is present.

Looks in this order and stops at the first hit:
  1. $LIBTORCH_DIR, a folder that holds `torch/` (an unpacked wheel or a site-packages folder)
  2. the torch of $VIRTUAL_ENV, then of `python3`, when it is 2.11
  3. the cache folder ${XDG_CACHE_HOME:-~/.cache}/scalerl/libtorch-2.11.0
  4. the wheels on PyPI, unpacked into that cache folder: 545 MB to download, 1.1 GB on disk

On a machine with an NVIDIA driver (or with --cuda) a hit must be able to use it: what torch's own
metadata asks NVIDIA for (cuBLAS, cuDNN, NCCL, NVRTC, ...) has to lie beside it. Where that is
missing from the cache it is fetched there, too: 2 GB more to download, 2.6 GB on disk. torch looks
for those libraries beside itself, so nobody sets LD_LIBRARY_PATH.

pip downloads and checks every wheel's hash against the index. One set-up works on the cache at a
time, the others wait; the cache appears whole, and a set-up that was killed leaves a temporary
folder that the next one removes.

`make setup` runs this file: it also points the tree's symlink `.libtorch` (ignored by git) at the
folder; `.cargo/config.toml` builds against `.libtorch/torch`. The installed program carries the
text of this file: `scalerl setup` runs it, and its launcher asks it with --find. Running it again
costs milliseconds. Only the standard library is used.
"""

import argparse
import ctypes
import errno
import fcntl
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

VERSION = "2.11.0"
TORCH = f"torch=={VERSION}"
# libtorch_cpu.so itself is linked against the CUDA runtime and CUPTI of its build.
WHEELS = [TORCH, "nvidia-cuda-runtime==13.0.96", "nvidia-cuda-cupti==13.0.85"]
# What neither compiling nor running needs, and what makes the wheel large.
SKIPPED = ("torch/test/", "torch/bin/", "functorch/")
# Pythons that torch 2.11 has wheels for. libtorch is the same in all of them.
PYTHONS = ((3, 10), (3, 14))
# The driver that CUDA 13 needs: https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/
DRIVER = 580
GIB = 1 << 30
LOCK_DEADLINE_S = 3600


class Missing(Exception):
    """What is not there and could not be had, in words for whoever runs this."""


def say(text: str) -> None:
    print(f"libtorch: {text}", file=sys.stderr, flush=True)


def version_of(folder: pathlib.Path) -> "str | None":
    """The version of the torch in `folder/torch`, without its +cu130 suffix; None when there is none."""
    version = folder / "torch" / "version.py"
    if not version.is_file() or not (folder / "torch" / "lib" / "libtorch_cpu.so").is_file():
        return None
    for line in version.read_text().splitlines():
        if line.startswith("__version__"):
            return line.split("=")[1].strip().strip("'\"").split("+")[0]
    return None


# --- the driver -----------------------------------------------------------------------------------


def driver(root: pathlib.Path) -> "str | None":
    """The NVIDIA driver's version, "unknown" where only its library is seen, None without one."""
    try:
        words = (root / "proc/driver/nvidia/version").read_text()
        found = re.search(r"Kernel Module\D*?\s(\d+[\d.]*)", words)
        return found[1] if found else "unknown"
    except OSError:
        pass
    folders = ["usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/lib", "usr/lib/wsl/lib", "usr/local/nvidia/lib64"]
    if any((root / folder / "libcuda.so.1").exists() for folder in folders):
        return "unknown"
    if root == pathlib.Path("/"):
        try:
            ctypes.CDLL("libcuda.so.1")
            return "unknown"
        except OSError:
            pass
    return None


# --- what lies beside a torch -----------------------------------------------------------------------


def requirements(folder: pathlib.Path, project: str) -> "list[str]":
    """What an unpacked wheel's metadata asks for, as its lines say it."""
    for metadata in folder.glob(f"{project.replace('-', '_')}-*.dist-info/METADATA"):
        lines = metadata.read_text(errors="replace").splitlines()
        return [line.split(":", 1)[1].strip() for line in lines if line.startswith("Requires-Dist:")]
    return []


def nvidia_requirements(folder: pathlib.Path) -> "list[str]":
    """Of what torch asks for: what comes from NVIDIA. Not triton, not the Python side of CUDA."""
    wanted = [line.split(";")[0].strip() for line in requirements(folder, "torch")]
    return [line for line in wanted if re.match(r"(nvidia-|cuda-toolkit\b)", line)]


def lacking(folder: pathlib.Path) -> "list[str]":
    """What keeps the torch of a folder from using a GPU: packages that it asks for and that are not there."""
    if not (folder / "torch" / "lib" / "libtorch_cuda.so").exists():
        return ["libtorch_cuda.so (this torch was built for CPUs only)"]
    names = []
    for line in nvidia_requirements(folder):
        name, extras = re.match(r"([\w.-]+)(?:\[([^]]*)\])?", line).groups()
        names.append(name)
        # A toolkit is a list of names, one extra each.
        for extra in (extras or "").split(","):
            mark = re.compile(rf"extra\s*==\s*['\"]{re.escape(extra.strip())}['\"]")
            inner = [line for line in requirements(folder, name) if mark.search(line)]
            names += [re.match(r"[\w.-]+", line)[0] for line in inner]
    here = {re.sub(r"[-_.]+", "-", path.name.split("-")[0]).lower() for path in folder.glob("*.dist-info")}
    return sorted({name for name in names if re.sub(r"[-_.]+", "-", name).lower() not in here})


def installed() -> "list[pathlib.Path]":
    """The site-packages folders of installed torches of the right version."""
    pythons = []
    if os.environ.get("VIRTUAL_ENV"):
        pythons.append(os.path.join(os.environ["VIRTUAL_ENV"], "bin", "python3"))
    pythons.append("python3")
    find = "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
    folders = []
    for python in pythons:
        try:
            # -P, where a Python has it, would also keep the present folder out; an older one has not.
            asked = subprocess.run([python, "-c", find], capture_output=True, text=True, timeout=60, cwd="/")
        except (OSError, subprocess.TimeoutExpired):
            continue
        found = asked.stdout.strip()
        if not found:
            continue
        folder = pathlib.Path(found).parent
        version = version_of(folder)
        if version == VERSION:
            folders.append(folder)
        else:
            say(f"{python} has torch {version or 'of an unknown version'}; torch {VERSION} is needed, so it is not used")
    return folders


# --- fetching -------------------------------------------------------------------------------------


def pip_download(target: pathlib.Path, wanted: "list[str]", alone: bool) -> None:
    """Wheels by the machine's own pip, which checks their hashes; `alone` leaves out what they ask for."""
    pip = [sys.executable, "-m", "pip"]
    if subprocess.run([*pip, "--version"], capture_output=True).returncode != 0:
        raise Missing(f"{sys.executable} has no pip, which downloads the wheels (on Debian: apt-get install python3-pip)")
    options = ["--disable-pip-version-check", "--only-binary=:all:", "--retries", "2", "--dest", str(target)]
    options += ["--no-deps"] if alone else []
    options += [] if sys.stderr.isatty() else ["--quiet"]
    lowest, highest = PYTHONS
    if not lowest <= sys.version_info[:2] <= highest:
        options += ["--python-version", "3.12", "--implementation", "cp", "--abi", "cp312", "--abi", "none"]
        options += ["--platform", "manylinux_2_28_x86_64", "--platform", "manylinux2014_x86_64", "--platform", "any"]
    # Standard output is for --find alone.
    if subprocess.run([*pip, "download", *options, *wanted], stdout=sys.stderr).returncode != 0:
        raise Missing(
            f"pip could not download {', '.join(wanted)}; its words are above. Without network, install "
            f"torch {VERSION} elsewhere and set LIBTORCH_DIR to the folder that holds `torch/`"
        )


def unpack(wheels: pathlib.Path, unpacked: pathlib.Path) -> None:
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if not name.startswith(SKIPPED)]
            archive.extractall(unpacked, names)
        wheel.unlink()


def need_room(folder: pathlib.Path, gib: float, what: str) -> None:
    free = shutil.disk_usage(folder).free / GIB
    if free < gib:
        raise Missing(f"{what} takes {gib} GiB while it is unpacked; {folder} has {free:.1f} GiB free")


def fetch_torch(cache: pathlib.Path, scratch: pathlib.Path) -> None:
    """The wheels that CPU work needs; the cache appears whole."""
    say(f"downloading {', '.join(WHEELS)} (about 545 MB, once) into {cache}")
    need_room(scratch, 2, "libtorch")
    pip_download(scratch / "wheels", WHEELS, alone=True)
    unpack(scratch / "wheels", scratch / "unpacked")
    if version_of(scratch / "unpacked") != VERSION:
        raise Missing(f"the downloaded wheel holds torch {version_of(scratch / 'unpacked')}, not {VERSION}")
    if cache.exists():
        shutil.rmtree(cache)
    (scratch / "unpacked").rename(cache)


def fetch_nvidia(cache: pathlib.Path, scratch: pathlib.Path) -> None:
    """What torch's metadata asks NVIDIA for, moved beside torch file by file: a process that uses
    the folder keeps what it has open. The metadata goes last, so what has it is whole."""
    wanted = nvidia_requirements(cache)
    say(f"downloading NVIDIA's libraries (about 2 GB, once): {', '.join(wanted)}")
    need_room(scratch, 7, "CUDA")
    pip_download(scratch / "nvidia-wheels", wanted, alone=False)
    fresh = scratch / "nvidia-unpacked"
    unpack(scratch / "nvidia-wheels", fresh)
    for folder in sorted(fresh.iterdir(), key=lambda folder: folder.name.endswith(".dist-info")):
        for source in sorted(path for path in folder.rglob("*") if path.is_file()):
            target = cache / source.relative_to(fresh)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(source, target)
    still = lacking(cache)
    if still:
        raise Missing(f"after the download {cache} still lacks {', '.join(still)}")


def fetch(cache: pathlib.Path, wants_cuda: bool) -> None:
    """Fills the cache with what it lacks, one set-up at a time."""
    cache.parent.mkdir(parents=True, exist_ok=True)
    with open(cache.parent / "setup.lock", "w") as lock:
        started = time.monotonic()
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() - started > LOCK_DEADLINE_S:
                    raise Missing(f"another set-up has held {lock.name} for an hour") from None
                if time.monotonic() - started < 1:
                    say("another set-up is at work on the cache; waiting for it")
                time.sleep(1)
        # The lock is ours: what lies there was left by one that was killed.
        for left in cache.parent.glob(".unpacking-*"):
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=cache.parent, prefix=".unpacking-") as scratch:
            if version_of(cache) != VERSION:
                fetch_torch(cache, pathlib.Path(scratch))
            if wants_cuda and lacking(cache):
                fetch_nvidia(cache, pathlib.Path(scratch))


# --- choosing -------------------------------------------------------------------------------------


def stated() -> "pathlib.Path | None":
    """The folder that the user has named, which must be the right one."""
    named = os.environ.get("LIBTORCH_DIR")
    if not named:
        return None
    version = version_of(pathlib.Path(named))
    if version != VERSION:
        raise Missing(
            f"LIBTORCH_DIR={named} holds torch {version or '(none)'}; {VERSION} is needed exactly. "
            "Unset it to let one be found or downloaded"
        )
    return pathlib.Path(named).resolve()


def cache_folder() -> pathlib.Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(base) / "scalerl" / f"libtorch-{VERSION}"


def find(wants_cuda: bool) -> "tuple[pathlib.Path | None, list[str]]":
    """The first torch that has what is wanted, or else the first at all; and what it lacks."""
    named = stated()
    cache = cache_folder()
    found = [named] if named else [*installed(), *([cache] if version_of(cache) == VERSION else [])]
    lacks = [lacking(folder) if wants_cuda else [] for folder in found]
    for folder, missing in zip(found, lacks):
        if not missing:
            return folder, []
    return (found[0], lacks[0]) if found else (None, [])


def choose(wants_cuda: bool, is_asked: bool) -> pathlib.Path:
    """A torch that can do what is wanted, fetched if need be. A GPU that nobody asked for by name
    may stay unused where its libraries cannot be had: building and CPU work go on."""
    folder, missing = find(wants_cuda)
    if folder and not missing:
        return folder
    if folder and os.environ.get("LIBTORCH_DIR"):
        say(f"LIBTORCH_DIR={folder} cannot use a GPU, it lacks {', '.join(missing)}; unset it to have them fetched")
        return folder
    try:
        fetch(cache_folder(), wants_cuda)
    except (Missing, OSError) as problem:
        if is_asked or not folder:
            raise
        say(f"the GPU stays unused: {in_words(problem) if isinstance(problem, OSError) else problem}")
        return folder
    return cache_folder()


def point(link: pathlib.Path, folder: pathlib.Path) -> None:
    if link.is_symlink() and link.resolve() == folder.resolve():
        return
    fresh = link.with_name(f"{link.name}.{os.getpid()}")
    fresh.symlink_to(folder)
    fresh.replace(link)
    say(f"torch {VERSION} in {folder}")


def ability(asked: argparse.Namespace, found: "str | None", folder: pathlib.Path) -> str:
    if asked.cpu:
        return "for the CPU, as asked"
    if not asked.cuda and not found:
        return "for the CPU: no NVIDIA driver was found"
    return "for the CPU: see above" if lacking(folder) else "for CPU and GPU"


def in_words(problem: OSError) -> str:
    """A folder that cannot be written, a full disk: which, and what to do."""
    named = problem.filename2 or problem.filename or "the cache"
    name, hint = problem.strerror or str(problem), "the cache can be elsewhere: set XDG_CACHE_HOME"
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = f"make room there; {hint}"
    return f"{named}: {name}; {hint}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="libtorch.py", description="Finds or fetches libtorch.")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--cuda", action="store_true", help="with NVIDIA's libraries, driver or not")
    kind.add_argument("--cpu", action="store_true", help="without them")
    parser.add_argument("--find", action="store_true", help="print the folder, fetch nothing; 2 when there is none")
    parser.add_argument("--link", type=pathlib.Path, help="a symlink to point at the folder")
    parser.add_argument("--driver-root", type=pathlib.Path, default=pathlib.Path("/"), help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    asked = arguments()
    found = None if asked.cpu else driver(asked.driver_root)
    wants_cuda = asked.cuda or found is not None
    if found and found.split(".")[0].isdigit() and int(found.split(".")[0]) < DRIVER and not asked.find:
        say(f"the NVIDIA driver is {found}; torch {VERSION} is built for CUDA 13, which needs {DRIVER} or newer")
    link = asked.link
    if link is None and "__file__" in globals() and not asked.find:
        link = pathlib.Path(__file__).resolve().parents[2] / ".libtorch"
    try:
        if asked.find:
            folder, missing = find(wants_cuda)
            if folder is None:
                return 2
            if missing:
                say(f"a GPU cannot be used, {', '.join(missing)} is missing beside torch: scalerl setup")
            print(folder)
            return 0
        # A link that works is kept: choosing anew could silently switch builds between two torches.
        is_kept = link and version_of(link) == VERSION and not (wants_cuda and lacking(link))
        if is_kept and not os.environ.get("LIBTORCH_DIR"):
            return 0
        folder = choose(wants_cuda, is_asked=asked.cuda)
        if link:
            point(link, folder)
        else:
            say(f"torch {VERSION} in {folder} ({ability(asked, found, folder)})")
    except Missing as problem:
        say(f"error: {problem}")
        return 1
    except OSError as problem:
        say(f"error: {in_words(problem)}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
