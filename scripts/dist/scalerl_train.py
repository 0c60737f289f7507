"""The command `scalerl` as pip installs it: starts the program with the torch of this Python.

pip has put torch 2.11.0 and NVIDIA's libraries into the same environment; the program is told where.
"""

import importlib.util
import os
import pathlib
import sys


def main() -> None:
    program = pathlib.Path(__file__).parent / "bin" / "scalerl"
    torch = importlib.util.find_spec("torch")
    if torch and torch.submodule_search_locations and "LIBTORCH_DIR" not in os.environ:
        os.environ["LIBTORCH_DIR"] = os.path.dirname(torch.submodule_search_locations[0])
    os.execv(program, ["scalerl", *sys.argv[1:]])
