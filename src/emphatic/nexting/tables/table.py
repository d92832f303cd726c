"""Tables: rows of readings, from a file of any size or a frame in memory, as blocks of numbers.

Opening a table imports pyarrow, importing this module does not.
"""

from __future__ import annotations

import csv
import lzma
import math
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emphatic.common.settings import seconds
from emphatic.learning.inputs import refusal, whole
from emphatic.nexting.tables.clock import Clock
from emphatic.nexting.tables.columns import Increments

if TYPE_CHECKING:
    import pyarrow as pa

    from emphatic.nexting.tables.fields import Notation, NumberStyle, TimeColumn
    from emphatic.nexting.tables.files import DroppedRows, Source
    from emphatic.nexting.tables.grid import Grid, GridPlan, LongFormat
    from emphatic.nexting.tables.pipe import ParsedRow

__all__ = ["Block", "Caller", "Malformed", "ReadingOptions", "Table", "TableError", "open_table", "table_of"]

#: The kinds of column that are signals.
NUMERIC = ("number", "percent", "switch")
_IGNORED = {"date": "another date", "clock": "a time of day", "other": "neither numbers nor text"}


# ---------------------------------------------------------------------- errors


class Caller(NamedTuple):
    """The function that was called with a table, and its parameter for it: what an error names."""

    function: str = "open_table"
    source: str = "source"


CALLER = Caller()
#: What else can be done with text that is no table.
OTHERWISE = 'To read it otherwise, pass a DataFrame, or use SQL: "duckdb://" with query="select … from read_csv(…)".'


class TableError(ValueError):
    """A table cannot be read. The message names the table, the place in it and the remedy."""


