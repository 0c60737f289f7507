"""Plays environments of the verifiers package for scalerl: JSON lines in and out, many episodes at once.

Every question has an `id`, which its answer repeats; answers come in any order. The policy is an
OpenAI-style address, and each episode has a key of its own there.
"""
import asyncio
import contextlib
import ctypes
import itertools
import json
import os
import shutil
import signal
import sys
import traceback

protocol = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)
sys.stdout = sys.stderr

SUPPORTED = "0.4."
LONGEST_LINE = 64 << 20
# What our server answers to a turn for which the episode has no room left.
NO_ROOM = ("context_length_exceeded", "refused")
# Names our endpoint among all that verifiers knows. Never set: the key is the rollout's.
KEY = "SCALERL_EPISODE_API_KEY"


class Refusal(Exception):
    """What a user can mend; shown without a traceback."""


def imported():
    try:
        import verifiers
    except ModuleNotFoundError:
        raise Refusal(f"{sys.executable} has no verifiers; install it: {sys.executable} -m pip install verifiers==0.4.0 uv")
    if not verifiers.__version__.startswith(SUPPORTED):
        raise Refusal(f"verifiers {verifiers.__version__} is installed there, and {SUPPORTED}x is spoken; "
                      f"install it: {sys.executable} -m pip install verifiers==0.4.0 uv")
    import verifiers.v1
    return verifiers.v1


def end_children_with_us():
    """Programs that verifiers starts have sessions of their own: killed with us all the same."""
    if sys.platform != "linux":
        return
    libc, start, us = ctypes.CDLL(None), asyncio.create_subprocess_exec, os.getpid()

    def tie():
        libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != us:
            os._exit(1)

    asyncio.create_subprocess_exec = lambda *given, **named: start(*given, **{"preexec_fn": tie, **named})


def the_policy(vf):
    """verifiers' own client, but each rollout with the key of its episode."""
    from verifiers.v1.clients.eval import EvalClient
    from verifiers.v1.interception import server

    class Policy(EvalClient):
        # (trace, key) by the trace's number: what a rollout calls its session.
        rollouts = {}

        def _headers(self, dialect, incoming, session_id):
            headers = super()._headers(dialect, incoming, session_id)
            headers.update(dialect.auth_headers(self.rollouts[session_id][1]))
            return headers

        @contextlib.contextmanager
        def ending(self, session_id):
            try:
                yield
            except vf.ProviderError as error:
                # Stopped, not failed: what was played is scored.
                if error.status_code == 400 and any(f'"{code}"' in str(error) for code in NO_ROOM):
                    self.rollouts[session_id][0].stop("out_of_room")
                raise

        async def get_response(self, *given, session_id=None, **named):
            with self.ending(session_id):
                return await super().get_response(*given, session_id=session_id, **named)

        async def relay(self, *given, session_id=None, **named):
            with self.ending(session_id):
                return await super().relay(*given, session_id=session_id, **named)

    # One client for all episodes: verifiers keeps a client for each endpoint it has seen, for ever.
    others = server.resolve_client
    server.resolve_client = lambda config: Policy(config) if config.api_key_var == KEY else others(config)
    return Policy


