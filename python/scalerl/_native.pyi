"""The Rust half; the classes for users are in the other modules."""

import os
from collections.abc import Sequence
from typing import Any, TypeAlias, final

__all__ = [
    "Fitted",
    "History",
    "Run",
    "__version__",
    "backtest",
    "command",
    "compare",
    "fit",
    "history",
    "read",
    "read_columns",
]

__version__: str

_Columns: TypeAlias = tuple[str | None, str | None, str | None, float | None, float | None]
_Choices: TypeAlias = tuple[
    tuple[float, float], str, str | None, str, float | None, History | None
]
_Cell: TypeAlias = float | str | None

@final
class Run:
    @property
    def name(self) -> str: ...
    @property
    def axis(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def x(self) -> str: ...
    @property
    def metric(self) -> str: ...
    @property
    def notes(self) -> list[str]: ...
    @property
    def points(self) -> list[tuple[float, float, float | None]]: ...
    @property
    def entropy(self) -> list[tuple[float, float]]: ...
    def renamed(self, name: str) -> Run: ...

@final
class History:
    @property
    def names(self) -> list[str]: ...
    def __len__(self) -> int: ...

@final
class Fitted:
    def record(
        self, at: Sequence[float], more_than: float, has_cuts: bool, has_wait: bool
    ) -> dict[str, Any]: ...
    def forecasts(self, at: Sequence[float]) -> list[dict[str, Any]]: ...
    def curve(self, at: Sequence[float]) -> list[dict[str, Any]]: ...
    def compute_to(self, target: float) -> dict[str, Any]: ...
    def gain(self, factor: float) -> dict[str, Any]: ...
    def more_compute(self, factor: float, more_than: float) -> dict[str, Any]: ...
    def drawing(self) -> dict[str, Any]: ...
    def svg(self, at: Sequence[float]) -> str: ...

def command(arguments: Sequence[str]) -> int: ...
def read(
    paths: Sequence[str | os.PathLike[str]], columns: _Columns, format: str | None
) -> list[Run]: ...
def read_columns(
    name: str, columns: Sequence[tuple[str, Sequence[_Cell]]], wanted: _Columns
) -> list[Run]: ...
def history(
    paths: Sequence[str | os.PathLike[str]],
    runs: Sequence[Run],
    columns: _Columns,
    range: tuple[float, float],
    provenance: tuple[str | None, str | None],
    files: Sequence[str | os.PathLike[str]],
) -> tuple[History, list[str]]: ...
def fit(runs: Sequence[Run], choices: _Choices) -> list[Fitted]: ...
def compare(
    fitted: Sequence[Fitted], baseline: str | None
) -> tuple[dict[str, Any], list[str], str]: ...
def backtest(
    runs: Sequence[Run], choices: _Choices, fractions: Sequence[float], horizon: float
) -> tuple[dict[str, Any], list[str]]: ...
