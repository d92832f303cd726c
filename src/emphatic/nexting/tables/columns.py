"""What the columns of a table are: signals, counters, and what is no signal. It is decided here and nowhere else.

Most columns of numbers are signals. A *counter* (an energy meter, a count of bytes) only ever rises, until it starts
again; it is learned as its increments. An id, a year, a count of rows and a column that never changes are no signals:
they are left out, unless the user asks for them. A table may also hold the rows of several machines, each with times of
its own: ``find_machines`` finds the column that tells them apart.

Decisions are made from the first rows of a table, or of each machine in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

    from emphatic.nexting.tables.fields import TimeColumn
    from emphatic.nexting.tables.table import Block

__all__ = ["CONSTANT", "ColumnRole", "Increments", "combine_roles", "find_machines", "find_role", "find_roles"]

Array = NDArray[np.float64]

#: Why a column is no signal.
CONSTANT, COUNT_OF_ROWS, ID, YEAR = "it never changes", "a count of rows", "an id", "a year"
#: Last words of the names of ids, and those that are only with the name of a thing before them.
_ID_WORDS = {"id", "ids", "uid", "uuid", "guid", "pid", "tid", "serial", "imei", "mac", "vin", "udi"}
_NUMBER_WORDS = {"no", "nr", "num", "number", "code", "key", "index", "nummer"}
#: Things whose rows may stand in one table.
_THINGS = {
    *("machine", "unit", "device", "engine", "asset", "equipment", "turbine", "pump", "motor", "compressor", "fan"),
    *("vehicle", "car", "truck", "bus", "train", "bike", "drone", "robot", "ship", "plane", "aircraft", "satellite"),
    *("site", "plant", "station", "line", "cell", "module", "battery", "inverter", "panel", "well", "tank", "boiler"),
    *("host", "hostname", "node", "server", "instance", "container", "pod", "cpu", "core", "disk", "interface"),
    *("house", "household", "home", "building", "room", "zone", "apartment", "floor", "meter", "customer", "client"),
    *("patient", "subject", "person", "user", "participant", "animal", "store", "shop", "product", "item", "sku"),
    *("country", "city", "region", "location", "area", "place", "farm", "group", "series", "name", "serial"),
    *("maschine", "anlage", "gerät", "geraet", "fahrzeug", "standort", "raum", "gebäude", "linie", "sensor", "probe"),
}
_YEAR_WORDS = {"year", "years", "yr", "yyyy", "jahr", "annee", "année", "ano", "año", "anno", "rok"}
_ROW_WORDS = {"row", "rows", "index", "idx", "line", "record", "seq", "sequence", "sample", "obs", "observation", "n"}
_METER_WORDS = {
    *("energy", "energie", "kwh", "wh", "mwh", "total", "totals", "sum", "cumulative", "cum", "count", "counts"),
    *("counter", "counters", "bytes", "octets", "packets", "pkts", "odometer", "mileage", "requests", "errors"),
    *("zähler", "zaehler", "zählerstand", "zaehlerstand", "meter", "consumption", "verbrauch", "produced", "events"),
    *("import", "export", "received", "sent", "starts", "cycles", "pulses", "ticks", "revolutions", "produktion"),
}
#: Readings from which a column can be told to be a counter: by its name, and without.
_FEWEST_NAMED, _FEWEST = 10, 200
#: Rises of a counter, and in how many of the fifths of its rows there are some, at least.
_RISES, _PIECES = 8, 4
#: The share of steps that may go down, where a counter starts again: by its name, and without.
_RESETS_NAMED, _RESETS = 0.02, 0.005
#: An increment larger than so many times the largest of the first rows is not taken for one where a counter goes back.
_PLAUSIBLE = 4.0
#: Where counters overflow.
_OVERFLOWS = tuple(float(2**bits) for bits in (8, 16, 24, 32, 48, 53, 63, 64)) + tuple(10.0**k for k in range(4, 13))


# ---------------------------------------------------------------------- signals and counters


@dataclass(frozen=True)
class ColumnRole:
    """What a column of numbers is.

    Args:
        kind: "signal", "counter", or "none".
        why: Why it is no signal.
        largest: Of a counter, its largest increment.
    """

    kind: str
    why: str = ""
    largest: float = 0.0


_SIGNAL = ColumnRole("signal")


def _words(name: str) -> list[str]:
    """The words of a column's name, in lower case: machineId, machine_id and "Machine ID" have the same."""
    pieces = re.findall(r"[A-ZÄÖÜ]+(?=[A-ZÄÖÜ][^\W\d_A-ZÄÖÜ])|[A-ZÄÖÜ]?[^\W\d_A-ZÄÖÜ]+|[A-ZÄÖÜ]+|\d+", name)
    return [piece.lower() for piece in pieces]


