#!/usr/bin/env python3
"""Golden numbers for crate curve, by other tools: writes crates/curve/testdata/golden_fits.json.

- `paper`: the authors' grid with scipy's least squares for B in every cell.
- `profile`, `power_law`: scipy.optimize.least_squares from many starts.
- `marginal`: the default method written once more in plain numpy, straight from its formulas:
  no lanes, no pruning of scales, exact weighted quantiles of a large sample.

Needs numpy and scipy. With further CSV files as arguments (columns gpu_hours, pass_rate) prints
the paper's fit of each for the window 1,500 to 50,000 with floor 0.4017, and its time.
"""

import csv
import json
import pathlib
import platform
import sys
import time

import numpy
import scipy
from scipy.optimize import least_squares

ROOT = pathlib.Path(__file__).resolve().parents[2]


def read(path):
    rows = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    table = list(csv.DictReader(rows))
    compute = numpy.array([float(row["gpu_hours"]) for row in table])
    value = numpy.array([float(row["pass_rate"]) for row in table])
    return compute, value


def paper(compute, value, floor):
    """A on {0.450 ... 0.800}, 100 linear C_mid in [100, 40000], B by least squares, best wins."""
    best = (numpy.inf, None)
    log = numpy.log(compute)
    for midpoint in numpy.linspace(100, 40000, 100):
        distance = numpy.log(midpoint) - log
        for ceiling in numpy.arange(0.450, 0.8001, 0.005):
            def residual(b):
                with numpy.errstate(over="ignore"):
                    return floor + (ceiling - floor) / (1 + numpy.exp(b[0] * distance)) - value

            found = least_squares(residual, [1.5], method="lm")
            squares = float(numpy.sum(found.fun**2))
            if squares < best[0]:
                best = (squares, (float(ceiling), float(found.x[0]), float(midpoint)))
    ceiling, steepness, midpoint = best[1]
    return {"ceiling": ceiling, "steepness": steepness, "midpoint": midpoint, "squares": best[0]}


def profile(compute, value, floor):
    best = None
    for b in (0.7, 1.5, 3.0):
        for c in (0.2, 0.5, 1.0, 2.0):
            start = [value.max(), numpy.log(b), numpy.log(c * compute[-1])]
            def residual(p):
                share = 1 / (1 + numpy.exp(numpy.exp(p[1]) * (p[2] - numpy.log(compute))))
                return floor + (p[0] - floor) * share - value

            found = least_squares(residual, start, xtol=1e-14, ftol=1e-14)
            if best is None or found.cost < best.cost:
                best = found
    a, b, c = best.x
    return {"ceiling": a, "steepness": float(numpy.exp(b)), "midpoint": float(numpy.exp(c))}


def power_law(compute, value):
    best = None
    for b in (0.1, 0.3, 0.6, 1.0, 1.5):
        def residual(p):
            return p[0] - p[1] * (compute / compute[0]) ** -p[2] - value

        found = least_squares(residual, [value.max() + 0.05, 0.3, b], xtol=1e-14, ftol=1e-14)
        if best is None or found.cost < best.cost:
            best = found
    return {"ceiling": best.x[0], "steepness": best.x[2]}


