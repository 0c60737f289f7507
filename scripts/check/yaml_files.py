#!/usr/bin/env python3
"""Refuses a deployment file that does not parse, or that does not say plainly whether it was run.

Needs PyYAML; where it is missing it says so and passes, unless SCALERL_REQUIRE_YAML is set.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def scripts_of(document: object) -> list[str]:
    """Shell scripts inside a document: SkyPilot's setup and run, `bash -c` arguments of containers."""
    found: list[str] = []
    if isinstance(document, dict):
        for key, value in document.items():
            if key in ("setup", "run") and isinstance(value, str):
                found.append(value)
            elif key == "args" and isinstance(value, list):
                found += [one for one in value if isinstance(one, str) and "\n" in one]
            else:
                found += scripts_of(value)
    elif isinstance(document, list):
        for value in document:
            found += scripts_of(value)
    return found


def main() -> int:
    try:
        import yaml
    except ImportError:
        print("PyYAML is missing: the files in deploy/ are not checked (pip install pyyaml)", file=sys.stderr)
        return 1 if os.environ.get("SCALERL_REQUIRE_YAML") else 0
    wrong = []
    files = sorted((ROOT / "deploy").rglob("*.yaml"))
    if not files:
        wrong.append("deploy: no .yaml file is there")
    for path in files:
        name, text = path.relative_to(ROOT), path.read_text()
        if not text.startswith(("# NOT RUN", "# Run on")):
            wrong.append(f"{name}: the first line must say whether it was run")
        try:
            documents = list(yaml.safe_load_all(text))
        except yaml.YAMLError as error:
            wrong.append(f"{name}: {error}")
            continue
        for script in (script for document in documents for script in scripts_of(document)):
            shell = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True)
            if shell.returncode != 0:
                wrong.append(f"{name}: a script in it does not parse: {shell.stderr.strip()}")
    for line in wrong:
        print(f"yaml: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
