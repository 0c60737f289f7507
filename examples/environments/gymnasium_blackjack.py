"""A toy-text game of Gymnasium (1.4) as an environment: Blackjack, played in words.

    environment = { type = "python", file = "examples/environments/gymnasium_blackjack.py", python = "…/bin/python" }
"""
import re

import gymnasium


class Environment:
    def __init__(self):
        self.game = gymnasium.make("Blackjack-v1", sab=True)

    def reset(self, seed):
        seen, _ = self.game.reset(seed=seed)
        return "Blackjack: write 1 for another card, 0 to stop. " + self.told(seen)

    def told(self, seen):
        mine, dealer, has_ace = seen
        return f"You have {mine}{' with a usable ace' if has_ace else ''}, the dealer shows {dealer}."

    def step(self, text):
        choice = re.search("[01]", text)
        seen, reward, is_over, is_cut, info = self.game.step(int(choice[0]) if choice else 0)
        return self.told(seen), float(reward), is_over, is_cut, info

    def close(self):
        self.game.close()
