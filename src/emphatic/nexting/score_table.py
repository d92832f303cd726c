"""Tables that people look at: lists of dicts that show as a table, in text and in a notebook, and become frames."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

__all__ = ["ScoreTable"]

#: Rows that a table shows, and the length of a text in it, at most.
_SHOWN, _LONGEST = 60, 60


class ScoreTable(list[dict[str, Any]]):
    """A list of dicts, one for each row of a table.

    It is an ordinary list, which ``json.dumps`` takes, and shows as a table of some of its keys.

    Args:
        rows: The dicts.
        columns: The keys that are shown and become columns of frames; default: all whose values are numbers or text.

    >>> table = ScoreTable([{"signal": "x", "skill": 0.25, "more": {}}, {"signal": "y", "skill": None, "more": {}}])
    >>> table
    signal  skill
    x       0.25
    y       –
    >>> table[0]["skill"]
    0.25
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]] = (), columns: Sequence[str] | None = None) -> None:
        super().__init__(cast("Iterable[dict[str, Any]]", rows))
        self._columns = columns

    @property
    def columns(self) -> list[str]:
        """The columns of the table.

        >>> ScoreTable([{"signal": "x", "answers": {}}]).columns
        ['signal']
        """
        names = dict.fromkeys(name for row in self for name in row)
        if self._columns is not None:
            return [name for name in self._columns if name in names]
        return [name for name in names if all(_is_plain(row.get(name)) for row in self)]

    def to_dict(self) -> dict[str, list[Any]]:
        """The columns as lists, by name.

        >>> ScoreTable([{"x": 1}, {"x": None}]).to_dict()
        {'x': [1, None]}
        """
        return {name: [row.get(name) for row in self] for name in self.columns}

    def to_arrow(self) -> Any:
        """The table as an Arrow table.

        >>> ScoreTable([{"x": 1}, {"x": None}]).to_arrow().num_rows
        2
        """
        import pyarrow as pa

        columns = {}
        for name, values in self.to_dict().items():
            kinds = {type(value) for value in values if value is not None}
            mixed = str in kinds and len(kinds) > 1
            columns[name] = pa.array([None if v is None else str(v) for v in values] if mixed else values)
        return pa.table(columns)

    def to_pandas(self) -> Any:
        """The table as a pandas DataFrame.

        >>> ScoreTable([{"x": 1}, {"x": 2}]).to_pandas()["x"].tolist()
        [1, 2]
        """
        return import_frames("pandas").DataFrame(self.to_dict())

    def to_polars(self) -> Any:
        """The table as a polars DataFrame.

        >>> ScoreTable([{"x": 1}, {"x": 2}]).to_polars()["x"].to_list()
        [1, 2]
        """
        return import_frames("polars").from_arrow(self.to_arrow())

    def __repr__(self) -> str:
        names = self.columns
        lines = [names, *([_show(row.get(name)) for name in names] for row in self[:_SHOWN])]
        widths = [max(len(line[i]) for line in lines) for i in range(len(names))]
        text = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
        ]
        if len(self) > _SHOWN:
            text.append(f"… and {len(self) - _SHOWN:,} more")
        return "\n".join(text)

    __str__ = __repr__

    def _repr_html_(self) -> str:
        """The table as HTML, for notebooks."""
        names = self.columns
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        body = "".join(
            f"<tr>{''.join(f'<td>{html.escape(_show(row.get(name)))}</td>' for name in names)}</tr>"
            for row in self[:_SHOWN]
        )
        unlisted = f"<p>… and {len(self) - _SHOWN:,} more</p>" if len(self) > _SHOWN else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{unlisted}"


def import_frames(package: str) -> Any:
    """pandas or polars; ImportError with the command that installs it."""
    import importlib

    try:
        return importlib.import_module(package)
    except ImportError:
        raise ImportError(f"{package} is not installed: pip install {package}") from None


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float)


def _show(value: object) -> str:
    """A value in a cell, numbers to three digits."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1e3 else f"{value:,.0f}" if abs(value) < 1e9 else f"{value:.3g}"
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