class Malformed(ValueError):
    """A line of a pipe that is not a reading, and why. The run goes on without it."""


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Turn any error of the readers underneath into a ``TableError`` in one sentence.

    Args:
        name: The name of the table.
    """
    import pyarrow as pa

    try:
        yield
    except TableError:
        raise
    except FileNotFoundError:
        raise TableError(f"{name}: there is no such file.") from None
    except PermissionError:
        raise TableError(f"{name}: permission denied.") from None
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        reason = _one_line(error)
        raise TableError(f"{name}: a column's type cannot be read ({reason}). Store it as numbers.") from None
    except (pa.ArrowException, csv.Error, OSError, EOFError, UnicodeDecodeError, lzma.LZMAError) as error:
        reason = _one_line(error)
        if isinstance(error, UnicodeDecodeError) or "invalid utf8" in reason.lower():
            remedy = f"Convert it: iconv -f latin1 -t utf-8 {name} > converted.csv"
            raise TableError(f"{name}: the file is not UTF-8. {remedy}") from None
        raise TableError(
            f"{name}: the file is damaged or incomplete ({reason}). Export or download it again."
        ) from None


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".")


# ---------------------------------------------------------------------- tables and their blocks


#: What a guard decides about a reading.
READ, PULLED_IN, MISSING = range(3)


def _no_counts() -> NDArray[np.int64]:
    return np.zeros(0, np.int64)


def _no_flags() -> NDArray[np.bool_]:
    return np.zeros(0, np.bool_)


@dataclass(eq=False, slots=True)
class Block:
    """Consecutive rows of a stream, the first of them row number ``row``.

    The source decides once which rows do not follow the previous row, and marks them in ``gap``. Code that learns from
    a block, scores it or writes it uses ``gap`` and never compares times itself.

    Args:
        row: The number of the first row in the stream, counted from 0.
        values: The signals (B, C), NaN where a value is missing.
        time: The time of each row (B,), in seconds since the epoch or in the time column's own unit, NaN where it is
            missing; None without a time column.
        labels: Each text column by name, None where a label is missing.
        unreadable: For each signal, the number of values that could not be parsed; they are missing in ``values``.
        infinite: For each signal, the number of infinite values; they are missing in ``values``.
        numbers: The number of each row in its file (B,), counted from 0 and including rows that were dropped.
        after_drop: The rows (B,) before which a row of the file was dropped.
        gap: The rows (B,) that do not follow the row before: time jumped, a row was dropped, or a sequence was cut. An
            empty array means that every row follows.
        actions: The action chosen in each row (B,), None where it is unknown; None without actions.
        mu: The probability (or density) with which the behaviour chose each of ``actions``, (B,), or None.
        terminated: The rows (B,) in which an episode terminated; None for rows of a log, which has no episodes. Where
            it is not None the rows are those of an agent, and a row in ``gap`` is the first of an episode.
        truncated: Whether the episode ends with the last row without having terminated.
        action_before: The action that led to the first row; the row before came without it.
        mu_before: The probability (or density) with which ``action_before`` was chosen, as a list of one, or None.
        originals: The observations (B,) of which an agent's rows were made, for functions that are given them.
        guarded: The values to learn from (B, C), by a ``ReadingGuard``: outliers are pulled in, or NaN if they count as
            missing. None if the original values are learned from.
        verdicts: What the guard decided for each value (B, C): 0 unchanged, 1 pulled in, 2 counted as missing; None
            without a guard.
    """

    row: int
    values: NDArray[np.float64]
    time: NDArray[Any] | None
    labels: dict[str, Any]
    unreadable: NDArray[np.int64] = field(default_factory=_no_counts, repr=False)
    infinite: NDArray[np.int64] = field(default_factory=_no_counts, repr=False)
    numbers: NDArray[np.int64] | None = field(default=None, repr=False)
    after_drop: NDArray[np.bool_] | None = field(default=None, repr=False)
    gap: NDArray[np.bool_] = field(default_factory=_no_flags)
    actions: Sequence[Any] | None = field(default=None, repr=False)
    mu: Sequence[float | None] | None = field(default=None, repr=False)
    terminated: NDArray[np.bool_] | None = field(default=None, repr=False)
    truncated: bool = field(default=False, repr=False)
    action_before: object = field(default=None, repr=False)
    mu_before: Sequence[float] | None = field(default=None, repr=False)
    originals: Sequence[Any] | None = field(default=None, repr=False)
    guarded: NDArray[np.float64] | None = field(default=None, repr=False)
    verdicts: NDArray[np.uint8] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def to_learn(self) -> NDArray[np.float64]:
        """The readings to learn from (B, C): the guarded ones where there are any."""
        return self.values if self.guarded is None else self.guarded

    @property
    def pulled_in(self) -> NDArray[np.bool_] | None:
        """Where readings were pulled in (B, C); None where none was."""
        if self.verdicts is None or self.guarded is self.values:
            return None
        pulled: NDArray[np.bool_] = self.verdicts == PULLED_IN
        return pulled if pulled.any() else None

    def agent_row(self, t: int) -> Block:
        """Row t of an agent's block as a block of its own, with the action that led to it.

        Args:
            t: The row, counted from the first of the block.
        """
        row, labels = slice(t, t + 1), {name: column[t : t + 1] for name, column in self.labels.items()}
        assert self.terminated is not None
        block = Block(self.row + t, self.values[row], None if self.time is None else self.time[row], labels)
        block.gap, block.terminated = self.gap[row], self.terminated[row]
        block.truncated = self.truncated and t == len(self) - 1
        block.originals = None if self.originals is None else self.originals[row]
        if t == 0:
            block.action_before, block.mu_before = self.action_before, self.mu_before
        else:
            block.action_before = None if self.actions is None else self.actions[t - 1]
            mu = None if self.mu is None else self.mu[t - 1]
            block.mu_before = None if mu is None else [mu]
        return block

    @classmethod
    def from_rows(
        cls,
        rows: Sequence[ParsedRow],
        names: Sequence[str],
        categories: Sequence[str] = (),
        clock: Clock | None = None,
        row: int = 0,
    ) -> Block:
        """The block of the next readings of a live stream.

        Args:
            rows: The readings, as ``RowParser.parse`` gives them.
            names: The signals, in the order of ``ParsedRow.values``.
            categories: The text columns.
            clock: Finds the gaps, and is advanced by these rows; None for a stream without times. Pass ``clock.copy()``
                if the block may be rejected.
            row: The number of the first row in the stream.
        """
        count, C = len(rows), len(names)
        unreadable, infinite = np.zeros(C, np.int64), np.zeros(C, np.int64)
        values = np.array([reading.values for reading in rows]).reshape(count, C)
        labels = {name: np.array([reading.labels[name] for reading in rows], object) for name in categories}
        for reading in (reading for reading in rows if reading.problems):
            for j, name in enumerate(names):
                unreadable[j] += f"{name!r} is not a number" in reading.problems
                infinite[j] += f"{name!r} is not finite" in reading.problems
        if clock is None:
            return cls(row, values, None, labels, unreadable, infinite, gap=np.zeros(count, np.bool_))
        time = np.array([reading.time for reading in rows])
        return cls(row, values, time, labels, unreadable, infinite, gap=clock.find_gaps(time))

    def find_gaps(self, clock: Clock | None) -> NDArray[np.bool_]:
        """The rows that do not follow the row before by a clock, or because a row between the two was dropped.

        Args:
            clock: Is advanced by these rows; None to look at dropped rows alone.
        """
        after_drop = np.zeros(len(self), np.bool_) if self.after_drop is None else self.after_drop
        return after_drop if clock is None or self.time is None else clock.find_gaps(self.time, after_drop)


class ReadingOptions(NamedTuple):
    """What a user says about the rows of a table, checked: see ``open_table``.

    Args:
        time: The time column; None to find it, False for none.
        words: The columns that are text even if they hold switches or percentages.
        pivot: The columns of sensors and values of a table in long format; () to read its rows as they are, None to
            pivot where it is unambiguous.
        resample: "none", "auto" (also None), or the seconds of a step.
        max_age: The seconds that a value is held; None to find them for each sensor.
        missing: What stands for a missing value besides the usual.
        sort: Whether to sort the rows by time.
        ordered: Whether rows that are not in the order of time are rejected, and what may be long format.
        is_complete: Whether nothing comes after the last row; of a live stream there are more to come.
    """

    time: str | bool | None = None
    words: Collection[str] = ()
    pivot: tuple[str, ...] | None = None
    resample: str | float | None = "none"
    max_age: float | None = None
    missing: tuple[str, ...] = ()
    sort: bool = False
    ordered: bool = True
    is_complete: bool = True


class Table:
    """A table of readings; ``open_table`` makes it.

    Args:
        name: The name of the table, for messages.
        source: What its rows are read from.
        options: What the user says about its rows.

    - ``names``: the signals, all columns of numbers (True is 1) but the time, in their order;
    - ``categories``: the columns of text;
    - ``time``: the time column, or both of a date and a time of day as ``Date+Time``, or None; ``zone`` is that of its
      stamps, if they have one;
    - ``dated``: whether times are seconds since 1970, so that there is a time of day;
    - ``a_second``: how many units of a time column of numbers make a second;
    - ``ignored``: the columns that are not used, each with the reason;
    - ``rows``: how many rows there are, where that is known without reading them, or None;
    - ``broken``: malformed lines of text, skipped in the last pass; ``dropped``: the same by reason;
    - ``notation``: how its text is written.
    """

    def __init__(self, name: str, source: Source, options: ReadingOptions) -> None:
        from emphatic.nexting.tables import frames, grid

        self.name = name
        #: What rows are read from, before they are sorted, pivoted or put on a grid; and after.
        self._origin = self._source = source
        view = _View.of(name, source, options)
        self._header = tuple(view.look.column_names)
        self.ignored = dict.fromkeys(getattr(source, "nested", ()), "nested") | getattr(source, "rare", {})
        #: The columns of sensors and values, if the table was in long format; how its rows were put on a grid.
        self.pivoted: LongFormat | None = None
        self.grid_plan: GridPlan | None = None
        self.pivoted, view = self._find_long(source, view, options)
        if self.pivoted is not None:
            assert view.when is not None
            pivoted = grid.pivot(name, source, self.pivoted, view.when, view.style, options)
            used = {*self.pivoted.keys, *self.pivoted.values, *view.when.names}
            unused = dict.fromkeys((column for column in view.kinds if column not in used), "beside the long format")
            self.ignored |= unused | dict(pivoted.ignored)
            self.grid_plan = pivoted.plan
            self._notation = self._describe(source, view, pivoted.switches, pivoted.percents)
            self._source = pivoted.source
            view = _View.of(name, self._source, ReadingOptions(view.when.name, options.words))
            signals = view.signals()
        else:
            if options.sort:
                if view.when is None:
                    raise TableError(f"{name}: there is no time to sort by: {view.no_time}. Name the column: time=…")
                self._source = source = frames.sort(source, view.look.column_names, view.when)
                view = view._replace(look=source.look())
            elif view.disorder is not None and options.ordered:
                raise view.disorder
            signals = view.signals()
            for column, kind in signals.items():
                if kind in _IGNORED:
                    self.ignored[column] = _IGNORED[kind]
                elif kind == "number" and column in getattr(source, "unnamed", ()) and _idle(view.arrays[column]):
                    self.ignored[column] = "without a name, and empty or a count of rows"
            signals = {column: kind for column, kind in signals.items() if column not in self.ignored}
            switches = tuple(column for column, kind in signals.items() if kind == "switch")
            percents = tuple(column for column, kind in signals.items() if kind == "percent")
            self._notation = self._describe(source, view, switches, percents)
            view, signals = self._put_on_grid(source, view, signals, options)
        self._when = when = view.when
        self._no_time = view.no_time
        self.time = when.name if when else None
        self.zone = when.zone if when else None
        self.dated = bool(when and when.dated)
        self.a_second = when.a_second if when else 1.0
        self.names = tuple(column for column, kind in signals.items() if kind in NUMERIC)
        self._styles = [self._notation.style_of(column) for column in self.names]
        self.categories = tuple(column for column, kind in signals.items() if kind == "text")
        if not self.names:
            what = ", ".join(f"{c!r} ({signals.get(c, self.ignored.get(c, 'the time'))})" for c in list(view.kinds)[:8])
            raise TableError(
                f"{name}: no column holds numbers, so there is no signal to learn from. It has: {what}. {OTHERWISE}"
            )
        self.rows = self._source.rows
        #: What turns counters into increments, as of the last pass; None where no signal is a counter.
        self.increments: Increments | None = None
        # As it is before the first row: every pass through the table begins with a copy of it.
        self._clock = Clock(when.seconds(view.look), getattr(source, "joined", False)) if when else None

    def _find_long(self, source: Source, view: _View, options: ReadingOptions) -> tuple[LongFormat | None, _View]:
        """The long format that the table is to be pivoted from, and its time; TableError if that is not certain."""
        from emphatic.nexting.tables import columns, grid

        if options.pivot:
            long, when = grid.chosen_long(self.name, view, options.time, view.style, options.pivot)
            return long, view._replace(when=when)
        if options.pivot == () or options.time is False or getattr(source, "joined", False):
            return None, view
        recognised = grid.find_long(view.look, view.kinds, view.when)
        if not options.ordered or (recognised is not None and recognised.is_certain):
            return recognised if recognised is not None and recognised.is_certain else None, view
        if machines := columns.find_machines(view.look, view.kinds, view.when):
            message = (
                f"{self.name}: these are the rows of several machines, which {machines!r} tells apart. Learn from each "
                f'separately: by="{machines}".'
            )
            if recognised is not None:
                message += f' Or give each a column: pivot="{recognised.keys[0]},{recognised.values[0]}".'
            raise TableError(message)
        if recognised is None:
            return None, view
        sensor, value = recognised.keys[0], recognised.values[0]
        raise TableError(
            f"{self.name}: this may be long format, with a row for each reading: {sensor!r} names the sensor, "
            f'{value!r} has its value. Give each sensor a column: pivot="{sensor},{value}"; or pass '
            "pivot=False to read the rows as they are."
        )

    def _describe(self, source: Source, view: _View, switches: Sequence[str], percents: Sequence[str]) -> Notation:
        """How the text of a source is written."""
        from emphatic.nexting.tables.fields import Notation

        delimiter = getattr(source, "delimiter", None)
        header = () if delimiter is None else self._header
        return Notation(delimiter, view.style, view.when, tuple(switches), header, tuple(percents), self.pivoted)

    def _put_on_grid(
        self, source: Source, view: _View, signals: dict[str, str], options: ReadingOptions
    ) -> tuple[_View, dict[str, str]]:
        """The first rows and the signals of the table once its rows are regular, where they are put on a grid."""
        from emphatic.nexting.tables import grid

        when = view.when
        names = [column for column, kind in signals.items() if kind in NUMERIC]
        categories = [column for column, kind in signals.items() if kind == "text"]
        if when is None or not names or getattr(source, "joined", False):
            if isinstance(options.resample, float) and when is None:
                raise TableError(f"{self.name}: there is no time to resample by: {view.no_time}. Name it: time=…")
            return view, signals
        if not (isinstance(options.resample, float) or view.has_holes([*names, *categories])):
            return view, signals
        styles = {column: self._notation.style_of(column) for column in names}
        present = {column: view.present(column, styles.get(column)) for column in (*names, *categories)}
        states = (*self._notation.switches, *categories)
        plan = grid.plan_rows(when.seconds(view.look), present, states, options, when.dated, categories)
        if plan is None:
            return view, signals
        self.grid_plan = plan
        start = grid.Grid(
            names,
            categories,
            step=plan.step,
            max_age=plan.max_age,
            switches=self._notation.switches,
        )
        records = grid.records_of_rows(source, when, styles, categories)
        self._source = grid.GriddedSource(start, records, when, lambda: source.dropped, options.is_complete)
        view = _View.of(self.name, self._source, ReadingOptions(when.name, categories))
        return view, view.signals()

    @property
    def grid(self) -> Grid | None:
        """The grid after the last complete pass; None where rows are the table's own."""
        from emphatic.nexting.tables.grid import GriddedSource

        return self._source.grid if self.grid_plan and isinstance(self._source, GriddedSource) else None

    @property
    def dropped(self) -> DroppedRows:
        """The rows that the last pass could not use, by reason."""
        return self._source.dropped

    @property
    def notation(self) -> Notation:
        """How its text is written, for reading more of the same line by line."""
        return self._notation

    def facts(self) -> dict[str, Any]:
        """What was found in the table and how it is written, as JSON can hold it, as of the last pass.

        ``time`` has the columns, their format and zone, or ``why`` there is none; ``rows_dropped`` and
        ``columns_left_out`` say why; ``rows_short`` counts rows whose last fields were absent; ``percent`` are the
        columns whose numbers have a percent sign, which is left out (50% is 50); ``units`` are those of columns.
        ``pivoted`` are the columns of sensors and values of a table in long format; ``resampled`` says which grid of
        time the rows were put on.
        """
        when, style, plan, grid = self._notation.time, self._notation.style, self.grid_plan, self.grid
        time: dict[str, Any] = {"why": self._no_time}
        if when is not None:
            time = {"columns": list(when.names), "format": when.format, "zone": when.zone}
        return {
            "time": time,
            "rows_dropped": self.dropped.facts(),
            "rows_short": self.dropped.short,
            "columns_left_out": [{"name": name, "why": why} for name, why in self.ignored.items()],
            "delimiter": self._notation.delimiter,
            "decimal": "," if style.comma else ".",
            "thousands": style.thousands,
            "units": dict(getattr(self._source, "units", {})),
            "percent": list(self._notation.percents),
            "pivoted": [] if self.pivoted is None else ["+".join(self.pivoted.keys), *self.pivoted.values],
            "resampled": None if plan is None or grid is None else plan.facts(grid),
        } | getattr(self._origin, "facts", {})

    @property
    def extent(self) -> dict[str, Any] | None:
        """What a run that resumes reads again, of a query; None for files and frames."""
        extent: dict[str, Any] | None = getattr(self._origin, "extent", None)
        return extent

    def leave_out(self, reasons: Mapping[str, str]) -> None:
        """Leave columns out that are no signals.

        Args:
            reasons: Why, for each of them.
        """
        kept = [(name, style) for name, style in zip(self.names, self._styles, strict=True) if name not in reasons]
        self.names, self._styles = tuple(name for name, _ in kept), [style for _, style in kept]
        self.ignored |= reasons

    def take_increments(self, largest: Mapping[str, float]) -> None:
        """Have the increments of counters in the place of their readings.

        Args:
            largest: The counters, with the largest increment of each.
        """
        self.increments = Increments([self.names.index(name) for name in largest], list(largest.values()))

    def __repr__(self) -> str:
        counts = f"signals={len(self.names)}, categories={len(self.categories)}"
        return f"Table({self.name!r}, {counts}, time={self.time!r}, rows={self.rows})"

    def blocks(self, rows: int = 65536, start: int = 0, clock: Clock | None = None) -> Iterator[Block]:
        """The rows in blocks. What a row gives does not depend on ``rows`` or ``start``.

        Only a few blocks are in memory at any time.

        Args:
            rows: The rows of a block; the last may have fewer.
            start: The number of the first row, from 0.
            clock: Finds the gaps, and must stand at row ``start``; by default it is a new one, ``Table.clock``. So must
                ``Table.increments``, where there are counters.
        """
        rows = whole("rows", rows, "blocks")
        if isinstance(start, bool) or not isinstance(start, int | np.integer) or start < 0:
            raise refusal("start", "blocks", "be a whole number of 0 or more", repr(start))
        return self._blocks(rows, int(start), self.clock() if clock is None else clock)

    def count_rows(self, progress: Callable[[int], object] = lambda rows: None) -> int:
        """How many rows there are, by reading the table through where it does not say.

        Args:
            progress: Called with the number of rows read so far.
        """
        if self.rows is not None:
            return self.rows
        rows, batches = 0, self._source.batches(self.names[:1], 0)  # a single column, which is not parsed
        while True:
            with reading(self.name):
                batch = next(batches, None)
            if batch is None:
                return rows
            rows += len(batch)
            progress(rows)

    def _blocks(self, rows: int, row: int, clock: Clock | None) -> Iterator[Block]:
        names = (*self.names, *self.categories, *(self._when.names if self._when else ()))
        increments = self.increments
        if increments is not None and row == 0:
            self.increments = increments = Increments(increments.columns.tolist(), increments.largest.tolist())
        waiting: list[pa.RecordBatch] = []
        available = 0
        batches = self._source.batches(names, row)
        while True:
            with reading(self.name):
                batch = next(batches, None)
            if batch:  # one without rows would keep the rows it was cut from in memory
                waiting.append(batch)
                available += len(batch)
            while available >= rows or (batch is None and available):
                batches_of_block = _split_off(waiting, min(rows, available))
                available -= sum(map(len, batches_of_block))
                with reading(self.name):
                    block = self._block(row, batches_of_block)
                block.gap = block.find_gaps(clock)
                if increments is not None:
                    increments(block)
                row += len(block)
                yield block
                del block, batches_of_block  # or they would stay in memory while the next rows are read
            if batch is None:
                return
            del batch

    def _block(self, row: int, batches: list[pa.RecordBatch]) -> Block:
        """Batches are converted one by one: their types may differ (text, where a batch did not keep to its type)."""
        from emphatic.nexting.tables.fields import as_floats, as_plain, parse_labels
        from emphatic.nexting.tables.files import AFTER_DROP, ROW

        C, B = len(self.names), sum(map(len, batches))
        values = np.empty((B, C))
        unreadable, infinite = np.zeros(C, np.int64), np.zeros(C, np.int64)
        at = 0
        for batch in batches:
            for j, name in enumerate(self.names):
                column, bad = as_floats(as_plain(batch.column(name)), self._styles[j])
                values[at : at + len(batch), j] = column
                unreadable[j] += bad
            at += len(batch)
        # Features and returns need finite numbers; an infinite one is counted and treated as missing.
        endless = np.isinf(values)
        if endless.any():
            infinite += endless.sum(axis=0)
            values[endless] = np.nan
        time = np.concatenate([self._when.seconds(batch) for batch in batches]) if self._when else None
        labels = {
            name: np.concatenate([parse_labels(as_plain(batch.column(name))) for batch in batches])
            for name in self.categories
        }
        numbers, after_drop = np.arange(row, row + B), np.zeros(B, np.bool_)
        if ROW in batches[0].schema.names:
            numbers = np.concatenate([batch.column(ROW).to_numpy() for batch in batches])
        if AFTER_DROP in batches[0].schema.names:
            after_drop = np.concatenate([batch.column(AFTER_DROP).to_numpy(zero_copy_only=False) for batch in batches])
        return Block(row, values, time, labels, unreadable, infinite, numbers, after_drop)

    def clock(self) -> Clock | None:
        """A clock that knows this table's usual step from its first rows, or None without a time column."""
        return None if self._clock is None else self._clock.copy()


