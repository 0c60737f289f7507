#!/usr/bin/env python3
"""A real training run, alive under its page and sent to all five trackers at once; then every value is compared with the journal,
and what trackers and page cost is compared with what the run cost.

  track_train.py SCALERL [--steps 40]

A run of the quickstart's size on the CPU (scripts/test/track.py plays a simulated one, kills it and restarts the servers). A browser stands by as
a client that reads the page's events and asks for its pieces after each, as the page's script does.

Costs are processor seconds, which neither a busy machine nor its clock changes much: of the threads `track-*` and `watch*` of the process, read while
it runs, against the whole process's. The servers and clients are other programs and not in it.
"""

import argparse
import os
import re
import shutil
import threading
import time
import urllib.request
from pathlib import Path

import track
from track import MLFLOW_PORT, OUT, TOKEN, TRACKIO_PORT, get, start, wait_for

PROJECT = "trained"
OWN = re.compile(r"(track-|watch)")
# A thread's name has at most 15 letters.
SHOWN = {"track-tensorbo": "track-tensorboard"}


def seconds_of_threads(process):
    """Processor seconds of every thread, by its number, with its name; of the process itself under 0."""
    found = {}
    try:
        for task in Path(f"/proc/{process}/task").iterdir():
            name = (task / "comm").read_text().strip()
            found[int(task.name)] = name, int((task / "schedstat").read_text().split()[0]) / 1e9
        fields = (Path(f"/proc/{process}/stat")).read_text().rsplit(")", 1)[1].split()
        found[0] = "the run", (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except OSError:
        pass
    return found


def read_page(address, run, counts):
    """What a browser does: events, and after each the pieces of the page."""
    with urllib.request.urlopen(f"{address}/events?run={run}", timeout=600) as events:
        for line in events:
            if line.startswith(b"data:"):
                counts["events"] += 1
                with urllib.request.urlopen(f"{address}/run/{run}/parts", timeout=60) as answer:
                    counts["bytes"] += len(answer.read())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scalerl", type=Path)
    parser.add_argument("--steps", type=int, default=40)
    args = parser.parse_args()
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    run = OUT / "trained-1"
    track.mlflow_server(), track.trackio_server()
    mlflow_url, trackio_url = f"http://127.0.0.1:{MLFLOW_PORT}", f"http://127.0.0.1:{TRACKIO_PORT}"
    wait_for(f"{mlflow_url}/health")
    wait_for(f"{trackio_url}/")
    to = f'["tensorboard", "wandb", "jsonl", {{type = "mlflow", url = "{mlflow_url}"}}, {{type = "trackio", url = "{trackio_url}"}}]'
    keys = ["warm_up.steps=200", f"budget.steps={args.steps}", "evaluation.every_steps=5", f"track.to={to}", f'track.project="{PROJECT}"']
    keys = [word for key in keys for word in ("--set", key)]
    begun = time.time()
    process = start([args.scalerl, "train", "quickstart", "--device", "cpu", "--no-history", "--run", run, "--watch", *keys], "train",
                    OMP_WAIT_POLICY="passive", TRACKIO_WRITE_TOKEN=TOKEN)  # fmt: skip
    threads, counts, page = {}, {"events": 0, "bytes": 0}, None
    while process.poll() is None:
        threads.update(seconds_of_threads(process.pid))
        said = re.search(r"http://127\.0\.0\.1:\d+", (OUT / "train.log").read_text())
        if said and page is None and (run / "events.jsonl").exists():
            page = said[0]
            threading.Thread(target=read_page, args=(page, run.name, counts), daemon=True).start()
        time.sleep(0.1)
    took = time.time() - begun
    assert process.returncode == 0, (OUT / "train.log").read_text()[-3000:]
    wanted = track.expected(run)
    track.tensorboard(run, wanted)
    track.mlflow(wanted, PROJECT)
    track.trackio(wanted, PROJECT)
    track.wandb(run, wanted)
    print(f"every tracker shows the journal of a real run, value by value; the page was told {counts['events']} times, {counts['bytes'] / 1e6:.1f} MB read")
    assert counts["events"] > 3, counts
    _, whole = threads.pop(0)
    own = {}
    for name, seconds in threads.values():
        if OWN.match(name):
            own[SHOWN.get(name, name)] = own.get(SHOWN.get(name, name), 0.0) + seconds
    for name in sorted(own):
        print(f"  {name:<18} {1e3 * own[name]:8.1f} ms")
    cost = sum(own.values())
    share = 100 * cost / whole
    print(f"{args.steps} steps in {took:.0f} s, {whole:.1f} s of processor; trackers and page {cost:.3f} s: {share:.2f} % of the run's, "
          f"{1e3 * cost / args.steps:.1f} ms a step, {100 * cost / took:.2f} % of one core; load {os.getloadavg()[0]:.1f}")  # fmt: skip
    assert len(own) >= 7, sorted(own)
    assert share < 1, "more than 1 % of the run"


if __name__ == "__main__":
    track.run_and_stop(main)