def _names_id(name: str) -> bool:
    """Whether a name is that of an id: it ends in "id" or the like, or is "machine_no"."""
    words = _words(name)
    if not words:
        return False
    if words[-1] in _ID_WORDS or (len(words) == 1 and re.fullmatch(r"\w{3,}_?id", words[0]) and _is_thing(words[0])):
        return True
    return len(words) > 1 and words[-1] in _NUMBER_WORDS and words[-2] in _THINGS


def _is_thing(word: str) -> bool:
    """Whether a word is a thing and "id" written together, as "deviceid" is."""
    return word.removesuffix("id").rstrip("_") in _THINGS


def find_role(name: str, values: Array) -> ColumnRole:
    """What a column is, from its first readings.

    Args:
        name: The name of the column.
        values: Its readings (T,) in the order of time, NaN where missing.

    >>> find_role("energy_kwh", np.cumsum(np.arange(300.0) % 7)).kind
    'counter'
    >>> find_role("n", np.arange(300.0)).why, find_role("machine_id", np.arange(300.0) % 7).why
    ('a count of rows', 'an id')
    """
    x = values[np.isfinite(values)]
    if len(x) < 3:
        return _SIGNAL
    whole = bool((x == np.rint(x)).all())
    words = _words(name)
    if whole and _names_id(name) and not (words == ["id"] and _is_smooth(x)):
        return ColumnRole("none", ID)
    if whole and words and words[-1] in _YEAR_WORDS and x.min() >= 1500 and x.max() < 2500:
        return ColumnRole("none", YEAR)
    if (x == x[0]).all():
        return ColumnRole("none", CONSTANT)
    steps = np.diff(x)
    if _counts_rows(words, x, steps):
        return ColumnRole("none", COUNT_OF_ROWS)
    if whole and x.min() >= 1900 and x.max() < 2100 and len(x) >= 30 and ((steps == 0) | (steps == 1)).all():
        return ColumnRole("none", YEAR)
    return _counter(bool(_METER_WORDS & set(words)), x, steps) or _SIGNAL


def _is_smooth(x: Array) -> bool:
    """Whether readings swing and follow one another closely, as the idle share of a processor does, and ids do not."""
    steps = np.diff(x)
    swings = bool((steps > 0).any() and (steps < 0).any() and len(np.unique(x)) > 10)
    return swings and bool(np.mean(steps**2) < np.var(x))


def _counts_rows(words: Sequence[str], x: Array, steps: Array) -> bool:
    """Whether readings rise by the same step, nearly always; if their name is that of a count, until they start again.

    A signal that is not whole may also rise evenly, but not for as long.
    """
    step = float(np.median(steps))
    if not step > 0.0 or len(x) < 8:
        return False
    even = np.abs(steps - step) <= 1e-6 * step
    whole = bool((x == np.rint(x)).all())
    if not whole and len(x) < _FEWEST:
        return False
    if words and words[-1] in _ROW_WORDS:
        return whole and bool(np.mean(even) >= 0.8)
    return bool((steps > 0).all() and np.mean(even) >= 0.99)


