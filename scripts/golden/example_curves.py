#!/usr/bin/env python3
"""Makes examples/curves/*.csv: runs drawn from fits of Table 1 of arXiv 2510.13786.

Each evaluation is binomial, 1,000 held-out prompts x 16 generations, every point independent.
Made with Python 3.11 and numpy 2.4.6; the seed is fixed, so a rerun gives the same files.
"""

import pathlib

import numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAMPLES = 16_000
# name, C_mid, B, A, R0, last compute in GPU-hours, evaluations
SCALERL = [("scalerl-8b", 2542, 1.92, 0.610, 0.40, 16_000, 40)]
BATCH = [
    ("batch-512", 2818, 1.77, 0.605, 0.40, 16_000, 32),
    ("batch-768", 2542, 1.92, 0.610, 0.40, 16_000, 32),
    ("batch-2048", 10909, 1.70, 0.645, 0.40, 50_000, 50),
]
RECIPES = [
    ("scalerl", 2542, 1.97, 0.610, 0.40, 10_000, 32),
    ("minimax-m1", 2700, 1.77, 0.610, 0.40, 10_000, 32),
    ("magistral", 2542, 1.80, 0.535, 0.40, 10_000, 32),
    ("grpo-deepseek", 2600, 1.70, 0.490, 0.40, 10_000, 32),
]


def law(compute, midpoint, steepness, ceiling, floor):
    return floor + (ceiling - floor) / (1 + (midpoint / compute) ** steepness)


def write(name, runs, seed):
    random = numpy.random.default_rng(seed)
    lines = [
        "# simulated from fits of Table 1 of arXiv 2510.13786 (recipes: its Figure 2, C_mid assumed)",
        "run,gpu_hours,pass_rate,samples",
    ]
    for run, midpoint, steepness, ceiling, floor, last, count in runs:
        for i in range(1, count + 1):
            compute = last * i / count
            rate = law(compute, midpoint, steepness, ceiling, floor)
            passed = random.binomial(SAMPLES, rate)
            lines.append(f"{run},{compute:.1f},{passed / SAMPLES:.6f},{SAMPLES}")
    path = ROOT / "examples" / "curves" / f"{name}.csv"
    path.write_text("\n".join(lines) + "\n")
    print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    write("scalerl-8b", SCALERL, 1)
    write("batch-size", BATCH, 2)
    write("recipes", RECIPES, 3)
