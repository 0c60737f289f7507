"""Writes problems of reasoning-gym as JSONL, one row each with question, answer and metadata.

    venv/bin/python examples/rewards/write_reasoning_gym.py leg_counting gcd --size 2000 --seed 1 > gym.jsonl

Problem i of seed s is problem 0 of seed s + i: seeds of sets that are to differ must lie further apart than their size.
The data set is then { type = "files", path = "gym.jsonl", prompt_column = "question" }.
"""

import argparse
import json
import sys

import reasoning_gym


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="+", help="names of reasoning-gym's data sets")
    parser.add_argument("--size", type=int, default=1000, help="problems of each")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for task in arguments.tasks:
        for entry in reasoning_gym.create_dataset(task, size=arguments.size, seed=arguments.seed):
            # Some metadata has fractions, which no judge asks for.
            json.dump(entry, sys.stdout, default=str)
            sys.stdout.write("\n")


main()
