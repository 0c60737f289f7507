"""Exceptions: the messages and hints of the Rust code, with arguments spelled as Python has them."""

from __future__ import annotations

import re

# The native code speaks of the command's options.
_OPTION = re.compile(r"--([a-z][a-z-]*)(=)?")


def _as_arguments(text: str) -> str:
    return _OPTION.sub(lambda found: found[1].replace("-", "_") + "=", text)


class Error(ValueError):
    """Anything that scalerl cannot do with what it was given."""

    message: str
    """What is wrong."""
    hint: str
    """What to do about it; empty where that is not known."""

    def __init__(self, message: str, hint: str = "") -> None:
        self.message, self.hint = _as_arguments(message), _as_arguments(hint)
        super().__init__(f"{self.message}\nhint: {self.hint}" if hint else self.message)


class ReadError(Error):
    """The data hold no points that can be used."""


class FitError(Error):
    """The points cannot be fitted, or the runs not compared."""


class OptionError(Error):
    """An argument that cannot be meant."""
