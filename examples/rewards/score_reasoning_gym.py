"""reasoning-gym's own score_answer as a reward, for rows that write_reasoning_gym.py has written.

    verifier = { type = "python", file = "examples/rewards/score_reasoning_gym.py", python = "venv/bin/python" }

Tried with reasoning-gym 0.1.25. Every one of its tasks scores from 0 to 1; some give a little for an answer
of the right form.
"""

from reasoning_gym import get_score_answer_fn


def score(completion, row):
    """`completion` is the answer as the recipe's [format] cuts it, or None."""
    judge = get_score_answer_fn(row["metadata"]["source_dataset"])
    return judge(None if completion is None else completion.strip(), row)
