"""A game of TextArena (0.7) as an environment: guess the number between 1 and 20.

    environment = { type = "python", file = "examples/environments/textarena_game.py", python = "…/bin/python" }
"""
import random
import re

import textarena


class Environment:
    def __init__(self, task):
        self.game = textarena.make(task.get("game", "GuessTheNumber-v0-raw"))
        self.shown = 0

    def reset(self, seed):
        random.seed(seed)  # the game draws from it
        self.game.reset(num_players=1, seed=seed)
        return self.news()

    def news(self):
        """What the game has said since it was last asked."""
        log = self.game.state.logs
        new, self.shown = log[self.shown:], len(log)
        return "\n".join(text for who, text in new if who == textarena.GAME_ID)

    def step(self, text):
        # The game wants its number in brackets; any number will do here.
        number = re.search(r"\d+", text)
        done, _ = self.game.step(f"[{number[0]}]" if number else text)
        if not done:
            return self.news(), 0.0, False
        rewards, _ = self.game.close()
        return "", float(rewards[0]), True, {"turns": self.game.state.turn}
