#!/usr/bin/env python3
"""What scripts/setup/libtorch.py decides, on machines that are folders; run by `make test`.

pip is the real one, with a folder of tiny wheels in place of the index: no network, no driver.
"""

import hashlib
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "setup" / "libtorch.py"
CPU_TORCH = {"torch/version.py": "__version__ = '2.11.0+cu130'\n", "torch/lib/libtorch_cpu.so": ""}
CUDA_TORCH = {**CPU_TORCH, "torch/lib/libtorch_cuda.so": ""}
NEEDS = [
    'Requires-Dist: sympy>=1.13.3',
    'Requires-Dist: cuda-toolkit[cublas,nvrtc]==13.0.2; platform_system == "Linux"',
    'Requires-Dist: nvidia-nccl-cu13==2.28.9; platform_system == "Linux"',
    'Requires-Dist: triton==3.6.0; platform_system == "Linux"',
]
TOOLKIT = [
    "Provides-Extra: cublas", "Provides-Extra: nvrtc",
    "Requires-Dist: nvidia-cublas==13.1.0.3.*; (sys_platform == 'linux') and extra == 'cublas'",
    "Requires-Dist: nvidia-cuda-nvrtc==13.0.88.*; (sys_platform == 'linux') and extra == 'nvrtc'",
]


