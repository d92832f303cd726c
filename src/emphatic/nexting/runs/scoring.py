"""Scoring a run: the scores of all questions, the verdict on each signal, and the predictions as one file.

Scores are sums that were kept while rows were learned from (``nexting.answers``, ``nexting.runs.gvfs``). What is left
to do is to go once through the predictions, which lie in parts: to list the alarms, and to write one file, in
float32 where that is exact enough.

The scores come as a ``ScoreTable``: a list of dicts that shows as a table, in text and in a notebook, and becomes a
frame.
"""

from __future__ import annotations

import html
import math
import time as clock_time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from emphatic.common.parts import open_writer
from emphatic.nexting.answers.language import describe_learning
from emphatic.nexting.runs.alarms import AlarmList, read_reasons
from emphatic.nexting.runs.learning import PREDICTIONS, Learned, Progress
from emphatic.nexting.runs.outlook import values_at
from emphatic.nexting.scores.verdicts import TOO_SHORT

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ScoreTable", "Scored", "import_pandas", "score_log"]

#: Bytes of predictions that are written together, at least.
_ROW_GROUP = 1 << 25
#: The fewest rows of a group of rows, but for the last: for each column of each group a file has a kilobyte of facts.
_GROUP_ROWS = 256
#: A signal is written in float64 if a step of float32 at its level is a larger share of its range than this, or if its
#: level is larger than that.
_EXACT, _LARGEST = 1e-5, 1e30


@dataclass(frozen=True, eq=False)
class Scored:
    """A log that has been scored.

    Args:
        learned: The log after learning.
        summary: The objects of ``summary.json``.
        alarms: The alarms with the highest scores.
        span: The first and the last time; None without times.
        seconds: How long scoring took.
    """

    learned: Learned
    summary: list[dict[str, Any]]
    alarms: list[dict[str, Any]]
    span: tuple[float | None, float | None]
    seconds: float


def score_log(learned: Learned, progress: Progress) -> Scored:
    """Score all questions of a log. On the way the predictions are written as one file, beside their parts.

    Args:
        learned: The log after learning.
        progress: Called now and then.
    """
    began = clock_time.perf_counter()
    store, rows, clock = learned.store, learned.log.rows, learned.clock
    signals = learned.forecaster.signals
    alarms = AlarmList(signals)
    with _PredictionsFile(store.folder / "predictions", _precise_signals(learned)) as file:
        for number in store.starts(PREDICTIONS):
            part = store.read(PREDICTIONS, number)
            anomaly = np.stack([part.column(f"{name}.anomaly").to_numpy() for name in signals], axis=1)
            why = np.stack([read_reasons(part.column(f"{name}.why")) for name in signals], axis=1)
            alarms.add(number, anomaly, why, _times(part))
            file.write(part)
            progress("scoring", number + part.num_rows, rows)
    summary = [{"reading": {}, "signals": _judge(learned, alarms)}, *learned.forecaster.summary()]
    ends = None if clock is None or not math.isfinite(clock.last) else clock.last
    span = (None if clock is None else learned.counts.begins, ends)
    return Scored(learned, summary, alarms.highest(), span, clock_time.perf_counter() - began)


def _judge(learned: Learned, alarms: AlarmList) -> list[dict[str, Any]]:
    """The verdict on each predicted signal, its periods and the number of its alarms."""
    asked, constant = learned.forecaster.asked, learned.constant
    verdicts, periods, counts = asked.judge_signals(), asked.periods, alarms.counts()
    waiting = {signal: describe_learning(score) for score, signal in values_at(asked.summary())}
    judged = []
    for name in learned.forecaster.signals:
        why = "it never changes" if name in constant else waiting.get(name) or "no value was forecast"
        unjudged = {"signal": name, "verdict": TOO_SHORT, "sentence": f"{name} cannot be judged: {why}."}
        unjudged |= dict.fromkeys(("horizon", "best_baseline", "skill_best", "skill_best_low", "skill_best_high"))
        row = unjudged if name in constant else verdicts.get(name, unjudged)
        judged.append(row | {"periods": periods.get(name, [])} | counts[name])
    return judged


def _times(part: pa.Table) -> Any:
    """The times of the rows in seconds; None without times."""
    if "time" not in part.column_names:
        return None
    column = part.column("time").to_numpy()
    if column.dtype.kind != "M":
        return column
    seconds = column.astype("datetime64[us]").astype(np.int64) / 1e6
    return np.where(np.isnat(column), np.nan, seconds)


