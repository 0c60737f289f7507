"""The reward of the case "python" in tests/same_cut.rs."""


def score(completion, answer):
    return completion is not None and completion.strip() == answer
