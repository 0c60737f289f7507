"""A verifiers 0.4 environment of several turns: say each word back as it was said.

    environment = { type = "verifiers", python = "…/bin/python", environment = "examples/environments/verifiers_repeat.py" }
"""
import random
from difflib import SequenceMatcher

import verifiers.v1 as vf

__all__ = ["RepeatEnv", "RepeatTaskset"]
WORDS = ["badge", "cabbage", "edge", "face", "fig", "head", "idea", "jade"]


class RepeatData(vf.TaskData):
    words: list[str]


class RepeatTask(vf.Task[RepeatData, vf.State, vf.TaskConfig]):
    pass


class RepeatConfig(vf.TasksetConfig):
    num_tasks: int = 64
    turns: int = 3


class RepeatTaskset(vf.Taskset[RepeatTask, RepeatConfig]):
    def load(self):
        for index in range(self.config.num_tasks):
            words = random.Random(index).sample(WORDS, self.config.turns)
            prompt = f"Repeat what I say, and nothing else. {words[0]}"
            yield RepeatTask(RepeatData(prompt=prompt, words=words), self.config.task)


class RepeatEnvConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig()


class RepeatEnv(vf.Env[RepeatEnvConfig]):
    async def run(self, task, agents):
        words, likeness = task.data.words, []
        async with agents.player.interaction(task) as interaction:
            segment = await interaction.turn()
            while not segment.terminated:
                word = words[len(likeness)]
                likeness.append(SequenceMatcher(None, word, segment.last_reply).ratio())
                if len(likeness) == len(words):
                    break
                segment = await interaction.turn(words[len(likeness)])
        interaction.trace.record_reward("likeness", sum(likeness) / len(words), 1.0)
        interaction.trace.record_metric("exact", float(likeness.count(1.0)))
