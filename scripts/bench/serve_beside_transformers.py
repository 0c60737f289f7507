#!/usr/bin/env python3
"""`scalerl serve` beside `transformers serve`: the same model, the same streamed completions, one after the other in one run.

  serve_beside_transformers.py SCALERL_BINARY MODEL [--device cpu] [--connections 16,64] [--new 32] [--rounds 1] [--warm-ups 0]

transformers is the one of the python that runs this. Every connection sends prompts of its own and reads the stream to its end; the clients
are processes of their own. Tokens are counted on this side, by the model's tokenizer, from the text that came: the same measure for both.
transformers is asked as it starts by default ("plain", one answer after the other) and with --continuous-batching ("batched"); where
a side does not work on this machine, its line says so.
"""

import argparse
import http.client
import importlib.util
import json
import multiprocessing
import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import tokenizers

# What `transformers serve` imports before it listens.
NEEDED = ["fastapi", "uvicorn", "openai", "pydantic", "typer"]
# `transformers serve` without the program's other commands: those import more, and the program asks PyPI for a newer version first.
TRANSFORMERS = [sys.executable, "-c", "import typer; from transformers.cli.serve import Serve; app = typer.Typer(); app.command()(Serve); app()"]
CONNECTIONS_OF_A_CLIENT = 32


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def ask(port, model, number, new, seconds):
    """One prompt: when it was asked, and every piece of the answer with the time it came. Read later: reading costs what is measured."""
    body = {"model": model, "stream": True, "max_tokens": new, "temperature": 0,
            "prompt": f"{number} ships left the harbour that year. This is the long story of what became of each of them, and of"}  # fmt: skip
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    begun, pieces = time.perf_counter(), []
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise RuntimeError(f"{answer.status}: {answer.read(500)}")
    while piece := answer.read1(65536):
        pieces.append((time.perf_counter(), piece))
    connection.close()
    return begun, pieces


def read(begun, pieces):
    """Seconds to the first text, the text, and when its last piece came."""
    first, text, rest = None, "", b""
    for at, piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"data: {"):
                event = json.loads(line[6:])
                if event.get("error"):
                    raise RuntimeError(str(event["error"]))
                new_text = (event.get("choices") or [{}])[0].get("text") or ""
                if new_text and first is None:
                    first = at - begun
                text += new_text
    return first, text, pieces[-1][0]


def client(job):
    """What one process asks: its connections, each a thread."""
    port, model, connections, rounds, new, seconds = job
    answers, errors = [], []

    def talk(at):
        try:
            for turn in range(rounds):
                answers.append(ask(port, model, at * 100 + turn, new, seconds))
        except Exception as error:  # a thread has nobody else to tell
            errors.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=talk, args=(at,), daemon=True) for at in connections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise RuntimeError(errors[0])
    return [(begun, *read(begun, pieces)) for begun, pieces in answers]


def measure(port, model, connections, rounds, new, seconds, tokenizer):
    shares = [range(at, min(at + CONNECTIONS_OF_A_CLIENT, connections)) for at in range(0, connections, CONNECTIONS_OF_A_CLIENT)]
    with multiprocessing.get_context("fork").Pool(len(shares)) as pool:
        jobs = [(port, model, share, rounds, new, seconds) for share in shares]
        try:
            answers = [answer for one in pool.map_async(client, jobs, chunksize=1).get(seconds) for answer in one]
        except multiprocessing.TimeoutError:
            raise RuntimeError(f"not done within {seconds} s") from None
    took = max(last for *_, last in answers) - min(begun for begun, *_ in answers)
    firsts = sorted(first for _, first, _, _ in answers if first is not None)
    if len(firsts) < len(answers):
        raise RuntimeError(f"{len(answers) - len(firsts)} answers without text")
    tokens = sum(len(tokenizer.encode(text, add_special_tokens=False).ids) for _, _, text, _ in answers)
    p99 = firsts[min(len(firsts) - 1, int(0.99 * len(firsts)))]
    return f"{tokens / took:,.1f} | {1e3 * statistics.median(firsts):,.1f} ms | {1e3 * p99:,.1f} ms | {tokens / len(answers):.1f} of {new}"


def until_healthy(process, port, log):
    for _ in range(1200):
        if process.poll() is not None:
            raise RuntimeError(f"it ended with {process.returncode}: {tail(log)}")
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise RuntimeError(f"it does not become healthy: {tail(log)}")


def tail(log):
    return re.sub(r"\s+", " ", pathlib.Path(log).read_text(errors="replace"))[-600:]


def stop(process):
    """With what it started: a server's workers hold the GPU's memory."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
            process.wait(10)
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            return


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scalerl")
    parser.add_argument("model")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="f32 on the CPU, bf16 on CUDA")
    parser.add_argument("--sides", default="scalerl,plain,batched")
    parser.add_argument("--connections", default="16,64")
    parser.add_argument("--new", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--warm-ups", type=int, default=0, help="rounds before the clock runs: sizes of steps that are prepared once")
    parser.add_argument("--seconds", type=int, default=480, help="of one line of the table, its warm-ups not counted")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of each server's products on the CPU")
    args = parser.parse_args()
    model = str(pathlib.Path(args.model).resolve())
    tokenizer = tokenizers.Tokenizer.from_file(str(pathlib.Path(model) / "tokenizer.json"))
    short, long = ("f32", "float32") if args.device == "cpu" else ("bf16", "bfloat16")
    theirs = [*TRANSFORMERS, model, "--device", args.device, "--dtype", long, "--host", "127.0.0.1", "--port"]
    most = max(map(int, args.connections.split(",")))
    ours = [args.scalerl, "serve", model, "--device", args.device, "--dtype", short, "--running", str(most), "--connections", str(2 * most), "--address"]
    sides = {
        "scalerl": ("scalerl serve", lambda port: [*ours, f"127.0.0.1:{port}"]),
        "plain": ("transformers serve", lambda port: [*theirs, str(port)]),
        "batched": ("transformers serve --continuous-batching", lambda port: [*theirs, str(port), "--continuous-batching"]),
    }
    unknown = [side for side in args.sides.split(",") if side not in sides]
    if unknown:
        parser.error(f"--sides {unknown[0]}: one of {', '.join(sides)}")
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    environment = {**os.environ, "OMP_NUM_THREADS": str(args.threads), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    print("| side | connections | tokens/s | first token, median | 99th percentile | tokens an answer |\n|---|---|---|---|---|---|")
    for side in args.sides.split(","):
        name, command = sides[side]
        if side != "scalerl" and missing:
            print(f"| {name} | not run: {', '.join(missing)} missing in {sys.executable}: pip install 'transformers[serving]' |", flush=True)
            continue
        port = free_port()
        with tempfile.NamedTemporaryFile("w", suffix=".log") as log:
            process = subprocess.Popen(command(port), stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True)
            try:
                until_healthy(process, port, log.name)
                measure(port, model, 1, 1, 4, args.seconds, tokenizer)  # loads the model where that waits for a request
                for connections in map(int, args.connections.split(",")):
                    for _ in range(args.warm_ups):
                        measure(port, model, connections, 1, args.new, args.seconds, tokenizer)
                    print(f"| {name} | {connections} | {measure(port, model, connections, args.rounds, args.new, args.seconds, tokenizer)} |", flush=True)
            except RuntimeError as error:
                print(f"| {name} | failed: {error}; its log: {tail(log.name)} |", flush=True)
            finally:
                stop(process)
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")


if __name__ == "__main__":
    sys.exit(main())
