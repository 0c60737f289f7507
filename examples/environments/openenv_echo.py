"""An OpenEnv environment of several turns, and its server: say each word back as it was said.

    python openenv_echo.py PORT
    environment = { type = "openenv", url = "ws://127.0.0.1:PORT/ws", observation_key = "word" }
"""
import random
import sys
from difflib import SequenceMatcher

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_app

WORDS = ["badge", "cabbage", "edge", "face", "fig", "head", "idea", "jade"]
TURNS = 3


class Said(Action):
    message: str


class Asked(Observation):
    word: str


class EchoEnvironment(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, **kwargs):
        self.words, self.turn = random.Random(seed).sample(WORDS, TURNS), 0
        return Asked(word=self.words[0])

    def step(self, action, timeout_s=None, **kwargs):
        reward = SequenceMatcher(None, self.words[self.turn], action.message.strip()).ratio() / TURNS
        self.turn += 1
        done = self.turn == TURNS
        return Asked(word="" if done else self.words[self.turn], reward=reward, done=done)

    @property
    def state(self):
        return State(step_count=self.turn)


if __name__ == "__main__":
    app = create_app(EchoEnvironment, Said, Asked, max_concurrent_envs=64)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
