#!/usr/bin/env python3
"""What scripts/dist/install.sh and scripts/dist/build.py do with files, on an archive of shell scripts; run by `make test`.

The programs themselves, installed and used: scripts/test/dist.sh.
"""

import hashlib
import importlib.util
import os
import pathlib
import subprocess
import tarfile
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[1] / "dist"


class Installer(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.prefix = self.root / "prefix"
        self.program = self.prefix / "bin/scalerl"

    def archive(self, version):
        inside = self.root / version / "scalerl"
        (inside / "bin").mkdir(parents=True)
        (inside / "bin/scalerl").write_text(f"#!/bin/sh\necho scalerl {version}\n")
        (inside / "bin/scalerl").chmod(0o755)
        path = self.root / f"scalerl-{version}-linux-x86_64.tar.gz"
        with tarfile.open(path, "w:gz") as tar:
            tar.add(inside, "scalerl")
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        path.with_name(f"{path.name}.sha256").write_text(f"{digest}  {path.name}\n")
        return path

    def install(self, version, **more):
        command = ["sh", str(SCRIPTS / "install.sh"), "--prefix", str(self.prefix), str(self.archive(version))]
        return subprocess.run(command, env={**os.environ, **more}, capture_output=True, text=True, timeout=60)

    def installed(self):
        return subprocess.run([self.program], capture_output=True, text=True, check=True).stdout.strip()

    def interrupted(self, after):
        """A PATH whose `mv` ends the installer by a signal once it has moved so often."""
        tools = self.root / f"tools-{after}"
        tools.mkdir()
        count = tools / "moved"
        (tools / "mv").write_text(
            f'#!/bin/sh\nPATH=/usr/bin:/bin\nmv "$@" || exit\necho >>{count}\n'
            f'[ "$(wc -l <{count})" -ne {after} ] || kill -TERM "$PPID"\n'
        )
        (tools / "mv").chmod(0o755)
        return f"{tools}:{os.environ['PATH']}"

    def test_a_signal_between_the_two_moves_leaves_the_older_installation(self):
        self.assertEqual(self.install("1").returncode, 0)
        ended = self.install("2", PATH=self.interrupted(after=1))
        self.assertEqual(ended.returncode, 130, ended.stderr)
        self.assertEqual(self.installed(), "scalerl 1")
        self.assertEqual([path.name for path in (self.prefix / "lib").iterdir()], ["scalerl"])

    def test_a_signal_after_both_moves_leaves_the_newer_installation_whole(self):
        self.assertEqual(self.install("1").returncode, 0)
        ended = self.install("2", PATH=self.interrupted(after=2))
        self.assertEqual(ended.returncode, 130, ended.stderr)
        self.assertEqual(self.installed(), "scalerl 2")
        self.assertEqual([path.name for path in (self.prefix / "lib").iterdir()], ["scalerl"])

    def test_an_update_replaces_and_leaves_nothing_else(self):
        self.install("1")
        self.assertEqual(self.install("2").returncode, 0)
        self.assertEqual(self.installed(), "scalerl 2")
        self.assertEqual([path.name for path in (self.prefix / "lib").iterdir()], ["scalerl"])


class Build(unittest.TestCase):
    def test_what_an_earlier_version_left_is_cleared_and_nothing_else(self):
        found = importlib.util.spec_from_file_location("build", SCRIPTS / "build.py")
        build = importlib.util.module_from_spec(found)
        found.loader.exec_module(build)
        with tempfile.TemporaryDirectory() as folder:
            old = ["scalerl-0.0.9-linux-x86_64.tar.gz", "scalerl-0.0.9-linux-x86_64.tar.gz.sha256",
                   "scalerl_train-0.0.9-py3-none-manylinux_2_31_x86_64.whl"]
            for name in [*old, "notes.txt"]:
                (pathlib.Path(folder) / name).touch()
            build.clear(pathlib.Path(folder))
            self.assertEqual(os.listdir(folder), ["notes.txt"])


if __name__ == "__main__":
    unittest.main()
