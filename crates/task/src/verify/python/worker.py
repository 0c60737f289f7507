"""Scores completions by a function of the user's. Started and fed by scalerl (verify/python.rs).

One JSON object a line comes in and goes out over what were standard input and output. Both are taken
away before the user's code is loaded: what it prints goes to standard error, which scalerl keeps in the
run's folder. The first line has the text of the user's file; the file itself is not read again.
"""

import faulthandler
import inspect
import json
import linecache
import math
import os
import signal
import sys
import traceback
import types

# What a parameter of each form may be called; everything else is a column, or nothing.
TRL = ("prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric")
VERL = ("data_source", "solution_str", "ground_truth", "extra_info")
PLAIN = ("prompt", "completion", "full_completion", "answer", "row")
FORMS = (
    "it must have a parameter `completions` (TRL's reward functions), `solution_str` (verl's "
    "compute_score), or `completion` or `full_completion` (and prompt, answer, row)"
)
# Columns that TRL does not hand on.
NOT_COLUMNS = ("prompt", "completion", "completion_ids")
MOST_TEXT = 4000


class Refused(Exception):
    """The file or the function cannot be used: the recipe's key, and why."""

    def __init__(self, key, problem):
        super().__init__(problem)
        self.key, self.problem = key, problem


def main():
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    faulthandler.enable()
    die_with_parent()

    def say(reply):
        replies.write(json.dumps(reply).encode() + b"\n")
        replies.flush()

    setup = json.loads(requests.readline())
    try:
        reward = Reward(setup)
    except Refused as refused:
        return say({"refused": {"key": refused.key, "problem": refused.problem}})
    say(reward.hello)
    for line in requests:
        request = json.loads(line)
        answers = reward.judge(request["items"])
        sys.stdout.flush()
        say({"id": request["id"], "replies": answers})


def die_with_parent():
    """A run that is killed takes its judges with it, busy ones too. Linux; elsewhere they end when idle."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    except (ImportError, OSError, AttributeError):
        pass


class Reward:
    """The user's function, and how it wants to be called."""

    def __init__(self, setup):
        self.file, self.name = setup["file"], setup["function"]
        self.loop = None
        self.function = self.load(setup["text"])
        self.read_signature()
        is_async = inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(
            getattr(self.function, "__call__", None)
        )
        takes_several = self.form == "trl" or is_async
        self.hello = {
            "ready": self.form,
            "columns": self.columns,
            "completion_ids": self.form == "trl" and self.accepts("completion_ids"),
            "most_per_call": setup["batch_size"] if takes_several else 1,
        }

    def load(self, text):
        """Runs the text as the module that its file would be."""
        folder, base = os.path.split(os.path.abspath(self.file))
        if sys.path and sys.path[0] == "":
            sys.path[0] = folder
        else:
            sys.path.insert(0, folder)
        path = os.path.join(folder, base)
        # Tracebacks quote the text that runs, whatever the file has become.
        linecache.cache[path] = (len(text), None, text.splitlines(True), path)
        module = types.ModuleType(os.path.splitext(base)[0])
        module.__file__ = path
        sys.modules.setdefault(module.__name__, module)
        try:
            exec(compile(text, path, "exec"), module.__dict__)
        except BaseException as error:
            raise Refused("file", f"{self.file} cannot be imported: {told(error)}") from error
        function = getattr(module, self.name, None)
        if callable(function) and not inspect.isclass(function):
            return function
        found = [name for name, one in vars(module).items() if inspect.isroutine(one)]
        found = ", ".join(found[:20]) or "none"
        what = "is no function" if hasattr(module, self.name) else "does not exist"
        raise Refused("function", f"`{self.name}` {what} in {self.file}; functions there: {found}")

    def read_signature(self):
        try:
            parameters = inspect.signature(self.function).parameters.values()
        except (TypeError, ValueError) as error:
            raise Refused("function", f"the parameters of `{self.name}` cannot be read: {error}") from error
        by_name = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        self.names = {p.name for p in by_name}
        self.takes_any = any(p.kind == p.VAR_KEYWORD for p in parameters)
        needed = [p.name for p in by_name if p.default is p.empty]
        written = f"{self.name}({', '.join(str(p) for p in parameters)})"
        if any(p.kind == p.POSITIONAL_ONLY and p.default is p.empty for p in parameters):
            raise Refused("function", f"{written} in {self.file}: parameters are given by name")
        self.columns = []
        if "solution_str" in self.names:
            self.form, known = "verl", VERL
        elif self.names.intersection(TRL[:3]) or (self.takes_any and not self.names):
            self.form, known = "trl", TRL
            self.columns = [name for name in needed if name not in TRL + NOT_COLUMNS]
        elif self.names.intersection(("completion", "full_completion")):
            self.form, known = "plain", PLAIN
        else:
            raise Refused("function", f"{written} in {self.file} is no reward function: {FORMS}")
        strange = [name for name in needed if name not in known and name not in self.columns]
        if strange:
            raise Refused(
                "function",
                f"{written} in {self.file}: nothing can be given for {', '.join(strange)}; "
                f"known here: {', '.join(known)}",
            )

    def accepts(self, name):
        return self.takes_any or name in self.names

    def judge(self, items):
        """A reply for each. Where a call of several raises, each is tried alone."""
        try:
            if self.form == "trl":
                return [self.reply(score) for score in self.several(items)]
            arguments = [verl(item) if self.form == "verl" else plain(item) for item in items]
            return [self.replied(result) for result in self.each(arguments)]
        except BaseException as error:  # SystemExit too: it is the function's mistake.
            if len(items) == 1:
                return [self.failed(error)]
        return [reply for item in items for reply in self.judge([item])]

    def several(self, items):
        scores = self.finish(self.function(**self.accepted(trl(items))))
        if scores is None or isinstance(scores, (str, bytes, dict)):
            raise TypeError(f"{self.name} returned {short(scores)}, not a list of rewards")
        scores = list(scores)
        if len(scores) != len(items):
            raise ValueError(f"{self.name} returned {len(scores)} rewards for {len(items)} completions")
        return scores

    def each(self, arguments):
        results = [self.function(**self.accepted(one)) for one in arguments]
        if not any(inspect.isawaitable(result) for result in results):
            return results

        async def together():
            import asyncio

            return await asyncio.gather(*results, return_exceptions=True)

        return self.finish(together())

    def finish(self, result):
        if not inspect.isawaitable(result):
            return result
        import asyncio

        if self.loop is None:
            self.loop = asyncio.new_event_loop()

        async def wait():
            return await result

        return self.loop.run_until_complete(wait())

    def accepted(self, values):
        return {name: value for name, value in values.items() if self.accepts(name)}

    def replied(self, result):
        """Of a function that scores one: a number, or verl's dictionary with a `score`."""
        if isinstance(result, BaseException):
            return self.failed(result)
        if isinstance(result, dict):
            if "score" not in result:
                return {"error": f"{self.name} in {self.file} returned {short(result)}, without a `score`"}
            result = result["score"]
        return self.reply(result)

    def reply(self, score):
        if score is None:
            return {"undecided": f"{self.name} in {self.file} returned None: no reward for this completion"}
        kind = type(score)
        if issubclass(kind, (str, bytes)) or not (hasattr(kind, "__float__") or hasattr(kind, "__index__")):
            return {"error": f"{self.name} in {self.file} returned {short(score)}, which is no number"}
        try:
            number = float(score)
        except BaseException as error:
            return self.failed(error)
        if not math.isfinite(number):
            return {"error": f"{self.name} in {self.file} returned {number}, which is no finite number"}
        return {"score": number}

    def failed(self, error):
        """First a line that is the same for the same mistake, then what Python says of it."""
        frames = [one for one in traceback.extract_tb(error.__traceback__) if one.filename != "<string>"]
        here = [one for one in frames if one.filename == os.path.abspath(self.file)]
        line = f", line {here[-1].lineno}" if here else ""
        first = f"{self.name} in {self.file}{line} raised {type(error).__name__}"
        text = f"{first}\n{told(error)}"
        print(text, file=sys.stderr, flush=True)
        return {"error": text}


