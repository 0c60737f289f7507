#!/usr/bin/env python3
"""Refuses a dependency between our crates that points the wrong way.

Each crate may use only the crates listed for it here; a new edge is a design decision and
starts with a change of this table. `dev` edges (tests) are not restricted.
"""

import json
import subprocess
import sys

MAY_USE = {
    "curve": set(),
    "files": set(),
    "grader": set(),
    "ingest": {"curve", "files"},
    "recipe": {"files"},
    "rollout": set(),
    "http": set(),
    "serve": {"http", "rollout"},
    "task": {"files", "grader", "recipe", "rollout"},
    "objective": {"recipe", "rollout"},
    "journal": {"curve", "files", "recipe", "rollout"},
    "torch": set(),
    "model": {"files", "torch"},
    "generate": {"model", "rollout", "torch"},
    "worker": {"generate", "model", "objective", "recipe", "rollout", "task", "torch"},
    "environment": {"recipe", "rollout", "serve", "task"},
    "engine": {"curve", "journal", "objective", "recipe", "rollout"},
    "board": {"curve", "journal"},
    "track": {"files", "ingest", "journal", "recipe", "rollout"},
    "study": {"curve", "files", "journal", "recipe", "rollout"},
    "report": {"board", "curve", "journal", "recipe", "rollout", "study"},
    "watch": {"board", "curve", "files", "http", "journal", "recipe", "report", "rollout"},
    "cli": None,  # connects everything
    "python": {"board", "cli", "curve", "ingest"},
}


def short(package: str) -> str:
    return "cli" if package == "scalerl" else package.removeprefix("scalerl-")


def main() -> int:
    metadata = json.loads(
        subprocess.check_output(["cargo", "metadata", "--no-deps", "--format-version=1", "--locked"])
    )
    wrong = []
    for package in metadata["packages"]:
        name = short(package["name"])
        if name not in MAY_USE:
            wrong.append(f"crate {name} is not in the table of {sys.argv[0]}")
            continue
        allowed = MAY_USE[name]
        for dependency in package["dependencies"]:
            other = dependency["name"]
            if not other.startswith("scalerl") or dependency["kind"] == "dev":
                continue
            other = short(other)
            if allowed is not None and other not in allowed:
                wrong.append(f"crate {name} may not depend on {other}")
    for line in wrong:
        print(f"layering: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
