#!/usr/bin/env python3
"""Golden numbers for the default method of crate curve: writes crates/curve/testdata/golden_mixture.json.

    mixture_fits.py REFERENCE.py [DATA]

REFERENCE.py is the numpy form of the method (functions cells, mixture, forecast, summarise, its
assumptions in P); it is not shipped. Its cells are taken as they are; quantiles of the mixture are found
twice: by the reference itself (eight atoms a cell in a histogram of 0.0005) and exactly, by bisection
on the sum of normals. DATA is a folder with curves/*.csv: with it, the numbers for other people's
curves are made too (the numbers are kept, the curves are not).

Cases: every third recorded run of docs/results and simulated series, each fitted on a quarter, half and
three quarters of its compute and asked for its end, alone and with a history of five runs.
"""

import csv
import importlib.util
import json
import pathlib
import platform
import sys

import numpy
import scipy
from scipy.special import ndtr

ROOT = pathlib.Path(__file__).resolve().parents[2]
FRACTIONS = (0.25, 0.5, 0.75)
AXES = {"tokens": "tokens", "steps": "step", "device-hours": "gpu_hours"}


def recorded():
    """Every run of docs/results as (key, compute, value, samples)."""
    for folder in sorted((ROOT / "docs" / "results").iterdir()):
        if not (folder / "points.csv").is_file():
            continue
        axes = {}
        for line in (folder / "runs.jsonl").read_text().splitlines():
            meta = json.loads(line)
            axes[meta["run"]] = AXES[meta["axis"]]
        rows = {}
        for row in csv.DictReader((folder / "points.csv").open()):
            rows.setdefault(row["run"], []).append(row)
        for run, axis in axes.items():
            points = [(float(r[axis]), float(r["pass_rate"]), float(r["samples"])) for r in rows[run]]
            yield (f"{folder.name}/{run}", *map(numpy.array, zip(*points)))


def foreign(data):
    for path in sorted((data / "curves").glob("*.csv")):
        lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
        rows = {}
        for row in csv.DictReader(lines):
            compute = float(row["gpu_hours"] if "gpu_hours" in row else row["step"])
            rows.setdefault(row["run"], []).append((compute, float(row["pass_rate"])))
        for run, points in rows.items():
            yield (f"{path.stem}/{run}", *map(numpy.array, zip(*sorted(points))), None)


def simulated():
    """Dense and noisy series, with and without known samples, and one with a dip."""
    random = numpy.random.default_rng(16)
    for index, (count, samples, midpoint, steepness, known) in enumerate([
        (30, 64, 0.5, 1.5, True), (60, 64, 0.2, 2.0, False), (120, 128, 1.0, 1.2, True),
        (120, 64, 0.1, 1.0, False), (8, 4096, 0.3, 1.8, True), (26, 1024, 0.4, 3.0, True),
    ]):
        compute = numpy.arange(1, count + 1) * (1000.0 / count)
        truth = 0.3 + 0.4 / (1 + (1000 * midpoint / compute) ** steepness)
        if index == 5:
            truth[15:17] -= 0.15
        value = random.binomial(samples, truth) / samples
        yield (f"simulated/{index}", compute, value, numpy.full(count, float(samples)) if known else None)


def exact_quantiles(weights, means, deviations, shares):
    """Bisection on the sum of normals."""
    found = []
    for share in shares:
        low, high = (means - 10 * deviations).min(), (means + 10 * deviations).max()
        for _ in range(80):
            middle = (low + high) / 2
            if weights @ ndtr((middle - means) / deviations) < share:
                low = middle
            else:
                high = middle
        found.append((low + high) / 2)
    return found