class _View(NamedTuple):
    """The first rows of a source, the kinds of its columns, its time, or why it has none, and what is wrong with the
    order of its rows."""

    look: pa.Table
    arrays: dict[str, pa.Array]
    kinds: dict[str, str]
    when: TimeColumn | None
    no_time: str
    disorder: TableError | None
    style: NumberStyle

    @classmethod
    def of(cls, name: str, source: Source, options: ReadingOptions) -> _View:
        """The view of a source; TableError if it has no columns or no rows."""
        from emphatic.nexting.tables.fields import as_plain, find_kind, find_time

        look = source.look()
        arrays = {column: as_plain(look.column(i)) for i, column in enumerate(look.column_names)}
        if len(arrays) < len(look.column_names):
            repeated = next(c for c in look.column_names if look.column_names.count(c) > 1)
            raise TableError(f"{name}: more than one column is named {repeated!r}. Give each its own name.")
        if not arrays:
            raise TableError(f"{name}: the table has no columns. {OTHERWISE}")
        if look.num_rows == 0:
            raise TableError(f"{name}: the table has columns but no rows.")
        style = replace(source.style, missing=options.missing) if options.missing else source.style
        kinds = {column: find_kind(array, style) for column, array in arrays.items()}
        kinds |= {column: "text" for column in options.words if kinds.get(column) in ("switch", "percent")}
        return cls(look, arrays, kinds, *find_time(name, look, kinds, options.time, source.style), style)

    def signals(self) -> dict[str, str]:
        """All columns but the time, with their kinds."""
        return {column: kind for column, kind in self.kinds.items() if not (self.when and column in self.when.names)}

    def has_holes(self, columns: Sequence[str]) -> bool:
        """Whether some column is empty in three of ten of the very first rows: most tables have none that is."""
        return any(float(np.mean(_holes(self.arrays[column].slice(0, 1000)))) >= 0.3 for column in columns)

    def present(self, column: str, style: NumberStyle | None) -> NDArray[np.bool_]:
        """Where a column has a value: a number in this style, or a word."""
        from emphatic.nexting.tables.fields import as_floats, as_plain

        array = as_plain(self.look.column(column))
        return np.isfinite(as_floats(array, style)[0]) if style is not None else ~_holes(array)


