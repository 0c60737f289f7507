"""From what a caller gives to runs: paths, frames, dicts of lists, runs already read."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from typing import Any, TypeAlias, Union

from scalerl import _frames, _native
from scalerl._errors import OptionError, ReadError
from scalerl._frames import Kind

Path: TypeAlias = Union[str, "os.PathLike[str]"]
Data: TypeAlias = Any
"""A path or several, a `Run` or several, a pandas or polars frame, a dict of lists or arrays."""


class Run:
    """The evaluations of one run, as they were read."""

    def __init__(self, native: _native.Run, kind: Kind, files: tuple[Path, ...] = ()) -> None:
        self._native, self._kind, self._files = native, kind, files

    @property
    def name(self) -> str:
        return self._native.name

    @property
    def axis(self) -> str:
        """What the compute means: gpu_hours, tokens, flops, steps or other."""
        return self._native.axis

    @property
    def x(self) -> str:
        """The column the compute came from, or the axis where it was derived."""
        return self._native.x

    @property
    def metric(self) -> str:
        """The column the values came from."""
        return self._native.metric

    @property
    def notes(self) -> list[str]:
        """What was derived, assumed or left out, in plain sentences."""
        return self._native.notes

    @property
    def points(self) -> list[tuple[float, float, float | None]]:
        """(compute, value, samples) of each evaluation; samples where they are known."""
        return self._native.points

    def to_frame(self) -> Any:
        """The points as a frame: columns compute, value, samples."""
        rows = self.points
        columns = {name: [row[i] for row in rows] for i, name in enumerate(("compute", "value", "samples"))}
        return _frames.frame(columns, self._kind)

    def __len__(self) -> int:
        return len(self._native.points)

    def __repr__(self) -> str:
        return f"Run({self.name!r}: {self.metric} by {self.x}, {len(self)} points)"


def read(
    data: Data,
    *more: Data,
    x: str | None = None,
    y: str | None = None,
    by: str | None = None,
    gpus: float | None = None,
    samples: float | None = None,
    format: str | None = None,
) -> list[Run]:
    """Reads every run in logs, run folders or frames.

    `x` is the compute column or an axis (gpu_hours, tokens, flops, steps), `y` the pass-rate column,
    `by` the column that tells runs apart; what is left out is found by looking. `gpus` turns times
    into GPU-hours, `samples` is the number of graded completions behind each value.
    """
    columns = (x, y, by, gpus, samples)
    items = [item for given in (data, *more) for item in _items(given)]
    paths = [item for item in items if isinstance(item, (str, os.PathLike))]
    if paths:
        if len(paths) < len(items):
            raise OptionError("paths and data in memory together", "read them one after the other")
        _check_paths(paths)
        found = _native.read(paths, columns, format)
        kind = _frames.loaded_kind()
        return [Run(run, kind, tuple(paths)) for run in found]
    runs: list[Run] = []
    for item in items:
        if isinstance(item, Run):
            runs.append(item)
        elif _frames.is_frame(item):
            found = _native.read_columns("data", _frames.columns_of(item), columns)
            runs.extend(Run(run, _frames.kind_of(item)) for run in found)
        else:
            hint = "give a path, a pandas or polars frame, a dict of lists, or runs of scalerl.read"
            raise ReadError(f"{type(item).__name__} cannot be read as runs", hint)
    return _told_apart(runs)


def _items(given: Data) -> Iterable[Any]:
    if isinstance(given, (list, tuple)):
        return given
    return [given]


def _check_paths(paths: list[Path]) -> None:
    for path in paths:
        if os.fspath(path) != "-" and not os.path.exists(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))


def _told_apart(runs: list[Run]) -> list[Run]:
    """Runs of one name from several frames get numbers, so that each can be named."""
    seen: dict[str, int] = {}
    named = []
    for run in runs:
        seen[run.name] = seen.get(run.name, 0) + 1
        if seen[run.name] > 1:
            native = run._native.renamed(f"{run.name}-{seen[run.name]}")
            run = Run(native, run._kind, run._files)
        named.append(run)
    return named


def one_run(runs: list[Run], name: str | None) -> Run:
    """The run that is meant."""
    if name is not None:
        runs_of_name = [run for run in runs if run.name == name]
        if not runs_of_name:
            told = ", ".join(run.name for run in runs)
            raise OptionError(f"run={name!r}: no run of that name", f"the runs are: {told}")
        return runs_of_name[0]
    if len(runs) != 1:
        told = ", ".join(run.name for run in runs[:12])
        hint = "choose one with run=, or fit them all with scalerl.fit_runs"
        raise OptionError(f"{len(runs)} runs in the data: {told}", hint)
    return runs[0]
