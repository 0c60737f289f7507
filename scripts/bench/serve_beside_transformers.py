#!/usr/bin/env python3
"""`scalerl serve` beside `transformers serve`: the same model, the same streamed chats, one after the other in one run.

  serve_beside_transformers.py SCALERL_BINARY TRANSFORMERS_BINARY MODEL [--connections 16,64] [--new 32] [--rounds 1] [--threads 2]

Both on the CPU in f32. Every connection sends chats of its own and reads the stream to its end. Tokens are counted on this side,
by the model's tokenizer, from the text that came: the same measure for both. transformers is asked twice: as it starts by default,
and with --continuous-batching; where that does not work on this machine, the line says so.
"""

import argparse
import http.client
import json
import os
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import tokenizers

SECONDS = 480  # of one line of the table


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def ask(port, model, number, new):
    """One chat: seconds to the first text, and the text."""
    body = {"model": model, "stream": True, "max_tokens": new, "temperature": 0,
            "messages": [{"role": "user", "content": f"Tell me a long story about {number} ships and what became of each of them."}]}  # fmt: skip
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    begun, first, text = time.perf_counter(), None, ""
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise RuntimeError(f"{answer.status}: {answer.read(500)}")
    for line in answer:
        if not line.startswith(b"data: {"):
            continue
        choices = json.loads(line[6:]).get("choices") or [{}]
        new_text = (choices[0].get("delta") or {}).get("content") or ""
        if new_text and first is None:
            first = time.perf_counter() - begun
        text += new_text
    connection.close()
    return first, text


def measure(port, model, connections, rounds, new, tokenizer):
    results, errors = [], []

    def talk(at):
        try:
            for turn in range(rounds):
                results.append(ask(port, model, at * 100 + turn, new))
        except Exception as error:  # a thread has nobody else to tell
            errors.append(error)

    threads = [threading.Thread(target=talk, args=(at,), daemon=True) for at in range(connections)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, begun + SECONDS - time.perf_counter()))
    seconds = time.perf_counter() - begun
    if errors or any(thread.is_alive() for thread in threads):
        return f"failed: {errors[:1] or f'not done within {SECONDS} s'}"
    firsts = sorted(first for first, _ in results if first is not None)
    if len(firsts) < len(results):
        return f"failed: {len(results) - len(firsts)} answers without text"
    tokens = sum(len(tokenizer.encode(text, add_special_tokens=False).ids) for _, text in results)
    return {"tokens": tokens, "tokens_per_s": round(tokens / seconds, 1), "first_token_s_median": round(statistics.median(firsts), 3),
            "first_token_s_p99": round(firsts[min(len(firsts) - 1, int(0.99 * len(firsts)))], 3)}  # fmt: skip


def until_healthy(process, port, log):
    for _ in range(600):
        if process.poll() is not None:
            raise RuntimeError(pathlib.Path(log).read_text()[-2000:])
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.5)
    raise RuntimeError("it does not become healthy")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scalerl")
    parser.add_argument("transformers")
    parser.add_argument("model")
    parser.add_argument("--connections", default="16,64")
    parser.add_argument("--new", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args()
    model = str(pathlib.Path(args.model).resolve())
    tokenizer = tokenizers.Tokenizer.from_file(str(pathlib.Path(model) / "tokenizer.json"))
    serve = [args.transformers, "serve", model, "--device", "cpu", "--dtype", "float32"]
    sides = {
        "scalerl serve": lambda port: [args.scalerl, "serve", model, "--device", "cpu", "--dtype", "f32", "--address", f"127.0.0.1:{port}"],
        "transformers serve": lambda port: [*serve, "--host", "127.0.0.1", "--port", str(port)],
        "transformers serve --continuous-batching": lambda port: [*serve, "--continuous-batching", "--host", "127.0.0.1", "--port", str(port)],
    }
    environment = {**os.environ, "OMP_NUM_THREADS": str(args.threads), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    for side, command in sides.items():
        port = free_port()
        with tempfile.NamedTemporaryFile("w", suffix=".log") as log:
            process = subprocess.Popen(command(port), stdout=log, stderr=subprocess.STDOUT, env=environment)
            try:
                until_healthy(process, port, log.name)
                warm = measure(port, model, 1, 1, 4, tokenizer)  # loads the model where that waits for a request
                print(json.dumps({"side": side, "warm_up": warm}), flush=True)
                for connections in map(int, args.connections.split(",")):
                    found = measure(port, model, connections, args.rounds, args.new, tokenizer)
                    found = found if isinstance(found, dict) else {"failed": found, "log": pathlib.Path(log.name).read_text()[-600:]}
                    print(json.dumps({"side": side, "connections": connections, "new": args.new, "load": os.getloadavg()[0], **found}), flush=True)
            except RuntimeError as error:
                print(json.dumps({"side": side, "failed": re.sub(r"\s+", " ", str(error))[-600:]}), flush=True)
            finally:
                process.terminate()
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()


if __name__ == "__main__":
    sys.exit(main())