class Table:
    """The environment, and its tasks."""

    def __init__(self, environment, arguments):
        self.vf = vf = imported()
        from verifiers.v1.utils import loaders

        if environment.endswith(".py"):
            folder, file = os.path.split(os.path.abspath(environment))
            if not os.path.exists(environment):
                raise Refusal(f"there is no file {environment}")
            sys.path.insert(0, folder)
            environment = file.removesuffix(".py")
        os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
        taskset = {**arguments.get("taskset", {}), "id": environment}
        self.config = self.seated(loaders, {**arguments, "taskset": taskset})
        self.env = loaders.load_environment(self.config)
        self.tasks, self.rest = [], iter(self.env.taskset)
        self.policy = the_policy(vf)
        end_children_with_us()

    def seated(self, loaders, data):
        """The configuration, each seat with a harness and a runtime that need no login."""
        from verifiers.v1.configs.agent import AgentConfig

        kind = loaders.env_config_type(data["taskset"]["id"], data.get("id") or "")
        bundled = loaders.default_harness_id(data["taskset"]["id"])
        local = []
        for name, field in kind.model_fields.items():
            if not isinstance(field.default, AgentConfig):
                continue
            seat = data[name] = dict(data.get(name) or {})
            if "runtime" not in seat and "runtime" not in field.default.model_fields_set:
                seat["runtime"] = {"type": "subprocess"}
                local.append(name)
            if "harness" not in seat and field.default.harness is None and bundled == "bash":
                seat["harness"] = {"id": "null"}
        config = loaders.resolve_env_config(data)
        for name, harness in config.agent_harnesses().items():
            if name in local and loaders.harness_class(harness.id).EXECUTES_CODE:
                raise Refusal(
                    f"the harness {harness.id!r} of seat {name!r} runs what the model writes; say where: "
                    f'arguments.{name}.runtime = {{ type = "docker" }}, or "subprocess" for this machine, unprotected')
            if harness.id in ("null", "bash") and not shutil.which("uv"):
                raise Refusal(f"verifiers runs its chat program with uv; install it: {sys.executable} -m pip install uv")
        ours = [name for name in config.agent_harnesses() if getattr(config, name).client is None]
        if len(ours) != 1:
            raise Refusal(
                f"seats without a model of their own: {ours}; exactly one can be the policy's: "
                "give the others a client and a model (arguments.SEAT.client = { base_url = … })")
        return config

    def task(self, row):
        """The task of a row: that of its `seed`, or the row itself as the task's data."""
        if "seed" not in row:
            kind = type(self.env.taskset).task_type()
            return kind(kind.data_type().model_validate(row), self.config.taskset.task)
        index = int(row["seed"])
        self.tasks.extend(itertools.islice(self.rest, max(0, index + 1 - len(self.tasks))))
        if index >= len(self.tasks):
            raise Refusal(f"the taskset has {len(self.tasks)} tasks, and task {index} was asked for; "
                          f"source.count must be {len(self.tasks)} or less")
        return self.tasks[index]

    def check(self, count):
        if count and self.env.taskset.bounded:
            self.task({"seed": count - 1})
        return {}

    async def play(self, question):
        client = self.vf.EvalClientConfig(base_url=question["base_url"], api_key_var=KEY)
        context = self.vf.ModelContext(model=question["model"], client=client)
        minted = []

        def mint(trace):
            minted.append(trace)
            self.policy.rollouts[trace.id] = (trace, question["api_key"])

        try:
            (slot,) = self.env.slots(self.task(question["task"]))
            return said(await self.env.run_slot(slot, context, on_trace=mint), minted)
        finally:
            for trace in minted:
                self.policy.rollouts.pop(trace.id, None)


def said(episode, minted):
    """How an episode ended, as scalerl is told."""
    failed = [error for one in (episode, *minted) for error in one.errors]
    if not episode.ok:
        last = failed[-1] if failed else None
        raise Refusal(f"{last.type}: {last.message}" if last else "the episode failed without an error")
    played = [t for t in minted if t.agent.config.client.api_key_var == KEY]
    if len(played) != 1:
        raise Refusal(f"the policy played {len(played)} rollouts in one episode, and one has one reward")
    (trace,) = played
    missing = [name for name, reward in trace.rewards.items() if reward is None]
    if missing or not trace.rewards:
        raise Refusal(f"no reward: {missing or 'none'} was computed (it stopped: {trace.stop_condition})")
    scores = {f"reward_{name}": reward.score for name, reward in trace.rewards.items()}
    measured = {name: value for name, value in trace.metrics.items() if value is not None}
    return {
        "reward": trace.reward,
        "truncated": trace.is_truncated or trace.is_timeout or trace.stop_condition == "out_of_room",
        "metrics": {**scores, **measured, "turns": float(trace.num_turns)},
    }


def send(number, answer):
    try:
        text = json.dumps({**answer, "id": number}, allow_nan=False)
    except (TypeError, ValueError):
        text = json.dumps({"id": number, "error": f"an answer that cannot be sent: {answer!r}"})
    protocol.write(text + "\n")
    protocol.flush()


async def answer(table, question):
    try:
        if question["op"] == "check":
            result = table.check(question.get("count"))
        elif question["op"] == "play":
            result = await table.play(question)
        else:
            result = {}
    except asyncio.CancelledError:
        result = {"error": "given up"}
    except Refusal as refusal:
        result = {"error": str(refusal)}
    except Exception:
        result = {"error": traceback.format_exc()}
    send(question.get("id"), result)


async def questions():
    reader = asyncio.StreamReader(limit=LONGEST_LINE)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield json.loads(line)


async def serve(table):
    under_way = {}
    async with table.env.serving():
        async for question in questions():
            if question["op"] == "cancel":
                if task := under_way.get(question["of"]):
                    task.cancel()
                continue
            task = asyncio.create_task(answer(table, question))
            under_way[question.get("id")] = task
            task.add_done_callback(lambda _, number=question.get("id"): under_way.pop(number, None))
        for task in [*under_way.values()]:
            task.cancel()
        await asyncio.gather(*under_way.values(), return_exceptions=True)


async def refuse(reason):
    async for question in questions():
        send(question.get("id"), {"error": reason})


environment, arguments = sys.argv[1], json.loads(sys.argv[2])
sys.argv = [environment]
try:
    made = Table(environment, arguments)
except Refusal as refusal:
    asyncio.run(refuse(str(refusal)))
except BaseException:
    asyncio.run(refuse(traceback.format_exc()))
else:
    asyncio.run(serve(made))
