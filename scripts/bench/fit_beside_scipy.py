#!/usr/bin/env python3
"""The paper's grid with scipy beside `scalerl bench fit`, on the same points, in one run.

Usage: fit_beside_scipy.py SCALERL FILE [--floor R0] [--warmup C] [--until C]
Needs numpy and scipy. scipy's side uses leastsq, the fastest of its least-squares calls for one
parameter, with the derivative given.
"""

import argparse
import csv
import json
import pathlib
import subprocess
import time

import numpy
import scipy
from scipy.optimize import leastsq


def read(path, warmup, until):
    rows = [line for line in pathlib.Path(path).read_text().splitlines() if line[:1] != "#"]
    table = list(csv.DictReader(rows))
    points = [(float(row["gpu_hours"]), float(row["pass_rate"])) for row in table]
    points = [point for point in points if warmup <= point[0] <= until]
    return map(numpy.array, zip(*points))


def paper(compute, value, floor):
    best = (numpy.inf, None)
    log = numpy.log(compute)
    for midpoint in numpy.linspace(100, 40000, 100):
        distance = numpy.log(midpoint) - log
        for ceiling in numpy.arange(0.450, 0.8001, 0.005):
            gain = ceiling - floor

            def residual(b):
                return floor + gain / (1 + numpy.exp(b[0] * distance)) - value

            def slope(b):
                share = 1 / (1 + numpy.exp(b[0] * distance))
                return (-gain * share * (1 - share) * distance)[:, None]

            (steepness,), _ = leastsq(residual, [1.5], Dfun=slope)
            squares = float(numpy.sum(residual([steepness]) ** 2))
            if squares < best[0]:
                best = (squares, (ceiling, steepness, midpoint))
    return best[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("scalerl")
    parser.add_argument("file")
    parser.add_argument("--floor", default="0.4017")
    parser.add_argument("--warmup", default="1500")
    parser.add_argument("--until", default="50000")
    args = parser.parse_args()
    numpy.seterr(over="ignore")
    compute, value = read(args.file, float(args.warmup), float(args.until))
    times = []
    for _ in range(3):
        start = time.perf_counter()
        theirs = paper(compute, value, float(args.floor))
        times.append(time.perf_counter() - start)
    scipy_ms = sorted(times)[1] * 1e3
    command = [args.scalerl, "bench", "fit", args.file, "--floor", args.floor, "--json"]
    command += ["--warmup", args.warmup, "--until", args.until]
    ours = json.loads(subprocess.check_output(command))
    print(f"{len(compute)} points; scipy {scipy.__version__}, numpy {numpy.__version__}")
    print(f"scipy      {scipy_ms:10.1f} ms   A {theirs[0]:.3f} B {theirs[1]:.3f} C_mid {theirs[2]:.0f}")
    for row in ours:
        line = f"{row['method']:<10} {row['milliseconds']:10.3f} ms   A {row['ceiling']:.3f}"
        line += f" B {row['steepness']:.3f} C_mid {row['midpoint']:.0f}"
        if row["method"] == "paper":
            line += f"   {scipy_ms / row['milliseconds']:.0f} times as fast as scipy"
        print(line)


if __name__ == "__main__":
    main()
