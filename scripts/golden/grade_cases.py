#!/usr/bin/env python3
"""What Math-Verify 0.9.0 says about the cases of crates/grader/testdata/answers, and how fast it is.

  grade_cases.py [--show]

Needs Python 3.11 and `pip install math-verify==0.9.0`. Cases that ask for evaluated answers are counted apart: Math-Verify
has no such option. `--show` prints the pairs on which the verdicts differ. Speed is CPU time for `parse` and `verify` of the
pairs of crates/grader/benches/grade.rs.
"""

import collections
import importlib.metadata
import logging
import pathlib
import sys
import time
import tomllib
import warnings

from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

CASES = pathlib.Path(__file__).parents[2] / "crates/grader/testdata/answers"
KINDS = [LatexExtractionConfig(), ExprExtractionConfig()]
PROSE = ("answer", "####", "think", "boxed", "$", "\n")


def marked(text):
    """Math-Verify wants LaTeX marked as such; our cases are bare."""
    return text if any(mark in text.lower() for mark in PROSE) else f"${text}$"


def equal(gold, pred):
    read = [parse(text, KINDS, parsing_timeout=None) for text in (marked(gold), marked(pred))]
    return verify(*read, timeout_seconds=None)


def cases():
    for path in sorted(CASES.glob("*.toml")):
        for case in tomllib.loads(path.read_text())["case"]:
            if case.get("strict", True):
                kind = "evaluated" if case.get("evaluated") else "plain"
                for word in ("equal", "different"):
                    yield from ((kind, word, case["gold"], pred) for pred in case.get(word, []))


def agreement(show):
    counts = collections.Counter()
    for kind, word, gold, pred in cases():
        found = "equal" if equal(gold, pred) else "different"
        counts[kind, word, found] += 1
        if show and found != word:
            print(f"{kind}: {word} here, {found} there: {gold} | {pred}")
    for (kind, word, found), count in sorted(counts.items()):
        print(f"{kind:9} {word:9} here, {found:9} there: {count}")


def speed():
    prose = "We add 3 and 4 to get 7, then multiply by 6. " * 40
    groups = {
        "numbers": [(f"{i * 37}", f"{i + 1},000") for i in range(100)],
        "boxed numbers": [(f"{i * 37}", f"So $\\boxed{{{i * 37}}}$.") for i in range(100)],
        "numbers after 1,800 characters": [(f"{i}", f"{prose}The answer is \\boxed{{{i}}}.") for i in range(100)],
        "expressions": [
            (f"\\frac{{x+{i}}}{{\\sqrt{{{i}}}}}", f"$\\boxed{{\\frac{{x}}{{\\sqrt{{{i}}}}}+\\sqrt{{{i}}}}}$")
            for i in range(1, 101)
        ],
    }
    for name, pairs in groups.items():
        start = time.process_time()
        for gold, pred in pairs:
            equal(gold, pred)
        print(f"{name}: {len(pairs) / (time.process_time() - start):.0f} pairs a second")


def main():
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    print("math-verify", importlib.metadata.version("math-verify"), "Python", sys.version.split()[0])
    agreement("--show" in sys.argv)
    speed()


if __name__ == "__main__":
    main()