def marginal(compute, value, samples, at, draws=200_000, seed=7):
    n = len(compute)
    first = compute[compute > 0][0]
    x = numpy.log(compute + first / 2)
    a = x - x[-1]
    later = numpy.median(value[n // 2:])
    noise = numpy.sqrt(later * (1 - later) / samples)
    walk = numpy.where(numpy.outer(a, a) > 0, numpy.minimum.outer(abs(a), abs(a)), 0)
    trend = numpy.maximum(a + 1, 0)
    drift = walk + numpy.outer(trend, trend)
    level = value[-3:].mean()
    gap = numpy.maximum(level - value, 0)
    gap = numpy.maximum.accumulate(gap[::-1])[::-1]
    gap = numpy.maximum(gap - 2 * noise, 0)
    height = gap**2 / gap[0] if gap[0] > 0 else gap
    distrust = numpy.minimum.outer(height, height) ** 2
    gain_so_far = max(level - value[0], 0)
    gain_sd = min(0.2, 0.05 + gain_so_far)
    prior_precision = numpy.diag([1 / 0.09, 1 / 0.09])
    prior_pull = prior_precision @ numpy.array([value[0], 0.65])
    tails = [(1.0, 0.45), (0.5, 0.35), (4.0, 0.20)]
    whole = [numpy.log([0.4, 6.0]), numpy.log([0.1 * first, 4 * compute[-1]])]
    boxes = [[w.copy() for w in whole] for _ in tails]
    scales = [
        (t, l, s, -0.5 * (numpy.log(t / 0.01) / 0.8) ** 2 - 0.5 * (numpy.log(s) / 0.5) ** 2)
        for t in (0.002, 0.0045, 0.01, 0.022, 0.05)
        for l in (0.03, 0.1, 0.3, 1.0)
        for s in (0.5, 0.8, 1.25, 2.0, 3.2)
    ]

    def share(b, c, q, computes):
        return 1 - (1 + (computes / numpy.exp(c)) ** numpy.exp(b)) ** -q

    for round_ in range(3):
        shapes = []
        for (q, weight), box in zip(tails, boxes):
            bs, cs = numpy.linspace(*box[0], 8), numpy.linspace(*box[1], 14)
            area = numpy.log((bs[1] - bs[0]) * (cs[1] - cs[0]))
            for b in bs:
                for c in cs:
                    prior = -0.5 * ((b - numpy.log(1.6)) / 0.5) ** 2
                    prior += -numpy.log(whole[1][1] - whole[1][0]) + numpy.log(weight) + area
                    shapes.append((b, c, q, prior))
        g = numpy.array([share(b, c, q, compute) for b, c, q, _ in shapes])
        logs = numpy.empty((len(scales), len(shapes)))
        means, covariances = {}, {}
        for i, (t, l, s, scale_prior) in enumerate(scales):
            v = t**2 * drift + l**2 * distrust + (s * noise) ** 2 * numpy.eye(n)
            inverse = numpy.linalg.inv(v)
            log_determinant = numpy.linalg.slogdet(v)[1]
            for j, (_, _, _, shape_prior) in enumerate(shapes):
                design = numpy.stack([1 - g[j], g[j]], axis=1)
                left = (1 - g[j][-1]) * numpy.array([-1.0, 1.0])
                p = prior_precision + numpy.outer(left, left) / gain_sd**2
                m = design.T @ inverse @ design + p
                b = design.T @ inverse @ value + prior_pull
                mean = numpy.linalg.solve(m, b)
                misfit = value @ inverse @ value - b @ mean
                misfit += prior_pull @ numpy.linalg.solve(p, prior_pull)
                logs[i, j] = (
                    -0.5 * misfit - 0.5 * log_determinant
                    - 0.5 * numpy.log(numpy.linalg.det(m)) + 0.5 * numpy.log(numpy.linalg.det(p))
                    + scale_prior + shape_prior
                )
                if round_ == 2:
                    means[i, j], covariances[i, j] = mean, numpy.linalg.inv(m)
        weights = numpy.exp(logs - logs.max())
        weights /= weights.sum()
        if round_ == 2:
            break
        for k, box in enumerate(boxes):
            part = weights[:, k * 112:(k + 1) * 112].sum(axis=0)
            keep = [shapes[k * 112 + j] for j in range(112) if part[j] > 1e-4 * part.sum()]
            for axis in (0, 1):
                cells = (8, 14)[axis] - 1
                margin = 0.7 * (box[axis][1] - box[axis][0]) / cells
                values = [shape[axis] for shape in keep]
                box[axis] = numpy.array([
                    max(min(values) - margin, whole[axis][0]),
                    min(max(values) + margin, whole[axis][1]),
                ])
    random = numpy.random.default_rng(seed)
    picks = random.choice(weights.size, size=draws, p=weights.ravel())
    floors, ceilings, values, measured = [], [], [], []
    cache = {}
    a_star = numpy.log(at + first / 2) - x[-1]
    for pick, count in zip(*numpy.unique(picks, return_counts=True)):
        i, j = divmod(int(pick), len(shapes))
        t, l, s, _ = scales[i]
        if i not in cache:
            v = t**2 * drift + l**2 * distrust + (s * noise) ** 2 * numpy.eye(n)
            inverse = numpy.linalg.inv(v)
            k = t**2 * (a_star + 1) * trend
            own = t**2 * (a_star + (a_star + 1) ** 2)
            cache[i] = (inverse @ k, own - k @ inverse @ k)
        gain_of, variance = cache[i]
        levels = random.multivariate_normal(means[i, j], covariances[i, j], size=count)
        good = (levels[:, 1] <= 1) & (levels[:, 1] >= 0) & (levels[:, 0] >= 0)
        levels = levels[good]
        b, c, q, _ = shapes[j]
        curve = levels[:, [0]] * (1 - g[j]) + levels[:, [1]] * g[j]
        mean = (value - curve) @ gain_of
        share_at = share(b, c, q, at)
        new = levels[:, 0] * (1 - share_at) + levels[:, 1] * share_at + mean
        new = new + numpy.sqrt(max(variance, 0)) * random.standard_normal(len(levels))
        drifted = levels[:, 1] + t * numpy.sqrt(numpy.log(10)) * random.standard_normal(len(levels))
        floors.append(levels[:, 0])
        ceilings.append(numpy.stack([levels[:, 1], drifted]))
        values.append(new)
        measured.append(new + s * noise * random.standard_t(5, size=len(levels)))
    floors, values, measured = map(numpy.concatenate, (floors, values, measured))
    ceilings = numpy.concatenate(ceilings, axis=1)
    quantile = lambda v, q: float(numpy.quantile(v, q))
    return {
        "floor": quantile(floors, 0.5),
        "ceiling": quantile(ceilings[0], 0.5),
        "ceiling_low": quantile(ceilings[1], 0.05),
        "ceiling_high": quantile(ceilings[1], 0.95),
        "at": at,
        "forecast": quantile(values, 0.5),
        "forecast_low": quantile(measured, 0.05),
        "forecast_high": quantile(measured, 0.95),
    }


def main():
    for extra in sys.argv[1:]:
        compute, value = read(pathlib.Path(extra))
        keep = (compute >= 1500) & (compute <= 50_000)
        start = time.perf_counter()
        found = paper(compute[keep], value[keep], 0.4017)
        print(extra, found, f"{time.perf_counter() - start:.2f} s, {keep.sum()} points")
    compute, value = read(ROOT / "examples" / "curves" / "scalerl-8b.csv")
    early = compute <= 8000
    golden = {
        "made_by": "scripts/golden/curve_fits.py",
        "versions": {
            "python": platform.python_version(),
            "numpy": numpy.__version__,
            "scipy": scipy.__version__,
        },
        "curve": "examples/curves/scalerl-8b.csv",
        "floor": 0.40,
        "paper": paper(compute, value, 0.40),
        "profile": profile(compute, value, 0.40),
        "power_law": power_law(compute[compute >= 2000], value[compute >= 2000]),
        "marginal": marginal(compute, value, 16_000, 32_000.0),
        "marginal_until_8000": marginal(compute[early], value[early], 16_000, 16_000.0),
    }
    path = ROOT / "crates" / "curve" / "testdata" / "golden_fits.json"
    path.write_text(json.dumps(golden, indent=2) + "\n")
    print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