def _precise_signals(learned: Learned) -> list[str]:
    """The signals that need float64: those whose level is far above their range."""
    precise, counts = [], learned.counts
    for name, lowest, highest in zip(learned.log.table.names, counts.lowest, counts.highest, strict=True):
        if lowest is None or highest is None:
            continue
        size, width = max(abs(lowest), abs(highest)), highest - lowest
        if width > 0 and (size * np.finfo(np.float32).eps > _EXACT * width or size > _LARGEST):
            precise.append(name)
    return precise


class _PredictionsFile:
    """The predictions of a log as one file, in float32 where that is exact enough, ends of intervals rounded outward.

    Args:
        path: The file.
        precise: The signals whose columns stay float64.
    """

    def __init__(self, path: Path, precise: Sequence[str]) -> None:
        self._path, self._precise = path, tuple(precise)
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []

    def write(self, table: pa.Table) -> None:
        """Write rows, many at a time: a group of rows takes time and memory for each column.

        So does the writer: it is opened when the first of them are written.
        """
        columns = {name: self._narrow(name, table.column(name)) for name in table.column_names}
        self._waiting.append(pa.table(columns))
        is_short = sum(rows.num_rows for rows in self._waiting) < _GROUP_ROWS
        if not is_short and sum(rows.nbytes for rows in self._waiting) >= _ROW_GROUP:
            self.flush()

    def _narrow(self, name: str, column: pa.ChunkedArray) -> Any:
        """A column as the file has it."""
        # (a question of one's own need not name the signals that it is about)
        is_precise = name == "time" or any(signal in name for signal in self._precise)
        if column.type != pa.float64() or is_precise:
            return column
        values = column.to_numpy()
        with np.errstate(over="ignore"):
            narrow = values.astype(np.float32)
        for end, outward in ((".low", -np.inf), (".high", np.inf)):
            if name.endswith(end):
                inside = narrow > values if outward < 0.0 else narrow < values
                narrow = np.where(inside, np.nextafter(narrow, np.float32(outward)), narrow)
        return narrow

    def flush(self) -> None:
        """Write the rows that wait, if there are any."""
        if not self._waiting:
            return
        rows = pa.concat_tables(self._waiting)
        self._waiting.clear()
        if self._writer is None:
            self._writer = open_writer(self._path, rows)
        self._writer.write_table(rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None:
            self.flush()
        if self._writer is not None:
            self._writer.close()


# ---------------------------------------------------------------------- tables that people look at


#: Rows that a table shows, and the length of a text in it, at most.
_SHOWN, _LONGEST = 60, 60


class ScoreTable(list[dict[str, Any]]):
    """A list of dicts, one for each row of a table.

    It is an ordinary list, which ``json.dumps`` takes, and shows as a table of some of its keys.

    Args:
        rows: The dicts.
        columns: The keys that are shown and become columns of frames; default: all whose values are numbers, text or
            times.

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

    def to_pandas(self) -> Any:
        """The table as a pandas DataFrame.

        >>> ScoreTable([{"x": 1}, {"x": 2}]).to_pandas()["x"].tolist()
        [1, 2]
        """
        return import_pandas().DataFrame({name: [row.get(name) for row in self._filled] for name in self.columns})

    @property
    def _filled(self) -> list[dict[str, Any]]:
        """The rows that have one of the columns at least."""
        names = set(self.columns)
        return [row for row in self if names.intersection(row)]

    def __repr__(self) -> str:
        names = self.columns
        rows = self._filled
        lines = [names, *([_show(row.get(name)) for name in names] for row in rows[:_SHOWN])]
        widths = [max(len(line[i]) for line in lines) for i in range(len(names))]
        text = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
        ]
        if len(rows) > _SHOWN:
            text.append(f"… and {len(rows) - _SHOWN:,} more")
        return "\n".join(text)

    __str__ = __repr__

    def _repr_html_(self) -> str:
        """The table as HTML, for notebooks."""
        names, rows = self.columns, self._filled
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        body = "".join(
            f"<tr>{''.join(f'<td>{html.escape(_show(row.get(name)))}</td>' for name in names)}</tr>"
            for row in rows[:_SHOWN]
        )
        unlisted = f"<p>… and {len(rows) - _SHOWN:,} more</p>" if len(rows) > _SHOWN else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{unlisted}"


def import_pandas() -> Any:
    """The package; ImportError with the command that installs it."""
    try:
        import pandas
    except ImportError:
        raise ImportError("pandas is not installed: pip install pandas") from None
    return pandas


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | datetime)


def _show(value: object) -> str:
    """A value in a cell, numbers to three digits."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1e3 else f"{value:,.0f}" if abs(value) < 1e9 else f"{value:.3g}"
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
