"""Seconds per step, idle shares and tokens/s of a run, from its events.jsonl: python3 step_times.py NAME EVENTS"""
import json
import statistics
import sys

name, path = sys.argv[1:]
steps = [event for event in map(json.loads, open(path)) if event["type"] == "step"]
walls = [step["ledger"]["wall_s"] for step in steps]
# The first steps wait for the first completions, and kernels are chosen in them.
skip = min(4, len(steps) - 2)
each = [b - a for a, b in zip(walls[skip:], walls[skip + 1:])]
first, last = steps[skip]["ledger"], steps[-1]["ledger"]
span = last["wall_s"] - first["wall_s"]
rate = lambda key: (last[key] - first[key]) / span
trained = [step["report"]["seconds"] for step in steps[skip + 1:]]
print(
    f"{name}: {len(each)} steps after the first {skip + 1}: {statistics.mean(each):.2f} s a step "
    f"(median {statistics.median(each):.2f}, {min(each):.2f} to {max(each):.2f}), {3600 / statistics.mean(each):.0f} steps/hour; "
    f"the update alone {statistics.mean(trained):.2f} s; generated {rate('tokens_generated'):.0f} tokens/s, "
    f"trained on {rate('tokens_trained'):.0f} tokens/s; idle: generator {1 - rate('generator_busy_s'):.0%}, trainer {1 - rate('trainer_busy_s'):.0%}; "
    f"lag up to {max(step['lag'] for step in steps)}"
)

evaluations = [event for event in map(json.loads, open(path)) if event["type"] == "evaluation"]
for event in evaluations[-1:]:
    primary = next(found for found in event["sets"] if found["name"] == event["primary"])
    roles = event["spent"]["device_seconds"]
    hours = (sum(roles.values()) - roles["evaluate"]) / 3600
    print(f"{name}: pass rate {primary['pass_rate']:.3f} at step {event['version']} after {hours:.4f} device-hours without evaluations")