def components(reference, compute, value, samples, at, history):
    """The mixture of the reference's own cells and branches: (weights, parts of each number)."""
    d = reference.cells(compute, value, samples, at)
    base, branches = reference.mixture(d, history)
    logs = numpy.concatenate([b[0] for b in branches])
    weights = numpy.exp(logs - logs.max())
    weights /= weights.sum()
    means, variances, ceilings, ceiling_variances = [], [], [], []
    for _, h in branches:
        if h is None:
            means.append(base["mean"][0]); variances.append(base["var"][0])
            ceilings.append(base["A"]); ceiling_variances.append(base["Av"])
            continue
        gain = base["covA"][0] / (base["Av"] + h[1])
        means.append(base["mean"][0] + gain * (h[0] - base["A"]))
        variances.append(numpy.maximum(base["var"][0] - gain * base["covA"][0], 1e-8))
        gain = base["Av"] / (base["Av"] + h[1])
        ceilings.append(base["A"] + gain * (h[0] - base["A"]))
        ceiling_variances.append(base["Av"] * (1 - gain))
    join = numpy.concatenate
    tile = lambda z: numpy.tile(z, len(branches))
    return (weights, join(means), join(variances), tile(base["sigma"]), join(ceilings),
            join(ceiling_variances), tile(base["tau"]))


def numbers(reference, compute, value, samples, at, history):
    weights, means, variances, noise, ceilings, ceiling_variances, tau = components(
        reference, compute, value, samples, [at], history)
    big = weights > 1e-6
    shares, w = (0.05, 0.5, 0.95), weights[big] / weights[big].sum()
    inflate = reference.P["inflate"]
    spread = lambda v: inflate * numpy.sqrt(v)[big]
    measured = exact_quantiles(w, means[big], spread(variances + noise**2), shares)
    curve = exact_quantiles(w, means[big], spread(variances), shares)
    drifted = numpy.sqrt(ceiling_variances + tau**2 * numpy.log(10))[big]
    ceiling = exact_quantiles(w, ceilings[big], drifted, shares)
    own = reference.forecast(compute, value, [at], samples=samples, history=history)
    return {
        "measured": measured, "curve": [curve[0], curve[2]], "ceiling": ceiling,
        "from_history": own["from_history"],
        "histogram": [float(own[key][0]) for key in ("low", "value", "high")],
        "histogram_ceiling": [float(own[key]) for key in ("A_low", "A", "A_high")],
        "mean": float(weights @ means),
    }


def summary(reference, series):
    found = reference.summarise(*series)
    return {"ceiling": found["A"], "ceiling_sd": found["A_sd"], "tails": found["shape"].tolist()}


def cases(reference, runs, history):
    for key, compute, value, samples in runs:
        for fraction in FRACTIONS:
            keep = compute <= compute[-1] * fraction
            if keep.sum() < 3:
                continue
            part = (compute[keep], value[keep], None if samples is None else samples[keep])
            case = {"run": key, "fraction": fraction, "at": float(compute[-1])}
            case["alone"] = numbers(reference, *part, case["at"], [])
            case["with_history"] = numbers(reference, *part, case["at"], history)
            yield case
        print(key, flush=True)


def main():
    spec = importlib.util.spec_from_file_location("reference", sys.argv[1])
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    own = list(recorded())
    history_keys = [own[i][0] for i in (1, 9, 20, 40, 70)]
    by_key = {run[0]: run[1:] for run in own}
    history = [reference.summarise(*by_key[key]) for key in history_keys]
    series = list(simulated())
    golden = {
        "made_by": "scripts/golden/mixture_fits.py",
        "versions": {
            "python": platform.python_version(),
            "numpy": numpy.__version__,
            "scipy": scipy.__version__,
        },
        "history": [{"run": key, **summary(reference, by_key[key])} for key in history_keys],
        "simulated": {
            key: {"compute": c.tolist(), "value": v.tolist(), "samples": None if n is None else n.tolist()}
            for key, c, v, n in series
        },
        "recorded": list(cases(reference, own[::3], history)),
        "simulated_cases": list(cases(reference, series, history)),
    }
    if len(sys.argv) > 2:
        golden["foreign"] = list(cases(reference, foreign(pathlib.Path(sys.argv[2])), history))
    path = ROOT / "crates" / "curve" / "testdata" / "golden_mixture.json"
    text = json.dumps(golden, indent=1)
    path.write_text(text + "\n")
    print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
