"""Data frames without depending on any: columns out of what a caller has, rows back in its kind.

pandas and polars are never imported here unless the caller's data are theirs already.
"""

from __future__ import annotations

import html
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from scalerl._errors import OptionError, ReadError

Kind = Literal["pandas", "polars", "table"]


class Table:
    """Rows with named columns, for callers without pandas or polars."""

    def __init__(self, columns: Mapping[str, Sequence[Any]]) -> None:
        self._columns = {name: list(values) for name, values in columns.items()}

    @property
    def columns(self) -> list[str]:
        return list(self._columns)

    def __getitem__(self, column: str) -> list[Any]:
        return self._columns[column]

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()), []))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.records())

    def records(self) -> list[dict[str, Any]]:
        """One dict a row."""
        return [dict(zip(self._columns, row)) for row in zip(*self._columns.values())]

    def to_dict(self) -> dict[str, list[Any]]:
        """One list a column."""
        return {name: list(values) for name, values in self._columns.items()}

    def _cells(self) -> list[list[str]]:
        def text(value: Any) -> str:
            return f"{value:.6g}" if isinstance(value, float) else str(value)

        return [[text(value) for value in row.values()] for row in self.records()]

    def __repr__(self) -> str:
        rows = [self.columns, *self._cells()]
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = ("  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in rows)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        def row(cells: Sequence[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

        body = "".join(row(cells, "td") for cells in self._cells())
        return f"<table><thead>{row(self.columns, 'th')}</thead><tbody>{body}</tbody></table>"


def kind_of(data: object) -> Kind:
    """The kind of frame that answers about these data come in."""
    package = type(data).__module__.partition(".")[0]
    if package == "pandas":
        return "pandas"
    return "polars" if package == "polars" else "table"


def is_frame(data: object) -> bool:
    """Whether columns can be taken out of it."""
    # By its package first: asking a lazy frame for its columns costs a warning.
    known = isinstance(data, Mapping) or kind_of(data) != "table"
    return known or hasattr(data, "columns") or _is_arrow(data)


def _is_arrow(data: object) -> bool:
    return hasattr(data, "__arrow_c_stream__")


def frame(columns: Mapping[str, Sequence[Any]], kind: Kind) -> Any:
    """A pandas or polars frame, or a `Table`."""
    if kind == "pandas":
        import pandas

        return pandas.DataFrame(dict(columns))
    if kind == "polars":
        import polars

        return polars.DataFrame(dict(columns))
    return Table(columns)


def columns_of(data: Any) -> list[tuple[str, list[float | str | None]]]:
    """Every column that has numbers or text, as plain lists."""
    named = _named(data)
    columns = [(str(name), _cells(values)) for name, values in named]
    lengths = {name: len(cells) for name, cells in columns}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ReadError(f"columns of different lengths: {told}", "give one cell a row and column")
    return [(name, cells) for name, cells in columns if any(cell is not None for cell in cells)]


def _named(data: Any) -> list[tuple[object, Any]]:
    if isinstance(data, (Mapping, Table)):
        keys = data.columns if isinstance(data, Table) else data.keys()
        return [(name, data[name]) for name in keys]
    if kind_of(data) == "polars" and hasattr(data, "collect"):
        data = data.collect()
    if kind_of(data) in ("pandas", "polars"):
        # By place: pandas may have two columns of one name.
        names = list(data.columns)
        if len(set(names)) < len(names):
            raise ReadError("two columns have the same name", "rename one of them")
        return [(name, data[name]) for name in names]
    if _is_arrow(data):
        data = _arrow_table(data)
        return [(name, data.column(name)) for name in data.column_names]
    return [(name, data[name]) for name in data.columns]


def _arrow_table(data: Any) -> Any:
    """Any producer of Arrow streams as a pyarrow table, or as polars' where that is there."""
    if hasattr(data, "column_names"):
        return data
    try:
        import pyarrow
    except ImportError:
        hint = "install pyarrow, or give a pandas or polars frame or a dict of lists"
        raise OptionError(f"{type(data).__name__} is Arrow data, to read it takes pyarrow", hint) from None
    return pyarrow.table(data)


def _cells(values: Any) -> list[float | str | None]:
    for method in ("tolist", "to_list", "to_pylist"):
        if hasattr(values, method):
            # pandas has NaN for what is not there; a NaN of numpy or of a list was measured.
            gap = values.isna().tolist() if kind_of(values) == "pandas" else None
            cells = getattr(values, method)()
            if gap is not None:
                cells = [None if missing else cell for missing, cell in zip(gap, cells)]
            return [_cell(cell) for cell in cells]
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        raise ReadError(
            f"{type(values).__name__} is no column", "give lists, arrays or series of equal length"
        )
    return [_cell(value) for value in values]


def _cell(value: Any) -> float | str | None:
    if value is None or isinstance(value, str):
        return value
    try:
        return float(value)
    except (TypeError, ValueError):
        # Dates, lists and the like are no metrics.
        return str(value) if type(value).__module__ != "builtins" else None


def loaded_kind() -> Kind:
    """For files: pandas or polars if the caller has imported one of them, else a `Table`."""
    for kind in ("pandas", "polars"):
        if kind in sys.modules:
            return kind
    return "table"