def _counter(named: bool, x: Array, steps: Array) -> ColumnRole | None:
    """The role of a counter, if these readings are those of one: they never fall, except where it starts again."""
    rises, falls = steps > 0, np.flatnonzero(steps < 0)
    if len(x) < (_FEWEST_NAMED if named else _FEWEST) or x.min() < 0.0 or not rises.any():
        return None
    pieces = sum(bool(piece.any()) for piece in np.array_split(rises, 5))
    if not named and (rises.sum() < _RISES or pieces < _PIECES):
        return None
    largest = float(steps[rises].max())
    if len(falls):
        limit = _RESETS_NAMED if named else _RESETS
        before, after = x[falls], x[falls + 1]
        if len(falls) > max(1.0, limit * len(steps)) or not _restarts(before, after, largest).all():
            return None
        # A level, or the phase of something that repeats, turns back at the same height again and again.
        if not named and len(falls) > 1 and np.ptp(before) < 0.05 * before.max():
            return None
        from emphatic.nexting.tables.guard_kernels import is_code  # late: it imports numba

        codes = np.array([value for value in np.unique(before).tolist() if is_code(value)])
        if len(codes):  # 65535 may stand for a missing reading: what rises to it and falls again is no counter yet
            sound = x[~np.isin(x, codes)]
            return _counter(named, sound, np.diff(sound))
    return ColumnRole("counter", largest=largest)


def _restarts(before: Array, after: Array, largest: float) -> NDArray[np.bool_]:
    """Whether a counter that falls starts again near 0, or overflows."""
    near_zero = after <= np.maximum(_PLAUSIBLE * largest, 0.02 * before)
    return (near_zero & (after < 0.5 * before)) | np.isfinite(_overflow(before, after, _PLAUSIBLE * largest))


def _overflow(before: Array, after: Array, limit: float) -> Array:
    """The increment of a counter that overflowed; NaN where it would be larger than the limit."""
    increments = np.full(before.shape, np.nan)
    for size in _OVERFLOWS:
        increment = after + size - before
        fits = (before < size) & (increment >= 0.0) & (increment <= limit) & (before > 0.5 * size)
        increments = np.where(fits & np.isnan(increments), increment, increments)
    return increments


def _differences(x: Array) -> Array:
    """The differences of readings without the digits that subtraction adds: 12345.6 − 12345.2 is 0.4.

    Increments that are the same would otherwise differ by rounding, which is then all that their range shows.
    """
    with np.errstate(all="ignore"):
        larger = np.maximum(np.abs(x[1:]), np.abs(x[:-1]))
        unit = 10.0 ** np.clip(14.0 - np.ceil(np.log10(larger)), 0.0, 300.0)
        steps = np.diff(x)
        rounded = np.rint(steps * unit) / unit
    differences: Array = np.where(np.isfinite(rounded) & (larger > 0.0), rounded, steps)
    return differences


def find_roles(names: Sequence[str], values: Array) -> dict[str, ColumnRole]:
    """What each column is, from the first rows (T, C) of a table."""
    return {name: find_role(name, values[:, c]) for c, name in enumerate(names)}


def combine_roles(machines: Iterable[Mapping[str, ColumnRole]]) -> dict[str, ColumnRole]:
    """What each column is in a table of several machines, from what it is in each of them.

    A counter may stand still in some machines. A column is left out if it is no signal in any machine.
    """
    kinds: dict[str, list[ColumnRole]] = {}
    for roles in machines:
        for name, role in roles.items():
            kinds.setdefault(name, []).append(role)
    combined = {}
    for name, in_machines in kinds.items():
        moving = [role for role in in_machines if role.why != CONSTANT]
        counters = [role for role in moving if role.kind == "counter"]
        if not moving:
            combined[name] = in_machines[0]
        elif len(counters) == len(moving):
            combined[name] = ColumnRole("counter", largest=max(role.largest for role in counters))
        elif all(role.kind == "none" for role in moving):
            combined[name] = moving[0]
        else:
            combined[name] = _SIGNAL
    return combined