def _holes(array: pa.Array) -> NDArray[np.bool_]:
    """Where an array has no value."""
    import pyarrow.compute as pc

    from emphatic.nexting.tables.fields import is_text, missing_texts

    holes = missing_texts(array) if is_text(array) else pc.is_null(array, nan_is_null=True)
    return np.asarray(holes.to_numpy(zero_copy_only=False), np.bool_)


def _idle(array: pa.Array) -> bool:
    """A column of nothing, or of row numbers."""
    from emphatic.nexting.tables.fields import as_floats

    values, _ = as_floats(array)
    return bool(np.isnan(values).all() or (len(values) > 1 and (np.diff(values) == 1).all()))


def _split_off(waiting: list[pa.RecordBatch], rows: int) -> list[pa.RecordBatch]:
    """Remove the first rows from the batches that wait, and return them."""
    batches = []
    while rows:
        batch = waiting.pop(0)
        batches.append(batch.slice(0, rows))
        if len(batch) > rows:
            waiting.insert(0, batch.slice(rows))
        rows -= len(batches[-1])
    return batches


# ---------------------------------------------------------------------- opening


def open_table(
    source: object,
    *,
    time: str | bool | None = None,
    delimiter: str | None = None,
    names: Sequence[str] | None = None,
    sort: bool = False,
    pivot: str | Sequence[str] | bool | None = None,
    words: Collection[str] = (),
    topics: str | Sequence[str] | None = None,
    resample: str | float | None = None,
    max_age: str | float | None = None,
    missing: str | float | Sequence[str | float] = (),
    skip_lines: int | None = None,
    header: int | str | Sequence[str] | None = None,
    query: str | None = None,
    range: tuple[float, float] | None = None,
    step: float | None = None,
    ordered: bool = True,
    extent: Mapping[str, Any] | None = None,
    caller: Caller = CALLER,
) -> Table:
    """Open a table of readings: one row per time, one column per signal.

    Args:
        source: The path of a CSV, Parquet, Arrow/Feather or JSON lines file (text also with gzip, zstd, xz or bz2), of
            an MCAP file, a ROS 2 bag's folder, or a file of SQLite or DuckDB; the format is detected from the content.
            The address of a database or a time series store, ``postgresql://…``. In memory: a pyarrow, pandas or polars
            frame, a dict of arrays, a NumPy structured array, or an array (T, C).
        time: The time column, or ``"Date+Time"`` for a date and a time of day; False for none. By default it is
            detected.
        delimiter: The column separator of CSV; by default it is detected.
        names: The columns of an array (T, C).
        sort: Whether to sort the rows by time, in memory. Otherwise they must be in the order of time.
        pivot: The columns of sensors and values, "sensor,value", of a table in long format, with one row per value:
            each sensor becomes a column, in memory. By default this is done if it is unambiguous; False reads the rows
            as they are.
        words: Columns that stay text. Otherwise ON and OFF (yes and no, open and closed) are read as 1 and 0, and
            percentages as numbers (50% is 50).
        topics: The topics of a robot log (MCAP, ROS 2 bag) to read; by default all. Each number in a topic's messages
            is a column, ``topic.field``. There is a row for each time at which a message was logged, with the last
            value of every column.
        resample: The regular time step to resample rows to, a duration such as "5min" or a number in the unit of the
            time; "none" for the rows as they are. By default, "auto", rows are resampled if sensors report at different
            times, with a step near their median interval.
        max_age: After resampling, how long the last value of a sensor is used, a duration or a number; older values are
            missing. By default it depends on how often the sensor reports.
        missing: Codes for a missing value, besides empty fields, NA, null and such: numbers or words.
        skip_lines: The number of lines above the header of CSV to skip; by default it is detected.
        header: The line of the header of CSV, counted from 1 after those, 0 for none; or the names of the columns, if
            no line has them.
        query: The query of a database or a store, in its own language; by default its only table is read.
        range: The first time to read from a time series store, and the end (exclusive), in seconds since 1970.
        step: The seconds between two rows of a time series store.
        ordered: Whether rows that are not in the order of time are rejected with an error.
        extent: What an earlier run had read of a store, as ``Table.extent``: these rows are read again.
        caller: The function, and its parameter for the source, that errors name.

    A column of text counts as numbers if most of its first values are numbers. A later value that is not a number is
    missing, and counted.

    Raises:
        TableError: if the table cannot be read. The message names the place and the remedy.

    >>> table = open_table({"time": [0.0, 1.0, 2.0], "power": [4.2, None, 5.4], "door": ["open", "shut", "shut"]})
    >>> table.names, table.categories, table.time, table.rows
    (('power',), ('door',), 'time', 3)
    >>> for block in table.blocks(rows=2):
    ...     print(block.row, block.time.tolist(), block.values.tolist(), block.labels["door"].tolist())
    0 [0.0, 1.0] [[4.2], [nan]] ['open', 'shut']
    2 [2.0] [[5.4]] ['shut']
    """
    function = caller.function
    if time is True or not isinstance(time, str | bool | None):
        raise refusal("time", function, "be the name of a column, False or None", repr(time))
    if not isinstance(sort, bool):
        raise refusal("sort", function, "be True or False", repr(sort))
    if delimiter is not None and not _is_delimiter(delimiter):
        raise refusal("delimiter", function, "be one ASCII character, not a quote or a line's end", repr(delimiter))
    from emphatic.nexting.tables.files import OpenOptions, open_file
    from emphatic.nexting.tables.frames import Frame
    from emphatic.nexting.tables.stores import Request, is_address, open_store

    above, line = header_options(skip_lines, header, function)
    codes = (missing,) if isinstance(missing, str | int | float) else tuple(missing)
    arrangement = arrange(pivot, resample, max_age, function)
    options = ReadingOptions(time, words, *arrangement, tuple(map(str, codes)), sort, ordered)
    chosen, request = topic_names(topics, function), Request(query, range, step, time, sort, extent)
    if not isinstance(source, str | os.PathLike):
        if chosen is not None:
            raise refusal("topics", function, "be left out for other than a robot log", repr(chosen))
        if request.named:
            raise refusal(request.named[0], function, "be left out for data in memory", repr(request.query))
        return table_of("the table", Frame(source, names, caller), options)
    if names is not None:
        raise refusal("names", function, "be left out for a file", repr(list(names)))
    name = os.fspath(source)
    if is_address(name):
        return table_of(*open_store(name, request), options)
    with reading(name):
        opened = open_file(name, OpenOptions(delimiter, chosen, above, line, request))
    return table_of(name, opened, options)


