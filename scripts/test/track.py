#!/usr/bin/env python3
"""A simulated run is played as if alive into every tracker, killed twice, its servers restarted; then
what TensorBoard, `wandb sync`, MLflow and Trackio show is compared with the journal, value by value.

The values to compare with come from `track/metrics.jsonl` (compared with the journal by the tests of the
crate) and, for the pass rates and rewards, from `events.jsonl` itself.
"""

import json
import os
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

OUT = Path("out/track").resolve()
BIN = Path("out/venv-track/bin").resolve()
REPLAY, SIMULATE, SCALERL = (
    str(Path("target/debug") / name) for name in ("examples/replay", "examples/simulate", "scalerl")
)
MLFLOW_PORT, TRACKIO_PORT, BOARD_PORT, WANDB_PORT = 15301, 15302, 15303, 15304
TOKEN = "a-token-of-the-test"
started = []


def start(arguments, name, **environment):
    log = open(OUT / f"{name}.log", "a")
    process = subprocess.Popen(
        [str(one) for one in arguments], stdout=log, stderr=log, env={**os.environ, **environment}, start_new_session=True
    )
    started.append(process)
    return process


def stop(process, sign=signal.SIGKILL):
    """The whole group: servers have workers."""
    try:
        os.killpg(process.pid, sign)
    except ProcessLookupError:
        pass
    process.wait()


def get(url, question=None, headers=None):
    data = None if question is None else json.dumps(question).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **(headers or {})})
    with urllib.request.urlopen(request, timeout=30) as answer:
        text = answer.read().decode()
    return json.loads(text) if text else None


def wait_for(url, seconds=240):
    deadline = time.time() + seconds
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).read()
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            if time.time() > deadline:
                sys.exit(f"{url} did not come up")
            time.sleep(0.5)


def mlflow_server():
    store = f"sqlite:///{OUT}/mlflow.db"
    arguments = ["server", "--host", "127.0.0.1", "--port", MLFLOW_PORT, "--workers", "1"]
    arguments += ["--backend-store-uri", store, "--artifacts-destination", OUT / "artifacts"]
    return start([BIN / "mlflow", *arguments], "mlflow")


def trackio_server():
    code = (
        "import trackio, time\n"
        f"trackio.show(host='127.0.0.1', server_port={TRACKIO_PORT}, open_browser=False, block_thread=False)\n"
        "time.sleep(100000)\n"
    )
    where = {"TRACKIO_DIR": str(OUT / "trackio"), "TRACKIO_WRITE_TOKEN": TOKEN, "GRADIO_SERVER_PORT": str(TRACKIO_PORT)}
    return start([BIN / "python", "-c", code], "trackio", **where)