class Increments:
    """Turns the readings of counters into increments a row, block after block.

    The increment of a row is the reading less the last one, divided by the rows since that, if some were missing. After
    a gap, and at the first reading, it is not known. Where a counter goes back it has overflowed or started again: the
    increment is then what makes up for the overflow, or the reading itself, if that is not larger than usual, and
    otherwise not known.

    Args:
        columns: The places of the counters among the signals.
        largest: The largest increment of each that is taken for one where it goes back.
    """

    def __init__(self, columns: Sequence[int], largest: Sequence[float]) -> None:
        self.columns = np.array(columns, np.intp)
        self.largest = np.array(largest, np.float64)
        #: The last reading of each counter, how many rows ago it was, and how often each has gone back.
        self.last, self.since = np.full(len(columns), np.nan), np.zeros(len(columns), np.int64)
        self.resets = np.zeros(len(columns), np.int64)

    def __call__(self, block: Block) -> Block:
        """The block, with increments in the place of the readings of counters."""
        block.values = np.array(block.values)
        for k, c in enumerate(self.columns.tolist()):
            block.values[:, c] = self._increments(k, block.values[:, c], block.gap)
        return block

    def _increments(self, k: int, readings: Array, gap: NDArray[np.bool_]) -> Array:
        """The increments of a counter in the next rows."""
        increments = np.full(len(readings), np.nan)
        known = np.flatnonzero(np.isfinite(readings))
        if not len(known):
            self.since[k] += len(readings)
            return increments
        x = np.concatenate([[self.last[k]], readings[known]])
        rows = np.diff(known, prepend=-1 - int(self.since[k]))
        steps = _differences(x)
        back = np.flatnonzero(steps < 0.0)
        if len(back):
            before, after, limit = x[back], x[back + 1], _PLAUSIBLE * self.largest[k]
            again = np.where(after <= limit, after, np.nan)
            overflow = _overflow(before, after, limit)
            steps[back] = np.where(np.isnan(overflow), again, overflow)
            self.resets[k] += len(back)
        # Whether a gap lies between a reading and the one before it.
        gaps = np.concatenate([[0], np.cumsum(gap)]) if len(gap) else np.zeros(len(readings) + 1, np.int64)
        across = np.diff(gaps[known + 1], prepend=0) > 0
        increments[known] = np.where(across, np.nan, steps / rows)
        self.last[k], self.since[k] = readings[known[-1]], len(readings) - 1 - known[-1]
        if len(gap) and gaps[-1] > gaps[known[-1] + 1]:
            self.last[k] = np.nan  # a gap came after the last reading
        return increments

    def copy(self) -> Increments:
        """The same, to go on by itself."""
        return Increments.restore(self.state())

    def state(self) -> dict[str, Any]:
        """The whole state, as JSON can hold it."""
        last = [None if np.isnan(value) else value for value in self.last.tolist()]
        names = ("columns", "largest", "since", "resets")
        return {"last": last} | {name: getattr(self, name).tolist() for name in names}

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> Increments:
        """The increments of which this is the state.

        Args:
            state: As ``state`` returns it.
        """
        increments = cls(state["columns"], state["largest"])
        increments.last[:] = [np.nan if value is None else value for value in state["last"]]
        increments.since[:], increments.resets[:] = state["since"], state["resets"]
        return increments


# ---------------------------------------------------------------------- several machines in one table


class _Key(NamedTuple):
    """A column that may tell machines apart, how well its name says so, and how many it tells apart."""

    name: str
    rank: int
    machines: int


