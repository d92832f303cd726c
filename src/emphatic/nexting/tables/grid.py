"""Records of sensors that report one at a time, as regular rows of all of them.

A ``Grid`` takes records (time, column, value) in the order of time and yields rows, one a step. It is causal: the row
that ends at time τ holds what was reported up to τ. A table in long format, a wide table whose columns are filled at
different moments, and the readings of a pipe go through the same loop, and give the same bits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emphatic.common.settings import format_duration
from emphatic.nexting.tables.clock import Clock
from emphatic.nexting.tables.table import NUMERIC, ReadingOptions, TableError

if TYPE_CHECKING:
    import pyarrow as pa

    from emphatic.nexting.tables.fields import NumberStyle, TimeColumn
    from emphatic.nexting.tables.files import DroppedRows, Source
    from emphatic.nexting.tables.pipe import ParsedRow

__all__ = ["Grid", "GridPlan", "GriddedSource", "LongFormat", "arrangement_lines"]
__all__ += ["find_long", "pivot", "plan_records", "plan_rows", "records_of_rows"]

Array = NDArray[np.float64]

#: Rows that the kernel writes at a time.
_ROWS = 4096
#: Records that are taken at a time.
_CHUNK = 1 << 16
#: Columns that are filled in less than this share of the rows are read from rows of their own.
_SPARSE = 0.5
#: A column that is filled in this share of the rows sets their step.
_DENSE = 0.9
#: Values of a column from which on its intervals say something.
_LEAST = 4
#: Rows from which on they tell whether sensors report at different times.
_ENOUGH = 20
#: A value is held for so many usual intervals of its sensor, and for so many times the interval that one in twenty
#: exceeds: intervals at random are then longer once in ten thousand.
_INTERVALS, _TAILS = 5.0, 3.0
#: Steps between which an automatic one is chosen, in seconds.
_ROUND = (
    *(s * unit for unit in (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1) for s in (1.0, 2.0, 5.0)),
    *(s * unit for unit in (1.0, 60.0) for s in (1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0)),
    *(3600.0 * h for h in (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0)),
    *(86400.0 * d for d in (1.0, 2.0, 7.0, 14.0, 28.0)),
)


# ---------------------------------------------------------------------- the grid


class Grid:
    """Records in, regular rows out, block after block.

    Args:
        names: The columns of numbers.
        categories: The columns of words.
        step: The length of a step, in the unit of the times; 0 makes each time a row.
        max_age: How long a value of each column is held, in the same unit; a column that is absent is not held.
        switches: The columns of numbers that only take the values 0 and 1.

    Row k ends at k steps after time 0, and holds what was reported after the end of the row before, up to its own: of
    several values of a sensor the mean, of switches and words the last. A sensor that reported nothing in a step has
    its last value, unless that is older than ``max_age`` or the sensor said that it has none (NaN). After a pause in
    which no sensor has a value rows go on with the next record. Where time goes back by more than any value is held,
    what was held is forgotten.

    >>> grid = Grid(["a", "b"], step=10.0, max_age={"a": 20.0, "b": 20.0})
    >>> time, rows = grid.add(np.array([1.0, 4.0, 8.0, 31.0]), np.array([0, 1, 0, 1]), np.array([1.0, 5.0, 3.0, 6.0]))
    >>> time.tolist(), rows.tolist()
    ([10.0, 20.0], [[2.0, 5.0], [3.0, 5.0]])
    >>> grid.finish()[1].tolist()
    [[nan, 6.0]]
    """

    def __init__(
        self,
        names: Sequence[str],
        categories: Sequence[str] = (),
        *,
        step: float,
        max_age: Mapping[str, float],
        switches: Sequence[str] = (),
    ) -> None:
        from emphatic.nexting.tables.grid_kernels import (
            HEAD,
            HELD,
            IS_STATE,
            LATEST,
            LIMIT,
            LONGEST,
            STAMP,
            STEP,
            WIDTH,
        )

        self.names, self.categories, self.step = tuple(names), tuple(categories), float(step)
        columns = (*self.names, *self.categories)
        self._state = np.zeros((len(columns), WIDTH))
        self._state[:, HELD] = self._state[:, STAMP] = np.nan
        self._state[:, LIMIT] = [max_age.get(column, -1.0) for column in columns]
        self._state[:, IS_STATE] = [column in {*switches, *categories} for column in columns]
        self._head = np.zeros(HEAD)
        self._head[[STEP, LATEST]] = np.nan
        self._head[LONGEST] = max(self._state[:, LIMIT].max(initial=0.0), self.step)
        #: The words of each category by their numbers, in the order in which they came.
        self._words: dict[str, dict[str, int]] = {name: {} for name in self.categories}

    def add(self, times: Array, columns: NDArray[np.int64], values: Array) -> tuple[Array, Array]:
        """Take the next records.

        Args:
            times: The time of each record (B,).
            columns: The place of each record's column among ``names`` and ``categories`` (B,), −1 of one that only
                says that time has passed.
            values: The value of each record (B,), NaN if the sensor says that it has none; of a category a number of
                ``encode``.

        Returns:
            The end of each step that is complete, (R,), and its row (R, columns).
        """
        from emphatic.nexting.tables.grid_kernels import advance

        times = np.ascontiguousarray(times, np.float64)
        columns = np.ascontiguousarray(columns, np.int64)
        values = np.ascontiguousarray(np.where(np.isinf(values), np.nan, values), np.float64)
        room = 16 if len(times) == 1 else _ROWS
        ends, rows, at = [], [], 0
        while True:
            end, row = np.empty(room), np.empty((room, len(self._state)))
            at, count = advance(times, columns, values, at, self.step, self._state, self._head, end, row)
            ends.append(end[:count])
            rows.append(row[:count])
            if at == len(times):
                return (ends[0], rows[0]) if len(ends) == 1 else (np.concatenate(ends), np.concatenate(rows))

    def finish(self) -> tuple[Array, Array]:
        """The row of the step that is not complete: nothing comes after it. None of it if there was no record."""
        from emphatic.nexting.tables.grid_kernels import STEP

        number = self._head[STEP]
        if np.isnan(number):
            return np.empty(0), np.empty((0, len(self._state)))
        after = (number + 1.0) * self.step if self.step > 0.0 else np.nextafter(number, np.inf)
        return self.add(np.array([after]), np.array([-1]), np.array([np.nan]))

    def encode(self, category: str, words: Sequence[str | None]) -> Array:
        """The words of a category as numbers, NaN for None.

        Args:
            category: The column.
            words: The words.
        """
        numbers = self._words[category]
        return np.array([np.nan if word is None else numbers.setdefault(word, len(numbers)) for word in words])

    def decode(self, category: str, values: Array) -> list[str | None]:
        """The words of which ``encode`` made these numbers.

        Args:
            category: The column.
            values: The numbers, NaN for None.
        """
        words = list(self._words[category])
        return [None if math.isnan(value) else words[int(value)] for value in values.tolist()]

    def feed(self, row: ParsedRow, columns: Sequence[str] | None = None) -> list[ParsedRow]:
        """The rows that a reading of a live stream completes.

        Args:
            row: The reading, with all columns.
            columns: The columns that it reports, also where it says that they have no value; by default those that
                have one.
        """
        from emphatic.nexting.tables.pipe import ParsedRow

        reported = dict(zip(self.names, row.values, strict=True))
        for name in self.categories:
            reported[name] = float(self.encode(name, [row.labels[name]])[0])
        chosen = [name for name, value in reported.items() if not math.isnan(value)] if columns is None else columns
        places = [i for i, name in enumerate(reported) if name in chosen] or [-1]
        values = [math.nan if i < 0 else reported[(*self.names, *self.categories)[i]] for i in places]
        ends, rows = self.add(np.full(len(places), row.time), np.array(places), np.array(values))
        C = len(self.names)
        completed = []
        for end, cells in zip(ends.tolist(), rows, strict=True):
            labels = {name: self.decode(name, cells[C + j : C + j + 1])[0] for j, name in enumerate(self.categories)}
            completed.append(ParsedRow(cells[:C].tolist(), labels, end, end, {}, True))
        return completed

    def counts(self) -> dict[str, int]:
        """The records that came ``late``, after their step was complete, and those that are ``timeless``; neither is
        used. And ``restarts``: how often time went back by more than any value is held."""
        from emphatic.nexting.tables.grid_kernels import LATE, RESTARTS, TIMELESS

        places = {"late": LATE, "timeless": TIMELESS, "restarts": RESTARTS}
        return {name: int(self._head[place]) for name, place in places.items()}

    def copy(self) -> Grid:
        """A grid at the same place, which goes on by itself."""
        return Grid.restore(self.state())

    def state(self) -> dict[str, Any]:
        """The whole state, as JSON can hold it."""
        return {
            "names": list(self.names),
            "categories": list(self.categories),
            "step": self.step,
            "columns": [[_or_none(number) for number in column] for column in self._state.tolist()],
            "head": [_or_none(number) for number in self._head.tolist()],
            "words": {name: list(words) for name, words in self._words.items()},
        }

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> Grid:
        """The grid of which this is the state; ValueError if it is none.

        Args:
            state: As ``state`` returns it.
        """
        try:
            grid = cls(state["names"], state["categories"], step=state["step"], max_age={})
            columns, head = np.array(state["columns"], np.float64), np.array(state["head"], np.float64)
            if columns.shape != grid._state.shape or head.shape != grid._head.shape or not grid.step >= 0.0:
                raise ValueError
            grid._state, grid._head = columns, head
            grid._words = {name: {word: i for i, word in enumerate(state["words"][name])} for name in grid.categories}
        except (KeyError, TypeError, ValueError):
            raise ValueError("its grid of time does not fit") from None
        return grid


def _or_none(number: float) -> float | None:
    return number if math.isfinite(number) else None


# ---------------------------------------------------------------------- which grid


@dataclass(frozen=True)
class GridPlan:
    """The grid that was chosen for some sensors.

    Args:
        step: The length of a step; 0 where the rows of the table stay as they are.
        max_age: How long a value of each sensor is held.
        why: Why there is a grid, in words.
        interval: The median interval of the sensors; NaN where it was not needed.
    """

    step: float
    max_age: Mapping[str, float]
    why: str
    interval: float = math.nan

    def facts(self, grid: Grid) -> dict[str, Any]:
        """The grid as JSON can hold it, after a pass."""
        return {
            "step": self.step or None,
            "why": self.why,
            "median_interval": _or_none(self.interval),
            "max_age": dict(self.max_age),
        } | grid.counts()


class _Intervals(NamedTuple):
    """How often a sensor reports: the usual interval, the one that one in twenty exceeds, the longest."""

    usual: float
    tail: float
    longest: float

    @classmethod
    def of(cls, times: Array) -> _Intervals | None:
        """Of the times of its reports; None if they are too few to tell."""
        steps = np.diff(times[np.isfinite(times)])
        steps = steps[steps > 0]
        if len(steps) < _LEAST - 1:
            return None
        tail = float(np.quantile(steps, 0.95))
        # Of a sensor that reports in bursts the median says little: rows would be many times the records.
        within = steps[steps <= max(5.0 * float(np.median(steps)), 3.0 * tail)]
        return cls(max(float(np.median(steps)), float(within.mean()) / 4.0), tail, float(steps.max()))


def _plan(
    reports: Mapping[str, Array], discrete: Sequence[str], options: ReadingOptions, dated: bool, why: str
) -> GridPlan | None:
    """The grid for sensors that report at these times; None if they do not tell a step.

    Args:
        reports: The times at which each sensor reports.
        discrete: The sensors that have states, not measurements: they report when these change.
        options: What the user says.
        dated: Whether times are seconds since 1970.
        why: Why there is a grid.
    """
    intervals = {name: known for name, times in reports.items() if (known := _Intervals.of(times)) is not None}
    step = options.resample if isinstance(options.resample, float) else None
    usual = sorted(known.usual for known in intervals.values())
    median = usual[(len(usual) - 1) // 2] if usual else math.nan
    if step is None:
        if not usual:
            return None
        step = _round(median, dated)
    max_age = {}
    for name in reports:
        known = intervals.get(name)
        held = 2.0 * step
        if known is not None:
            held = max(held, _INTERVALS * known.usual, _TAILS * known.tail, known.longest if name in discrete else 0.0)
        elif name in discrete and usual:
            held = max(held, _INTERVALS * usual[-1])
        max_age[name] = held if options.max_age is None else options.max_age
    return GridPlan(step, max_age, why, median)


def _round(interval: float, dated: bool) -> float:
    """A round step near an interval."""
    if dated:
        return min(_ROUND, key=lambda step: abs(math.log(step / interval)))
    decade = 10.0 ** math.floor(math.log10(interval))
    return min((decade * digit for digit in (1.0, 2.0, 5.0, 10.0)), key=lambda step: abs(math.log(step / interval)))


def plan_records(
    times: Array,
    columns: NDArray[np.int64],
    names: Sequence[str],
    discrete: Sequence[str],
    options: ReadingOptions,
    dated: bool,
) -> GridPlan | None:
    """The grid for records in long format, sorted by time; None where their moments are regular rows already.

    Args:
        times: The time of each record.
        columns: The place of its sensor among the names.
        names: The sensors.
        discrete: The sensors that have states.
        options: What the user says.
        dated: Whether times are seconds since 1970.
    """
    if options.resample == "none":
        return None
    reports = {name: times[columns == c] for c, name in enumerate(names)}
    if isinstance(options.resample, float):
        return _plan(reports, discrete, options, dated, "as requested")
    moments = np.unique(times)
    if len(times) < _ENOUGH:
        return None
    is_complete = len(times) >= _DENSE * len(moments) * len(names)
    is_regular = Clock(moments).regular
    if is_complete and is_regular:
        return None
    why = "sensors report at different times" if not is_complete else "readings arrive at irregular times"
    return _plan(reports, discrete, options, dated, why)


def plan_rows(
    times: Array,
    present: Mapping[str, NDArray[np.bool_]],
    discrete: Sequence[str],
    options: ReadingOptions,
    dated: bool,
    categories: Sequence[str] = (),
) -> GridPlan | None:
    """The grid for a wide table, from its first rows; None where they stay as they are.

    Args:
        times: The time of each row.
        present: Where each column has a value.
        discrete: The columns that have states.
        options: What the user says.
        dated: Whether times are seconds since 1970.
        categories: The columns of words.
    """
    if options.resample == "none":
        return None
    reports = {name: times[where] for name, where in present.items()}
    if isinstance(options.resample, float):
        return _plan(reports, discrete, options, dated, "as requested")
    if len(times) < _ENOUGH:
        return None
    # Words that stand in every row, such as the name of the device, say nothing about when its sensors report.
    numbers = [name for name in present if name not in categories]
    shares = {name: float(present[name].mean()) for name in (numbers if len(numbers) > 1 else present)}
    alive = {name: share for name, share in shares.items() if share * len(times) >= _LEAST}
    if len(alive) < 2 or not np.all(np.diff(times) >= 0):  # (nor where a time is missing)
        return None
    if np.mean(list(alive.values())) <= _SPARSE + 0.1 and max(alive.values()) < _DENSE:
        return _plan(reports, discrete, options, dated, "sensors report at different times")
    clock = Clock(times)
    slow = [name for name, share in alive.items() if share < _SPARSE]
    if slow and max(alive.values()) >= _DENSE and clock.regular and not np.any(np.diff(times) == 0):
        plan = _plan({name: reports[name] for name in slow}, discrete, options, dated, "")
        if plan is not None:
            why = (
                f"{', '.join(map(repr, slow[:3]))}{' …' if len(slow) > 3 else ''} report less often than there are rows"
            )
            return GridPlan(0.0, plan.max_age, why)
    return None


# ---------------------------------------------------------------------- tables on a grid

#: Times, columns and values of records.
Records = tuple[Array, NDArray[np.int64], Array]


class GriddedSource:
    """A source whose rows are those of a grid, from the records of another source.

    Args:
        grid: The grid before the first record.
        records: Yields the records, whose words the grid that it is given encodes.
        time: The name of the time column, whether it holds dates, and their zone.
        dropped: The rows that the last pass could not use.
        is_complete: Whether the last step ends with the records; if not, more are to come.
        rows: How many rows there are, where that is known.

    ``grid`` is where the last complete pass has come to.
    """

    def __init__(
        self,
        grid: Grid,
        records: Callable[[Grid], Iterator[Records]],
        time: TimeColumn,
        dropped: Callable[[], DroppedRows],
        is_complete: bool = True,
        rows: int | None = None,
    ) -> None:
        from emphatic.nexting.tables.fields import PLAIN

        self.rows = rows
        self._start, self.grid, self._records, self._time = grid, grid, records, time
        self._dropped, self._is_complete, self.style = dropped, is_complete, PLAIN

    @property
    def dropped(self) -> DroppedRows:
        """The rows of the source that the last pass could not use."""
        return self._dropped()

    def look(self) -> pa.Table:
        """The first rows."""
        import pyarrow as pa

        from emphatic.nexting.tables.files import LOOK_ROWS

        batches: list[pa.RecordBatch] = []
        for batch in self.batches((*self._start.names, *self._start.categories, self._time.name), 0):
            batches.append(batch)
            if sum(map(len, batches)) >= LOOK_ROWS:
                break
        return pa.Table.from_batches(batches)

    def batches(self, names: tuple[str, ...], start: int) -> Iterator[pa.RecordBatch]:
        """These columns of all rows from row number ``start`` on."""
        grid = self._start.copy()
        for records in self._records(grid):
            batch = self._batch(grid, names, *grid.add(*records))
            yield batch.slice(min(start, len(batch)))
            start = max(0, start - len(batch))
        if self._is_complete:
            yield self._batch(grid, names, *grid.finish()).slice(start)
        self.grid = grid

    def _batch(self, grid: Grid, names: Sequence[str], ends: Array, rows: Array) -> pa.RecordBatch:
        import pyarrow as pa

        from emphatic.nexting.tables.frames import as_stamps

        arrays: list[Any] = []
        for name in names:
            if name == self._time.name:
                arrays.append(as_stamps(ends, self._time))
            elif name in grid.categories:
                words = grid.decode(name, rows[:, len(grid.names) + grid.categories.index(name)])
                arrays.append(pa.array(words, pa.string()))
            else:
                arrays.append(pa.array(np.ascontiguousarray(rows[:, grid.names.index(name)])))
        return pa.record_batch(arrays, list(names))


def records_of_rows(
    source: Source, when: TimeColumn, names: Mapping[str, NumberStyle], categories: Sequence[str]
) -> Callable[[Grid], Iterator[Records]]:
    """The records of a wide table: each value of a row. An empty field reports nothing.

    Args:
        source: The table.
        when: Its time.
        names: The columns of numbers, and how they are written.
        categories: The columns of words.
    """
    from emphatic.nexting.tables.fields import as_floats, as_plain, parse_labels

    def read(grid: Grid) -> Iterator[Records]:
        columns = (*names, *categories, *when.names)
        for batch in source.batches(columns, 0):
            cells = [as_floats(as_plain(batch.column(name)), style)[0] for name, style in names.items()]
            cells += [grid.encode(name, parse_labels(as_plain(batch.column(name))).tolist()) for name in categories]
            values = np.stack(cells, axis=1)
            present = np.isfinite(values)
            # A row without any value still says that time has passed.
            present = np.column_stack([present, ~present.any(axis=1)])
            rows, places = np.nonzero(present)
            values = np.column_stack([values, np.full(len(values), np.nan)])
            yield (
                when.seconds(batch)[rows],
                np.where(places == len(cells), -1, places),
                values[rows, places],
            )

    return read


# ---------------------------------------------------------------------- long format

#: Names of columns that say which sensor a value is of, of columns of values, and of columns that go with them.
_KEY = re.compile(
    r"_?(sensor|tag|variable|var|channel|metric|measurement|point|signal|param|parameter|item|entity|topic|field|key|"
    r"series|attribute|property|quantity|observable|statistic|register)[ _.]?(id|name|no|nr|number)?"
)
#: Names of columns that may also say which machine a row is of.
_PLACE = re.compile(r"(device|probe|station|node|name|id)[ _]?(id|name|no|nr|number)?")
_VALUE = re.compile(
    r"((metric|sensor|tag|var|signal|point|parameter|numeric|measured|observed)[ _.]?)?"
    r"_?(value|val|reading|state|data|measurement|payload|wert|messwert|valeur|valor|waarde|y)s?"
    r"([ _.](num|number|numeric|float|double|str))?"
)
_BESIDE = re.compile(r".*(^|[ _.])(id|quality|status|validity|time_ms|flag|table|index|row|no|nr|qos|attributes_id)")
#: The most sensors of a table in long format.
_SENSORS = 10_000


@dataclass(frozen=True)
class LongFormat:
    """A table with a row for each reading of a sensor.

    Args:
        keys: The columns that name the sensor.
        values: The columns that hold its value.
        numeric: Which of the keys are numbers.
        is_certain: Whether it can be nothing else.
    """

    keys: tuple[str, ...]
    values: tuple[str, ...]
    numeric: tuple[bool, ...]
    is_certain: bool = True

    def column(self, words: Sequence[str], value: str) -> str:
        """The column for the values of a sensor.

        Args:
            words: What each of the keys says.
            value: The column of values.
        """
        return " ".join([*words, value] if len(self.values) > 1 else words)

    def spread(self, reading: Mapping[str, Any], style: NumberStyle) -> dict[str, Any] | None:
        """One reading of a live stream as columns of sensors beside the others; None if it names no sensor.

        Args:
            reading: The fields of the reading.
            style: How its numbers are written.
        """
        from emphatic.nexting.tables.fields import as_text, parse_label, parse_number

        words = []
        for key, is_number in zip(self.keys, self.numeric, strict=True):
            text = as_text(reading.get(key))
            word = f"{parse_number(text, style)[0]:g}" if is_number else parse_label(text)
            if word is None or word == "nan":
                return None
            words.append(word)
        beside = {name: field for name, field in reading.items() if name not in (*self.keys, *self.values)}
        return beside | {self.column(words, value): reading[value] for value in self.values if value in reading}


def find_long(look: pa.Table, kinds: Mapping[str, str], when: TimeColumn | None) -> LongFormat | None:
    """The sensors and values of a table whose first rows are in long format; None if they are not.

    They are if the same time comes with several sensors, and with each of them once; or by their names, if there is
    one column of values. It is certain if both columns have the names of such, and no other column may be a signal.

    Args:
        look: The first rows.
        kinds: The kind of each column.
        when: The time.
    """
    if when is None or look.num_rows < 4:
        return None
    candidates = [name for name in kinds if name not in when.names]
    time = when.seconds(look)
    moments = len(np.unique(time))
    named_values = [name for name in candidates if _VALUE.fullmatch(name.strip().lower()) and kinds[name] != "date"]
    numeric = [name for name in candidates if kinds[name] in NUMERIC and not is_empty(look, name)]
    by_name = sorted(candidates, key=lambda name: _KEY.fullmatch(name.strip().lower()) is None)
    for key in by_name:
        lower = key.strip().lower()
        is_sensor, is_place = _KEY.fullmatch(lower) is not None, _PLACE.fullmatch(lower) is not None
        is_key = kinds[key] in ("text", "switch") or (kinds[key] == "number" and (is_sensor or is_place))
        if not is_key:
            continue
        words = labels_of(look, key)
        sensors = len(set(words) - {None})
        values = [name for name in numeric if name != key]
        generic = [name for name in named_values if name in values] or [name for name in named_values if name != key]
        if len(generic) == 1 and is_sensor and 1 <= sensors <= max(look.num_rows / 2, 1):
            others = [name for name in values if name not in generic and not _BESIDE.fullmatch(name.strip().lower())]
            if not others:
                keys = _all_keys(look, time, key, [name for name in candidates if name not in generic], kinds)
                return LongFormat(keys, (generic[0],), tuple(kinds[name] == "number" for name in keys))
        if not values or not 2 <= sensors <= look.num_rows / 2:
            continue
        pairs = len(set(zip(time.tolist(), words, strict=True)))
        several = 1.5 * moments <= look.num_rows and pairs >= 0.99 * look.num_rows
        is_named = (is_sensor or is_place) and kinds[key] == "text" and len(values) == 1 and values[0] in named_values
        if several or is_named:
            certain = is_sensor and len(values) == 1 and values[0] in named_values
            return LongFormat((key,), (values[0],), (kinds[key] == "number",), certain)
    return None


def _all_keys(
    look: pa.Table, time: Array, key: str, candidates: Sequence[str], kinds: Mapping[str, str]
) -> tuple[str, ...]:
    """The key and the columns of words that are needed beside it to tell the readings of one time apart."""
    keys: tuple[str, ...] = (key,)

    def pairs(names: Sequence[str]) -> int:
        return len(set(zip(time.tolist(), *(labels_of(look, name) for name in names), strict=True)))

    count, rows = pairs(keys), look.num_rows
    for name in candidates:
        if count >= 0.99 * rows:
            break
        is_place = _PLACE.fullmatch(name.strip().lower()) is not None and kinds[name] == "number"
        if name not in keys and (kinds[name] in ("text", "switch") or is_place):
            more = pairs((*keys, name))
            # Words that differ in every reading are values, not names.
            if more > 1.1 * count and len(set(labels_of(look, name))) <= rows / 4:
                keys, count = (*keys, name), more
    return keys


def is_empty(table: pa.Table, column: str) -> bool:
    """Whether a column has no value in any row."""
    from emphatic.nexting.tables import fields

    array = fields.as_plain(table.column(column))
    return bool(np.isnan(fields.as_floats(array)[0]).all()) and labels_of(table, column).count(None) == len(array)


def labels_of(table: pa.Table, column: str) -> list[str | None]:
    """The words of a column, numbers as they are written most shortly."""
    from emphatic.nexting.tables import fields

    array = fields.as_plain(table.column(column))
    if not fields.is_text(array):
        values = fields.as_floats(array)[0]
        return [None if np.isnan(value) else f"{value:g}" for value in values.tolist()]
    labels: list[str | None] = fields.parse_labels(array).tolist()
    return labels


class Pivoted(NamedTuple):
    """A table in long format that was pivoted.

    Args:
        source: Its rows: a column for each sensor.
        switches: The sensors that take the values on and off.
        percents: Those whose numbers have a percent sign.
        ignored: The sensors that are no columns, and why.
        plan: The grid of its rows; None where they are its own moments.
    """

    source: Source
    switches: tuple[str, ...]
    percents: tuple[str, ...]
    ignored: Mapping[str, str]
    plan: GridPlan | None


def chosen_long(
    name: str, view: Any, time: str | bool | None, style: NumberStyle, columns: Sequence[str]
) -> tuple[LongFormat, TimeColumn]:
    """The long format that a user describes, by its columns of sensors and values, and its time; or a TableError."""
    from emphatic.nexting.tables.fields import find_time

    key, *values = columns
    kinds: dict[str, str] = view.kinds
    for column in columns:
        if column not in kinds:
            raise TableError(f"{name}: there is no column {column!r} to pivot. It has: {', '.join(map(repr, kinds))}.")
    for column in values:
        is_value = _VALUE.fullmatch(column.strip().lower()) is not None and kinds[column] == "text"
        if kinds[column] not in NUMERIC and not is_value:
            raise TableError(f"{name}: column {column!r} holds no numbers, so it cannot be the value to pivot.")
    candidates = {column: kind for column, kind in kinds.items() if column not in columns}
    when, why, _ = find_time(name, view.look, candidates, time, style)
    if when is None:
        raise TableError(f"{name}: a pivot needs a time column, and {why}. Name it: time=…")
    return LongFormat((key,), tuple(values), (kinds[key] == "number",)), when


def pivot(
    name: str,
    source: Source,
    long: LongFormat,
    when: TimeColumn,
    style: NumberStyle,
    options: ReadingOptions,
) -> Pivoted:
    """A table in long format as a column for each sensor, sorted by time, in memory.

    Args:
        name: The name of the table, for messages.
        source: Its rows.
        long: The columns of sensors and values.
        when: The time.
        style: How its numbers are written.
        options: What the user says about rows.
    """
    from emphatic.nexting.tables import fields, frames

    table = frames.read_all(source, (*long.keys, *long.values, *when.names))
    seconds = when.seconds(table)
    key = " and ".join(map(repr, long.keys))
    words = list(zip(*(labels_of(table, column) for column in long.keys), strict=True))
    usable = np.isfinite(seconds) & np.array([None not in word for word in words], np.bool_)
    if not usable.any():
        raise TableError(f"{name}: no row has both a time and a {key}.")
    dropped = source.dropped
    frames.count_rows(dropped, f"no time or no {key}", ~usable)
    rows = np.flatnonzero(usable)
    rows = rows[np.argsort(seconds[rows], kind="stable")]
    sensors = {word: i for i, word in enumerate(dict.fromkeys(words[row] for row in np.flatnonzero(usable).tolist()))}
    if len(sensors) > _SENSORS:
        raise TableError(
            f"{name}: column {key} has {len(sensors):,} different values, too many for a column each. Read the rows as "
            "they are: pivot=False."
        )
    places = np.array([sensors[words[row]] for row in rows.tolist()], np.int64)
    times = seconds[rows]
    numbers: dict[str, Array] = {}
    labels: dict[str, list[str | None]] = {}
    switches, percents, ignored = [], [], {}
    by_sensor = np.argsort(places, kind="stable")
    ends = np.searchsorted(places[by_sensor], np.arange(len(sensors) + 1))
    positions: dict[str, NDArray[np.int64]] = {}
    for value in long.values:
        array = fields.as_plain(table.column(value)).take(rows[by_sensor])
        for word, i in sensors.items():
            column = long.column([text or "" for text in word], value)
            cells = array.slice(ends[i], ends[i + 1] - ends[i])
            kind = fields.find_kind(cells, style)
            if kind in NUMERIC:
                written = replace(style, switch=kind == "switch", percent=kind == "percent")
                numbers[column], unreadable = fields.as_floats(cells, written)
                if unreadable:
                    dropped.add(f"not a number, among those of {column!r}", 0, unreadable)
                switches += [column] if kind == "switch" else []
                percents += [column] if kind == "percent" else []
            elif kind == "text":
                states = fields.parse_labels(cells)
                labels[column] = [None if fields.is_absent(state) else state for state in states.tolist()]
            else:
                ignored[column] = "dates, not readings"
                continue
            positions[column] = by_sensor[ends[i] : ends[i + 1]]
    plan = plan_records(times, places, [" ".join(map(str, word)) for word in sensors], [], options, when.dated)
    rows_known, last_counts = None, switches
    if plan is None:  # a row for each moment, in which the last of several readings counts, as in any assignment
        grid_plan, rows_known, last_counts = GridPlan(0.0, {}, ""), len(np.unique(times)), list(numbers)
        superseded = sum(len(at) - len(np.unique(times[at])) for at in positions.values())
        if superseded:
            dropped.add(f"another reading of the same {key} at the same time follows", 0, superseded)
    else:
        reports = {column: times[np.sort(at)] for column, at in positions.items()}
        chosen = _plan(reports, (*switches, *labels), options._replace(resample=plan.step), when.dated, plan.why)
        assert chosen is not None
        grid_plan = plan = replace(chosen, interval=plan.interval)
    grid = Grid(list(numbers), list(labels), step=grid_plan.step, max_age=grid_plan.max_age, switches=last_counts)
    # One record after the other, as they were reported; columns of one row together.
    columns = [*numbers, *labels]
    cells_of = [*numbers.values(), *(grid.encode(column, states) for column, states in labels.items())]
    at = np.concatenate([positions[column] for column in columns])
    order = np.argsort(at, kind="stable")
    records = (
        times[at[order]],
        np.repeat(np.arange(len(columns)), [len(cells) for cells in cells_of])[order],
        np.concatenate(cells_of)[order],
    )

    def read(grid: Grid) -> Iterator[Records]:
        for begin in range(0, len(at), _CHUNK):
            chunk = slice(begin, begin + _CHUNK)
            yield records[0][chunk], records[1][chunk], records[2][chunk]

    gridded = GriddedSource(grid, read, when, lambda: dropped, options.is_complete or plan is None, rows_known)
    return Pivoted(gridded, tuple(switches), tuple(percents), ignored, plan)


# ---------------------------------------------------------------------- what was decided, in words


def arrangement_lines(facts: Mapping[str, Any]) -> list[str]:
    """How the rows of a table were arranged, in sentences.

    Args:
        facts: As ``Table.facts`` returns them.
    """
    lines = []
    if facts["pivoted"]:
        sensor, *values = map(repr, facts["pivoted"])
        lines.append(f"Pivoted: a column of {' and '.join(values)} for each {sensor}.")
    resampled = facts.get("resampled")
    if not resampled:
        return lines

    def written(number: float) -> str:
        return f"{number:g}" if facts["time"].get("format") == "a number" else format_duration(number)

    ages = sorted(set(resampled["max_age"].values()))
    held = written(ages[0]) if ages[0] == ages[-1] else f"{written(ages[0])} to {written(ages[-1])}, by sensor"
    if resampled["step"] is None:
        return [*lines, f"Held: {resampled['why']}; their last value is used for at most {held}."]
    interval = resampled["median_interval"]
    why = resampled["why"] + (f"; their median interval is {written(interval)}" if interval else "")
    lines.append(
        f"Resampled: one row per {written(resampled['step'])} ({why}); a last value is used for at most {held}."
    )
    losses = {"after their step was complete": resampled["late"], "without a time": resampled["timeless"]}
    lost = [f"{count:,} {what}" for what, count in losses.items() if count]
    return [*lines, f"Values not used: {', '.join(lost)}."] if lost else lines