def table_of(name: str, source: Source, options: ReadingOptions) -> Table:
    """The table that a source holds.

    Args:
        name: The name of the table, for messages.
        source: What its rows are read from.
        options: What the user says about its rows.
    """
    with reading(name):
        return Table(name, source, options)


def arrange(
    pivot: str | Sequence[str] | bool | None = None,
    resample: str | float | None = None,
    max_age: str | float | None = None,
    function: str = "open_table",
) -> tuple[tuple[str, ...] | None, str | float | None, float | None]:
    """These of ``ReadingOptions``, checked; ValueError in the name of the function that was called."""
    step = resample if resample in (None, "auto", "none") else _as_seconds("resample", resample, function, "auto, none")
    age = None if max_age is None else _as_seconds("max_age", max_age, function)
    return pivot_columns(pivot, function), step, age


def _as_seconds(name: str, duration: object, function: str, others: str = "") -> float:
    """A duration in seconds, or a number in the unit of the time."""
    try:
        if isinstance(duration, str):
            return seconds(duration)
        number = float(duration) if isinstance(duration, int | float) and not isinstance(duration, bool) else 0.0
        if 0.0 < number < math.inf:
            return number
    except ValueError:
        pass
    wanted = f"be {others} or a duration such as 5min" if others else "be a duration such as 1h"
    raise refusal(name, function, wanted, repr(duration)) from None