def find_machines(look: pa.Table, kinds: Mapping[str, str], when: TimeColumn | None) -> str | None:
    """The column that tells several machines apart whose rows stand in one table; None if there are not several.

    There are if times repeat or go back, and within each value of a column they only go forward. With a single column
    of values beside, that column must be named like a thing: otherwise it names sensors, and the table is in long
    format.

    Args:
        look: The first rows.
        kinds: The kind of each column.
        when: The time.
    """
    from emphatic.nexting.tables.fields import as_floats, as_plain, is_text, parse_labels

    rows = look.num_rows
    if rows < 6 or when is None:
        return None
    time = when.seconds(look)
    others = [name for name in kinds if name not in when.names]
    numbers = {
        name: as_floats(as_plain(look.column(name)))[0]
        for name in others
        if kinds[name] == "number" and (_names_id(name) or set(_words(name)) & _THINGS or len(others) <= 200)
    }
    keys = []
    for name in others:
        words = _words(name)
        is_named = _names_id(name) or bool(words and words[-1] in _THINGS)
        if kinds[name] == "text":
            codes = _codes(parse_labels(as_plain(look.column(name))) if is_text(as_plain(look.column(name))) else None)
        elif kinds[name] == "number" and (is_named or _is_whole(numbers.get(name))):
            codes = _codes(numbers[name])
        else:
            continue
        if codes is None or not 2 <= codes.max() + 1 <= rows / 3:
            continue
        signals = [c for c in others if c != name and kinds[c] in ("number", "percent", "switch")]
        signals = [c for c in signals if not _names_id(c)]
        if not signals or (len(signals) == 1 and not is_named) or any(_is_long(name, c) for c in signals):
            continue
        if _separates(codes, time) and (is_named or _is_complete(codes, time)):
            rank = 0 if _names_id(name) else 1 if is_named else 2
            keys.append(_Key(name, rank, int(codes.max()) + 1))
    return min(keys, key=lambda key: (key.rank, key.machines)).name if keys else None


def _is_complete(codes: NDArray[np.int64], time: Array) -> bool:
    """Whether each code has its rows together, or every moment a row of each code: by chance that is not so."""
    machines = int(codes.max()) + 1
    stacked = int((np.diff(codes) != 0).sum()) == machines - 1
    return stacked or len(np.unique(time)) * machines == len(codes)


def _is_whole(x: Array | None) -> bool:
    return x is not None and bool(np.isfinite(x).all() and (x == np.rint(x)).all())


def _is_long(key: str, value: str) -> bool:
    """Whether two names are those of long format, a sensor and its value."""
    sensors = {"sensor", "tag", "variable", "channel", "metric", "measurement", "point", "signal", "parameter", "topic"}
    values = {"value", "values", "val", "reading", "readings", "state", "data"}
    words = _words(value)
    return bool(sensors & set(_words(key))) or bool(words and words[-1] in values)


def _codes(labels: NDArray[Any] | None) -> NDArray[np.int64] | None:
    """A number for each different label, from 0 on; None if some are missing."""
    if labels is None or any(label is None or label != label for label in labels.tolist()):
        return None
    _, codes = np.unique(np.array([str(label) for label in labels.tolist()]), return_inverse=True)
    return codes.reshape(-1).astype(np.int64)


def _separates(codes: NDArray[np.int64], time: Array) -> bool:
    """Whether times repeat or go back in the whole, and not among the rows of each code."""
    if not np.isfinite(time).all():
        return False
    steps = np.diff(time)
    if np.mean(steps == 0) < 0.2 and not (steps < 0).any():
        return False
    order = np.argsort(codes, kind="stable")
    edges = np.flatnonzero(np.diff(codes[order], prepend=-1))
    forward = 0
    for begin, end in pairwise([*edges.tolist(), len(codes)]):
        forward += int((np.diff(time[order[begin:end]]) > 0).sum())
    return forward >= 0.99 * (len(codes) - len(edges)) and forward > 0