def trl(items):
    """Conversations are lists of messages, as in TRL; plain prompts and their completions are texts."""

    def said(item):
        text = item["full_completion"]
        return [{"role": "assistant", "content": text}] if item["is_chat"] else text

    values = {}
    for name in dict.fromkeys(name for item in items for name in item["row"]):
        if name not in NOT_COLUMNS:
            values[name] = [item["row"].get(name) for item in items]
    values.setdefault("answer", [item["answer"] for item in items])
    values["prompts"] = [item["messages"] if item["is_chat"] else item["prompt"] for item in items]
    values["completions"] = [said(item) for item in items]
    values["completion_ids"] = [item["completion_ids"] for item in items]
    steps = [item["version"] for item in items if item["version"] is not None]
    values["trainer_state"] = types.SimpleNamespace(global_step=max(steps, default=0))
    values["log_extra"] = values["log_metric"] = lambda *_, **__: None
    return values


def verl(item):
    row = item["row"]
    judged_by = row.get("reward_model")
    has_truth = isinstance(judged_by, dict) and "ground_truth" in judged_by
    return {
        "data_source": row.get("data_source", item["dataset"]),
        "solution_str": item["full_completion"],
        "ground_truth": judged_by["ground_truth"] if has_truth else item["answer"],
        "extra_info": row.get("extra_info") or {},
    }


def plain(item):
    return {name: item[name] for name in PLAIN}


def told(error):
    """The traceback without our own frames."""
    found = traceback.TracebackException.from_exception(error)
    one = found
    while one is not None:
        one.stack = traceback.StackSummary.from_list(
            [frame for frame in one.stack if frame.filename != "<string>"]
        )
        one = one.__cause__ or one.__context__
    text = "".join(found.format()).rstrip()
    return text if len(text) <= MOST_TEXT else f"…{text[-MOST_TEXT:]}"


def short(value):
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


main()
