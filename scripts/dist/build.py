#!/usr/bin/env python3
"""Builds dist/: an archive that runs from any folder, its installer, and a wheel; called by `make dist`.

  dist/scalerl-VERSION-linux-x86_64.tar.gz   bin/scalerl (small, no libtorch), libexec/scalerl-train (whole),
                                             share/ (manual, completions), install.sh, licences
  dist/….tar.gz.sha256                       what install.sh checks
  dist/install.sh                            the installer by itself
  dist/scalerl_train-VERSION-….whl           the same two programs; asks pip for torch 2.11.0

Two builds of one package: without libtorch, and whole. SCALERL_RELOCATABLE leaves the path of the
build machine's libtorch out of the whole one. libtorch is in neither file: torch comes by pip, or
by `scalerl setup`. The same tree gives the same archive, byte for byte, as long as cargo gives the
same programs: names sorted, owners and times fixed.
"""

import base64
import gzip
import hashlib
import io
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import zipfile

TREE = pathlib.Path(__file__).resolve().parents[2]
DIST = TREE / "dist"
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", TREE / "target"))
TORCH = "torch==2.11.0"
# A time for every file: 1980 is the first year that a wheel can name.
EPOCH = 315532800


def version() -> str:
    return re.search(r'\[workspace\.package\]\nversion = "([^"]+)"', (TREE / "Cargo.toml").read_text())[1]


def cargo(features: "list[str]", folder: pathlib.Path) -> pathlib.Path:
    """Builds the program and puts a copy aside: the next build writes to the same place."""
    command = ["cargo", "build", "--release", "--locked", "--package", "scalerl", *features]
    print("$ " + " ".join(command), flush=True)
    subprocess.run(command, cwd=TREE, env={**os.environ, "SCALERL_RELOCATABLE": "1"}, check=True)
    program = TARGET / "release" / "scalerl"
    check_relocatable(program)
    return folder.joinpath("program").write_bytes(program.read_bytes()) and folder / "program"


def dynamic(program: pathlib.Path) -> str:
    return subprocess.run(["readelf", "--wide", "--dynamic", str(program)], capture_output=True, text=True, check=True).stdout


def check_relocatable(program: pathlib.Path) -> None:
    found = re.search(r"\((RPATH|RUNPATH)\).*", dynamic(program))
    if found:
        sys.exit(f"error: {program} names a folder of this machine: {found[0]}")


def glibc_floor(programs: "list[pathlib.Path]") -> "tuple[int, int]":
    """The newest version of glibc's symbols that the programs use: older systems cannot start them."""
    newest = (2, 17)
    for program in programs:
        listing = subprocess.run(["readelf", "--wide", "--version-info", str(program)], capture_output=True, text=True).stdout
        for major, minor in re.findall(r"GLIBC_(\d+)\.(\d+)", listing):
            newest = max(newest, (int(major), int(minor)))
    return newest


def documents(small: pathlib.Path, folder: pathlib.Path) -> "dict[str, bytes]":
    """Completions and manual pages, as the program writes them."""
    files = {}
    places = {"bash": "bash-completion/completions/scalerl", "zsh": "zsh/site-functions/_scalerl",
              "fish": "fish/vendor_completions.d/scalerl.fish"}
    for shell, place in places.items():
        files[f"share/{place}"] = subprocess.run([small, "completions", shell], capture_output=True, check=True).stdout
    subprocess.run([small, "man", "--out", folder / "man"], check=True)
    for page in (folder / "man").iterdir():
        files[f"share/man/man1/{page.name}"] = page.read_bytes()
    return files


def archive(path: pathlib.Path, files: "dict[str, bytes]") -> None:
    raw = io.BytesIO()
    top = path.name.removesuffix(".tar.gz")
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(files):
            entry = tarfile.TarInfo(f"{top}/{name}")
            entry.size, entry.mtime = len(files[name]), EPOCH
            entry.mode = 0o755 if is_program(name) else 0o644
            tar.addfile(entry, io.BytesIO(files[name]))
    with open(path, "wb") as out, gzip.GzipFile(filename="", fileobj=out, mode="wb", mtime=EPOCH) as packed:
        packed.write(raw.getvalue())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    path.with_name(path.name + ".sha256").write_text(f"{digest}  {path.name}\n")


def is_program(name: str) -> bool:
    return "/libexec/" in f"/{name}" or "/bin/" in f"/{name}" or name.endswith("install.sh")


def wheel(path: pathlib.Path, files: "dict[str, bytes]", tag: str) -> None:
    """Written by hand: two programs, a page of Python, and the metadata of a wheel."""
    info = f"scalerl_train-{version()}.dist-info"
    metadata = (
        f"Metadata-Version: 2.1\nName: scalerl-train\nVersion: {version()}\n"
        "Summary: RL post-training for language models whose outcome can be forecast: the whole command\n"
        f"License: MIT OR Apache-2.0\nRequires-Python: >=3.10\nRequires-Dist: {TORCH}\n"
        "Description-Content-Type: text/markdown\n\n" + (TREE / "README.md").read_text()
    )
    scripts = "[console_scripts]\nscalerl = scalerl_train:main\nscalerl-train = scalerl_train:main\n"
    files = {
        **files,
        f"{info}/METADATA": metadata.encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: scalerl\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
        f"{info}/entry_points.txt": scripts.encode(),
    }
    record = ""
    for name, data in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if is_program(name) else 0o100644) << 16
            out.writestr(entry, data)


def clear(folder: pathlib.Path) -> None:
    """Of an earlier version: two archives side by side are one too many to hand on."""
    for pattern in ("scalerl-*-linux-x86_64.tar.gz*", "scalerl_train-*.whl"):
        for path in folder.glob(pattern):
            path.unlink()


def main() -> None:
    work = TARGET / "dist"
    for name in ("small", "whole"):
        (work / name).mkdir(parents=True, exist_ok=True)
    small = cargo(["--no-default-features", "--features", "grade,track,watch"], work / "small")
    whole = cargo([], work / "whole")
    for program in (small, whole):
        program.chmod(0o755)
    major, minor = glibc_floor([small, whole])
    programs = {"bin/scalerl": small.read_bytes(), "libexec/scalerl-train": whole.read_bytes()}
    licences = {name: (TREE / name).read_bytes() for name in ("LICENSE-APACHE", "LICENSE-MIT")}
    installer = (TREE / "scripts/dist/install.sh").read_bytes()
    DIST.mkdir(exist_ok=True)
    clear(DIST)
    packed = DIST / f"scalerl-{version()}-linux-x86_64.tar.gz"
    guide = {"INSTALL.md": (TREE / "docs/install.md").read_bytes()}
    archive(packed, {**programs, **documents(small, work), **licences, **guide, "install.sh": installer})
    (DIST / "install.sh").write_bytes(installer)
    (DIST / "install.sh").chmod(0o755)
    tag = f"py3-none-manylinux_{major}_{minor}_x86_64"
    module = (TREE / "scripts/dist/scalerl_train.py").read_bytes()
    inside = {f"scalerl_train/{name}": data for name, data in {**programs, **licences}.items()}
    wheeled = DIST / f"scalerl_train-{version()}-{tag}.whl"
    wheel(wheeled, {"scalerl_train/__init__.py": module, **inside}, tag)
    for path in (packed, wheeled):
        print(f"{path.relative_to(TREE)}  {path.stat().st_size / 1e6:.1f} MB")
    print(f"needs Linux on x86-64 with glibc {major}.{minor} or newer")


if __name__ == "__main__":
    main()