def expected(run):
    """Every value, by name and step, once."""
    values = {}
    for line in (run / "track/metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        step = row.pop("step")
        row.pop("time")
        for name, value in row.items():
            assert (name, step) not in values, f"{name} at {step} twice"
            values[name, step] = value
    # Against the journal itself: the counted steps.
    kept = []
    for index, line in enumerate((run / "events.jsonl").read_text().splitlines()):
        event = json.loads(line)
        if event["type"] == "resumed":
            kept = [one for one in kept if one[0] < event["kept"]]
        kept.append((index, event))
    steps = [event for _, event in kept if event["type"] == "step"]
    for event in steps:
        step = event["report"]["version"]
        assert values["train/reward", step] == event["batch"]["mean_reward"]
        assert values["train/entropy", step] == event["report"]["entropy"]
    for _, event in kept:
        if event["type"] == "evaluation":
            for one in event["sets"]:
                assert values[f"eval/{one['name']}/pass_rate", event["version"]] == one["pass_rate"]
    assert len(steps) == len([1 for name, _ in values if name == "train/reward"])
    return values


def compare(name, found, wanted, close=lambda a, b: a == b):
    missing = wanted.keys() - found.keys()
    more = found.keys() - wanted.keys()
    wrong = [key for key in wanted.keys() & found.keys() if not close(found[key], wanted[key])]
    assert not missing and not more and not wrong, f"{name}: missing {list(missing)[:3]}, more {list(more)[:3]}, wrong {wrong[:3]}"
    print(f"{name}: {len(found)} values, all equal to the journal's")


def tensorboard(run, wanted):
    process = start([BIN / "tensorboard", "--logdir", run / "track/tensorboard", "--port", BOARD_PORT, "--reload_interval", 1], "tensorboard")
    base = f"http://127.0.0.1:{BOARD_PORT}/data/plugin/scalars"
    wait_for(base + "/tags")
    # It loads while it serves.
    for _ in range(90):
        found = {}
        for tag in get(base + "/tags").get(".", {}):
            query = urllib.parse.urlencode({"run": ".", "tag": tag})
            for _, step, value in get(f"{base}/scalars?{query}"):
                assert (tag, step) not in found
                found[tag, step] = value
        if len(found) >= len(wanted):
            break
        time.sleep(1)
    single = lambda value: struct.unpack("f", struct.pack("f", value))[0]
    compare("tensorboard", found, wanted, lambda a, b: a == single(b))
    texts = get(f"http://127.0.0.1:{BOARD_PORT}/data/plugin/text/tags")
    print("tensorboard: texts", texts)
    assert "samples" in str(texts) and "recipe" in str(texts)
    stop(process)


class Cloud(BaseHTTPRequestHandler):
    """As much of W&B's server as `wandb sync` asks for."""

    rows, files, config = {}, {}, ""

    def answer(self, value):
        text = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.answer({})

    def do_PUT(self):
        Cloud.files[self.path] = self.body()
        self.answer({})

    def do_POST(self):
        body = self.body()
        if "gzip" in self.headers.get("Content-Encoding", ""):
            import gzip

            body = gzip.decompress(body)
        question = json.loads(body or b"{}")
        if self.path.endswith("file_stream"):
            history = question.get("files", {}).get("wandb-history.jsonl")
            if history:
                for index, line in enumerate(history["content"]):
                    Cloud.rows[history["offset"] + index] = json.loads(line)
            return self.answer({"exitcode": None, "limits": {}})
        return self.answer({"data": self.graphql(question)})

    def graphql(self, question):
        query, variables = question.get("query", ""), question.get("variables") or {}
        with open(OUT / "graphql.log", "a") as log:
            log.write(json.dumps(question)[:3000] + "\n")
        run = {"id": "run-1", "name": variables.get("name") or "r", "displayName": "r", "config": "{}", "sweepName": None,
               "historyLineCount": 0, "project": {"id": "p", "name": "p", "entity": {"id": "e", "name": "tester"}}}
        if "upsertBucket" in query:
            if variables.get("config"):
                Cloud.config = variables["config"]
            return {"upsertBucket": {"bucket": run, "inserted": True}}
        if "createRunFiles" in query:
            files = [{"name": name, "uploadUrl": f"http://127.0.0.1:{WANDB_PORT}/put/{urllib.parse.quote(name)}"} for name in variables.get("files", [])]
            return {"createRunFiles": {"runID": "run-1", "uploadHeaders": [], "files": files}}
        return {
            "viewer": {"id": "u", "entity": "tester", "username": "tester", "email": "t@example.com", "admin": False, "flags": "{}",
                       "teams": {"edges": []}, "capabilities": []},
            "serverInfo": {"cliVersionInfo": {"max_cli_version": "0.99.0", "min_cli_version": "0.1.0"}, "features": [],
                           "latestLocalVersionInfo": None},
            "project": None, "model": None, "entity": None,
        }


def wandb(run, wanted):
    server = ThreadingHTTPServer(("127.0.0.1", WANDB_PORT), Cloud)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    folder = next((run / "track/wandb").glob("offline-run-*"))
    environment = {"WANDB_BASE_URL": f"http://127.0.0.1:{WANDB_PORT}", "WANDB_API_KEY": "0" * 40, "WANDB_DIR": str(OUT), "HOME": str(OUT),
                   "WANDB_CACHE_DIR": str(OUT / "wandb-cache"), "WANDB_ERROR_REPORTING": "false"}
    told = subprocess.run([BIN / "wandb", "sync", folder], env={**os.environ, **environment}, capture_output=True, text=True, timeout=300)
    (OUT / "wandb.log").write_text(told.stdout + told.stderr)
    assert told.returncode == 0, told.stdout + told.stderr
    found, tables = {}, 0
    assert sorted(Cloud.rows) == list(range(len(Cloud.rows))), "rows arrive without a gap"
    for row in Cloud.rows.values():
        flat = dict(row)
        for name, value in flat.items():
            if name == "samples":
                tables += 1
            elif not name.startswith("_") and name != "step":
                assert (name, row["step"]) not in found, (name, row["step"])
                found[name, row["step"]] = value
    compare("wandb sync", found, wanted)
    uploads = [name for name in Cloud.files if "table.json" in name]
    print(f"wandb sync: {len(Cloud.rows)} rows, {tables} tables, {len(uploads)} table files uploaded, config {len(Cloud.config)} letters")
    assert tables == len(uploads) and tables > 0 and '"optimizer"' in Cloud.config
    server.shutdown()


def mlflow(wanted, project="replayed"):
    base = f"http://127.0.0.1:{MLFLOW_PORT}/api/2.0/mlflow"
    experiment = get(f"{base}/experiments/get-by-name?experiment_name={project}")["experiment"]["experiment_id"]
    runs = get(f"{base}/runs/search", {"experiment_ids": [experiment]})["runs"]
    tags = lambda one: {tag["key"]: tag["value"] for tag in one["data"]["tags"]}
    alive = [one for one in runs if "scalerl.superseded_by" not in tags(one)]
    assert len(alive) == 1, [tags(one) for one in runs]
    run = alive[0]
    id, found = run["info"]["run_id"], {}
    for name in sorted({name for name, _ in wanted}):
        token = ""
        while True:
            query = urllib.parse.urlencode({"run_id": id, "metric_key": name, "max_results": 1000, "page_token": token})
            page = get(f"{base}/metrics/get-history?{query}")
            for one in page.get("metrics", []):
                key = name, int(one.get("step", 0))
                assert key not in found, f"{key} twice"
                found[key] = one["value"]
            token = page.get("next_page_token") or ""
            if not token:
                break
    compare("mlflow", found, wanted)
    params = len(run["data"]["params"])
    artifacts = get(f"{base}/artifacts/list?run_id={id}&path=samples").get("files", [])
    print(f"mlflow: {len(runs)} runs, {len(runs) - 1} superseded; {run['info']['run_name']} is {run['info']['status']}; {params} parameters, {len(artifacts)} tables")
    assert params > 50 and artifacts


def trackio(wanted, project="replayed"):
    found, runs = {}, {}
    for database in (OUT / "trackio").rglob("*.db"):
        with sqlite3.connect(database) as connection:
            for run, step, metrics in connection.execute("select run_name, step, metrics from metrics"):
                runs.setdefault(run, []).append((step, json.loads(metrics)))
    alive = [run for run in runs if "superseded" not in run]
    assert len(alive) == 1, list(runs)
    tables = 0
    for step, metrics in runs[alive[0]]:
        for name, value in metrics.items():
            if name == "samples":
                tables += value["_type"] == "trackio.table"
            elif name != "unix_time":
                assert (name, step) not in found, f"{name} at {step} twice"
                found[name, step] = value
    compare("trackio", found, wanted)
    summary = get(f"http://127.0.0.1:{TRACKIO_PORT}/api/get_run_summary", {"project": project, "run": alive[0]})
    print(f"trackio: runs {sorted(runs)}, {tables} tables; its API says {str(summary)[:120]}")
    assert tables > 0


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    recorded, run = OUT / "recorded", OUT / "replayed-1"
    subprocess.run([SIMULATE, recorded, "budget.steps=60"], check=True)
    servers = [mlflow_server(), trackio_server()]
    urls = [f"mlflow=http://127.0.0.1:{MLFLOW_PORT}", f"trackio=http://127.0.0.1:{TRACKIO_PORT}"]
    wait_for(f"http://127.0.0.1:{MLFLOW_PORT}/health")
    wait_for(f"http://127.0.0.1:{TRACKIO_PORT}/")
    lines = len((recorded / "events.jsonl").read_text().splitlines())
    play = [REPLAY, recorded, run, lines / 40, "tensorboard", "wandb", "jsonl", *urls]
    secret = {"TRACKIO_WRITE_TOKEN": TOKEN}
    for seconds in (10, 8):
        process = start(play, "replay", **secret)
        time.sleep(seconds)
        stop(process)
        print(f"killed after {seconds} s, {len((run / 'events.jsonl').read_text().splitlines())} lines")
    process = start(play, "replay", **secret)
    time.sleep(6)
    for server in servers:
        stop(server)
    print("both servers killed")
    time.sleep(6)
    servers = [mlflow_server(), trackio_server()]
    wait_for(f"http://127.0.0.1:{MLFLOW_PORT}/health")
    wait_for(f"http://127.0.0.1:{TRACKIO_PORT}/")
    print("both servers back")
    process.wait(timeout=240)
    for name, url in (("mlflow", f"http://127.0.0.1:{MLFLOW_PORT}"), ("trackio", f"http://127.0.0.1:{TRACKIO_PORT}")):
        told = subprocess.run([SCALERL, "export", run, "--to", name, "--url", url, "--project", "replayed"],
                              env={**os.environ, **secret}, capture_output=True, text=True)
        print(told.stdout.strip() or told.stderr.strip())
        assert told.returncode == 0, told.stderr
    wanted = expected(run)
    print((OUT / "replay.log").read_text().strip())
    tensorboard(run, wanted)
    mlflow(wanted)
    trackio(wanted)
    wandb(run, wanted)
    print("every tracker shows the journal, value by value")


def run_and_stop(main):
    """Whatever becomes of it, nothing is left running."""
    try:
        main()
    finally:
        for one in started:
            if one.poll() is None:
                stop(one)


if __name__ == "__main__":
    run_and_stop(main)