def wheel(folder: pathlib.Path, name: str, version: str, files: dict, metadata: list = ()) -> None:
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *metadata]
    path = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for inner, text in files.items():
            archive.writestr(inner, text)
        archive.writestr(f"{info}/METADATA", "\n".join(lines) + "\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


class Machine(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        self.wheels = self.root / "wheels"
        self.wheels.mkdir()
        wheel(self.wheels, "torch", "2.11.0", CUDA_TORCH, NEEDS)
        wheel(self.wheels, "cuda-toolkit", "13.0.2", {}, TOOLKIT)
        for name, version in [("cuda-runtime", "13.0.96"), ("cuda-cupti", "13.0.85"), ("cuda-nvrtc", "13.0.88"),
                              ("cublas", "13.1.0.3"), ("nccl-cu13", "2.28.9")]:
            wheel(self.wheels, f"nvidia-{name}", version, {f"nvidia/cu13/lib/lib{name}.so.13": name})
        self.cache = self.root / "cache/scalerl/libtorch-2.11.0"
        # The python3 that is asked for an installed torch: it has none, whatever this machine has.
        python = self.root / "bin/python3"
        python.parent.mkdir()
        python.write_text("#!/bin/sh\nexit 0\n")
        python.chmod(0o755)

    def environment(self, **more):
        path = f"{self.root / 'bin'}:{os.environ['PATH']}"
        return {"PATH": path, "HOME": str(self.root), "XDG_CACHE_HOME": str(self.root / "cache"), "PIP_NO_INDEX": "1",
                "PIP_FIND_LINKS": str(self.wheels), "PIP_CONFIG_FILE": os.devnull, **more}

    def run_script(self, *options, **more):
        command = [sys.executable, str(SCRIPT), "--link", str(self.root / "link"), "--driver-root", str(self.root), *options]
        return subprocess.run(command, env=self.environment(**more), capture_output=True, text=True, timeout=300)

    def driver(self, version="580.95.05"):
        path = self.root / "proc/driver/nvidia/version"
        path.parent.mkdir(parents=True)
        path.write_text(f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Tue Sep 23\n")

    def names(self):
        return {path.name.split("-")[0] for path in self.cache.glob("*.dist-info")}

    def test_without_a_driver_only_what_the_cpu_needs_is_fetched(self):
        done = self.run_script()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.names(), {"torch", "nvidia_cuda_runtime", "nvidia_cuda_cupti"})
        self.assertEqual((self.root / "link").resolve(), self.cache.resolve())

    def test_with_a_driver_what_torch_asks_nvidia_for_is_fetched_and_nothing_else(self):
        self.driver()
        done = self.run_script()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.names(), {"torch", "cuda_toolkit", "nvidia_cuda_runtime", "nvidia_cuda_cupti",
                                        "nvidia_cublas", "nvidia_cuda_nvrtc", "nvidia_nccl_cu13"})
        self.assertTrue((self.cache / "nvidia/cu13/lib/libcublas.so.13").exists())

    def test_a_driver_that_comes_later_adds_to_the_cache_and_keeps_the_torch(self):
        self.run_script()
        before = (self.cache / "torch/lib/libtorch_cpu.so").stat().st_ino
        self.driver()
        done = self.run_script()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("nvidia_cublas", self.names())
        self.assertEqual((self.cache / "torch/lib/libtorch_cpu.so").stat().st_ino, before)

    def test_cpu_on_a_machine_with_a_driver_leaves_cuda_out(self):
        self.driver()
        self.assertEqual(self.run_script("--cpu").returncode, 0)
        self.assertNotIn("nvidia_cublas", self.names())

    def test_a_driver_library_without_its_kernel_file_is_a_driver(self):
        library = self.root / "usr/lib/x86_64-linux-gnu/libcuda.so.1"
        library.parent.mkdir(parents=True)
        library.touch()
        self.assertEqual(self.run_script().returncode, 0)
        self.assertIn("nvidia_cublas", self.names())

    def test_an_old_driver_is_said(self):
        self.driver("535.104.05")
        self.assertIn("the NVIDIA driver is 535.104.05", self.run_script().stderr)

    def test_the_gpu_may_stay_unused_unless_it_was_asked_for(self):
        self.run_script()
        (self.wheels / "nvidia_nccl_cu13-2.28.9-py3-none-any.whl").unlink()
        self.driver()
        quiet = self.run_script()
        self.assertEqual(quiet.returncode, 0, quiet.stderr)
        self.assertIn("the GPU stays unused", quiet.stderr)
        self.assertNotIn("nvidia_cublas", self.names())
        self.assertEqual(self.run_script("--cuda").returncode, 1)

    def test_find_fetches_nothing_and_says_when_there_is_nothing(self):
        found = self.run_script("--find")
        self.assertEqual((found.returncode, found.stdout), (2, ""))
        self.assertFalse(self.cache.exists())
        self.run_script()
        found = self.run_script("--find")
        self.assertEqual((found.returncode, found.stdout), (0, f"{self.cache}\n"))

    def test_another_torch_in_libtorch_dir_is_refused(self):
        other = self.root / "other"
        (other / "torch/lib").mkdir(parents=True)
        (other / "torch/lib/libtorch_cpu.so").touch()
        (other / "torch/version.py").write_text("__version__ = '2.9.0'\n")
        done = self.run_script(LIBTORCH_DIR=str(other))
        self.assertEqual(done.returncode, 1)
        self.assertIn("holds torch 2.9.0", done.stderr)

    def test_a_wheel_that_is_not_what_the_index_says_is_not_used(self):
        page = self.root / "index/torch"
        page.mkdir(parents=True)
        name = "torch-2.11.0-py3-none-any.whl"
        wrong = hashlib.sha256(b"something else").hexdigest()
        link = f'<a href="file://{self.wheels}/{name}#sha256={wrong}">{name}</a>'
        (page / "index.html").write_text(f"<!DOCTYPE html><html><body>{link}</body></html>")
        more = {"PIP_NO_INDEX": "0", "PIP_INDEX_URL": f"file://{self.root}/index", "PIP_FIND_LINKS": ""}
        done = self.run_script(**more)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("pip could not download", done.stderr)
        self.assertFalse(self.cache.exists())

    def test_a_cache_that_cannot_be_written_is_said_in_words(self):
        # A file in its place: it refuses root, too.
        (self.root / "cache").touch()
        done = self.run_script("--cuda")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(f"error: {self.root / 'cache'}", done.stderr)
        self.assertIn("set XDG_CACHE_HOME", done.stderr)
        self.assertNotIn("Traceback", done.stderr)

    def test_the_gpu_may_stay_unused_where_the_cache_cannot_be_written(self):
        site = self.root / "site"
        for path, text in CUDA_TORCH.items():
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            (site / path).write_text(text)
        info = site / "torch-2.11.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("\n".join(NEEDS) + "\n")
        (self.root / "bin/python3").write_text(f"#!/bin/sh\necho {site}/torch\n")
        (self.root / "cache").touch()
        self.driver()
        done = self.run_script()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the GPU stays unused", done.stderr)
        self.assertEqual((self.root / "link").resolve(), site.resolve())

    def test_a_disk_that_fills_up_while_unpacking_is_said_in_words(self):
        # As large as the limit lets no file be: the wheel is smaller than what is in it.
        wheel(self.wheels, "torch", "2.11.0", {**CUDA_TORCH, "torch/lib/large.so": "0" * (1 << 24)}, NEEDS)
        command = [sys.executable, str(SCRIPT), "--link", str(self.root / "link"), "--driver-root", str(self.root)]
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 23, 1 << 23))
        done = subprocess.run(command, env=self.environment(), capture_output=True, text=True, timeout=300, preexec_fn=limit)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("set XDG_CACHE_HOME", done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.assertFalse(self.cache.exists())

    def test_two_at_once_and_one_killed_leave_one_whole_cache(self):
        # Held as a set-up holds it: the next ones wait, and the killed one leaves no lock behind.
        left = self.cache.parent / ".unpacking-left"
        left.mkdir(parents=True)
        (left / "half").touch()
        hold = "import fcntl,sys,time; f=open(sys.argv[1],'w'); fcntl.flock(f,fcntl.LOCK_EX); print('held',flush=True); time.sleep(60)"
        holder = subprocess.Popen([sys.executable, "-c", hold, str(self.cache.parent / "setup.lock")], stdout=subprocess.PIPE)
        holder.stdout.readline()
        command = [sys.executable, str(SCRIPT), "--link", str(self.root / "link"), "--driver-root", str(self.root)]
        both = [subprocess.Popen(command, env=self.environment(), stderr=subprocess.PIPE, text=True) for _ in range(2)]
        time.sleep(2)
        self.assertFalse(self.cache.exists())
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        holder.stdout.close()
        said = [process.communicate(timeout=300)[1] for process in both]
        self.assertEqual([process.returncode for process in both], [0, 0], said)
        self.assertEqual(sum("downloading" in words for words in said), 1, said)
        self.assertTrue(all("another set-up is at work" in words for words in said), said)
        self.assertFalse(list(self.cache.parent.glob(".unpacking-*")))
        self.assertTrue((self.cache / "torch/lib/libtorch_cpu.so").exists())


if __name__ == "__main__":
    unittest.main()
