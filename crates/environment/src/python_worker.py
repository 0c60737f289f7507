"""Runs a class with reset and step for scalerl: JSON lines in and out, many episodes, one at a time.

Standard output belongs to the protocol, so it is moved away before any user code is read: whatever that
prints goes where standard error goes.
"""
import inspect
import json
import os
import sys
import traceback
import types

protocol = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)
sys.stdout = sys.stderr

path, class_name, source = sys.argv[1:4]
sys.argv = [path]
sys.path.insert(0, os.path.dirname(path))


def load():
    module = types.ModuleType("scalerl_environment")
    module.__file__ = path
    sys.modules[module.__name__] = module
    exec(compile(source, path, "exec"), module.__dict__)
    if not hasattr(module, class_name):
        raise NameError(f"{path} has no class {class_name}")
    return getattr(module, class_name)


def call(function, given):
    """Gives a function those of the arguments that it has parameters for."""
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return function(**given)
    return function(**{p.name: given[p.name] for p in parameters if p.name in given})


def messages(observation):
    if observation is None or observation == "" or observation == []:
        return []
    if isinstance(observation, dict) and "role" in observation:
        return [observation]
    if isinstance(observation, (list, tuple)) and all(isinstance(o, dict) and "role" in o for o in observation):
        return list(observation)
    text = observation if isinstance(observation, str) else json.dumps(observation, default=str)
    return [{"role": "user", "content": text}]


def numbers(info):
    return {k: float(v) for k, v in (info or {}).items() if isinstance(v, (int, float))}


def said(result):
    """(observation, reward, done[, info]), gymnasium's five, or a dict as skyrl-gym has it."""
    if isinstance(result, dict):
        observation = result.get("observations", result.get("observation"))
        done = bool(result.get("done", False) or result.get("truncated", False))
        reward, info = result.get("reward", 0.0), result.get("metrics", result.get("metadata", {}))
        truncated = bool(result.get("truncated", False))
    elif isinstance(result, tuple) and len(result) == 5:
        observation, reward, terminated, truncated, info = result
        done, truncated = bool(terminated or truncated), bool(truncated and not terminated)
    elif isinstance(result, tuple) and len(result) in (3, 4):
        observation, reward, done = result[:3]
        info, truncated = (result[3] if len(result) == 4 else {}), False
    else:
        raise TypeError(
            f"step returned {result!r}; it must return (observation, reward, done), "
            "(observation, reward, done, info), gymnasium's five values or a dict with these keys"
        )
    reward = 0.0 if reward is None else float(reward)
    info = info if isinstance(info, dict) else {}
    return {"messages": messages(observation), "reward": reward, "done": bool(done),
            "truncated": truncated, "metrics": numbers(info)}


def main():
    made, failure, episodes = None, None, {}
    try:
        made = load()
    except BaseException:
        failure = traceback.format_exc()
    for line in sys.stdin:
        question = json.loads(line)
        try:
            if failure is not None:
                raise RuntimeError(failure)
            op = question["op"]
            if op == "check":
                for method in ("reset", "step"):
                    if not callable(getattr(made, method, None)):
                        raise TypeError(f"class {class_name} has no method {method}")
                answer = {}
            elif op == "reset":
                task = question["task"]
                environment = call(made, {"task": task})
                episodes[question["episode"]] = environment
                given = {"task": task, "options": task, "seed": question["seed"] % 2**31}
                first = call(environment.reset, given)
                info = {}
                if isinstance(first, tuple) and len(first) == 2 and isinstance(first[1], dict):
                    first, info = first
                answer = {"messages": messages(first), "metrics": numbers(info)}
            elif op == "step":
                answer = said(episodes[question["episode"]].step(question["text"]))
            else:
                environment = episodes.pop(question["episode"], None)
                close = getattr(environment, "close", None)
                if callable(close):
                    close()
                answer = {}
        except Exception:
            answer = {"error": failure or traceback.format_exc()}
        try:
            text = json.dumps(answer, allow_nan=False)
        except (TypeError, ValueError):
            text = json.dumps({"error": f"an answer that cannot be sent: {answer!r}"})
        protocol.write(text)
        protocol.write("\n")
        protocol.flush()


main()