def header_options(
    skip_lines: int | None, header: int | str | Sequence[str] | None, function: str
) -> tuple[int, int | tuple[str, ...] | None]:
    """The lines to skip, and the line of the header or the names of the columns, checked."""
    is_count = isinstance(skip_lines, int) and not isinstance(skip_lines, bool) and skip_lines >= 0
    if skip_lines is not None and not is_count:
        raise refusal("skip_lines", function, "be a whole number of 0 or more", repr(skip_lines))
    if isinstance(header, str):
        text = header.strip()
        header = int(text) if text.isdigit() else 0 if text in ("", "none") else _split_names(text)
    if isinstance(header, bool) or (isinstance(header, int) and header < 0):
        raise refusal("header", function, "be the number of a line, 0 for none, or the names of columns", repr(header))
    return skip_lines or 0, header if header is None or isinstance(header, int) else tuple(header)


def _is_delimiter(text: object) -> bool:
    return isinstance(text, str) and len(text) == 1 and text.isascii() and text not in '"\r\n\0'


def _split_names(text: str) -> list[str]:
    """The names in a list with commas; a name with a comma is quoted."""
    return [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]


def pivot_columns(pivot: str | Sequence[str] | bool | None, function: str) -> tuple[str, ...] | None:
    """The columns to pivot; () to take the rows as they are, None if nothing was said."""
    if pivot is None or pivot is False:
        return None if pivot is None else ()
    if isinstance(pivot, str):
        pivot = _split_names(pivot)
    names = () if pivot is True else tuple(pivot)
    if len(names) < 2 or len(set(names)) < len(names) or not all(isinstance(name, str) for name in names):
        raise refusal("pivot", function, "name two columns, 'sensor,value', or be False", repr(pivot))
    return names


def topic_names(topics: str | Sequence[str] | None, function: str) -> tuple[str, ...] | None:
    """The topics of a robot log to read; None for all."""
    if topics is None:
        return None
    if isinstance(topics, str):
        topics = _split_names(topics)
    names = tuple(topics)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise refusal("topics", function, "name topics of a robot log, '/odom,/imu'", repr(topics))
    return names
