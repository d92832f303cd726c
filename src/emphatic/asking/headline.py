"""The headline: of each signal the value at each horizon and the mean up to it, answered together.

The labels ``SIGNAL at +h`` and ``mean of SIGNAL over h`` of all signals close at the same row. So there is one matrix
of recursive least squares a horizon, with all of them as right-hand sides: the gain is computed once. Its features are
of all signals: readings, differences, traces, the exponential mean of that horizon, what came at this time of day and
week, and the calendar; few of each signal where there are many. Beside it stands a small matrix of each signal, with
its own features alone, from which the expected size of errors is learned too. These answer by differences from now and
from the last cycle. They, the simple answers and the exponential mean are combined by their mean squared errors, and
the result with a combination of the simple answers alone, as for questions that are asked. The answer lies between that
mean and the median, or is the value now, so that it is no worse than the simple answers by mean absolute and by mean
squared error.

A missing reading is held for features, and is no label. A row that has a label of one signal and none of another counts
in the shared matrix, and leaves the weights of the other as they are; in the small matrix of the other it does not
count. Of a long window only some rows are learned from, 64 in its length: labels of neighbouring rows are nearly the
same. After the first 32,768 of these the matrices learn from every second, which counts as two; sizes of errors and
weights are learned from all. All rows are answered and scored, of windows of more than 4,096 rows one in several.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emphatic.answers.language import Question, parse, quoted
from emphatic.answers.timing import Timing
from emphatic.asking import layout
from emphatic.asking.answers import _DAY, _SLACK, _WEEK, _all_near, _Answerer, _Cycles
from emphatic.common.settings import format_duration
from emphatic.engines.compiled import direct
from emphatic.engines.lanes import WIDTH
from emphatic.scores.measures import BLOCKS, ErrorBlocks

__all__ = ["MOST_SIGNALS", "Headline", "headline_questions"]

Array = NDArray[np.float64]
#: The length in rows and the strength of each period, shortest first.
FindPeriods = Callable[[Array, Sequence[int]], Sequence[tuple[int, float]]]
#: More signals than this have no headline, unless it is asked for.
MOST_SIGNALS = 64
#: Rows more than a window has for which there is room at first, and signals that are not predicted that are features.
_SPARE, _OTHERS = 8, 7
#: The most features of the shared matrix.
_SHARED = 150
#: The features of a signal that the shared matrix takes, most useful first: as many as fit.
_PICKS = (1, 19, 2, 8, 7, 23, 4, 9, 20, 26, 6, 10, 29, 30, 3, 5, 11, 21, 22, 24, 25, 27, 28, 12, 13, 14)
#: Rows of a window that are learned from, and that are scored, at most; points at which its season is looked up.
_LEARNED, _SCORED, _LOOKED_UP = 64, 4096, 12
#: Rows before periods are looked for, and the factor by which they grow until the next time: at first, and once as many
#: rows are looked through as ever will be.
_FIRST_SEARCH, _GROWTH, _LATE_GROWTH = 40, 1.25, 2.0
#: Rows for which there is room at first where periods are looked for.
_FIRST_PAST = 512
#: The least strength of a period: where the correlation with one period ago is ½, to repeat the period has the squared
#: error of the mean. How far a period may be from a cycle of the calendar to be the same, and the most periods in it.
_STRONG, _SAME, _WITHIN_CYCLE = 0.5, 0.02, 4
#: Bytes of a line of the cache.
_LINE = 64
#: The most slots of a day, for the scale of errors.
_DAY_SLOTS = 1440


@cache
def _kernels() -> Any:
    """The compiled loop, when it is first needed."""
    from emphatic.asking import headline_kernels

    return headline_kernels


def headline_questions(
    signals: Sequence[str], horizons: Sequence[float | str], step: float | None
) -> dict[tuple[str, float | str], tuple[Question, Question]]:
    """The value and the mean of each signal at each horizon, by these, as far as a question can name them.

    A number of rows that is not whole, and a name with a backtick, cannot be written in a question.

    Args:
        signals: The signals that are predicted.
        horizons: Numbers of rows, or durations.
        step: The usual step of the times; None without times.

    >>> [question.text for pair in headline_questions(["side 1"], [8, 2.5], None).values() for question in pair]
    ['`side 1` at +8', 'mean of `side 1` over 8']
    """
    lengths = {horizon: horizon if isinstance(horizon, str) else f"{horizon:.15g}" for horizon in horizons}
    names = {signal: quoted(signal) for signal in signals}
    lengths = {horizon: text for horizon, text in lengths.items() if _asks(f"x at +{text}", "x", step)}
    names = {signal: name for signal, name in names.items() if _asks(f"{name} at +1", signal, step)}
    return {
        (signal, horizon): (parse(f"{name} at +{text}"), parse(f"mean of {name} over {text}"))
        for signal, name in names.items()
        for horizon, text in lengths.items()
    }


def _asks(text: str, signal: str, step: float | None) -> bool:
    """Whether a text asks for the value of a signal at a horizon that the stream has."""
    try:
        question = parse(text)
        question.span(step)
    except ValueError:
        return False
    return question.kind == "at" and question.expression.names == {signal}


class Headline:
    """The values and means of all signals at all horizons, and their state from row to row.

    Args:
        predicted: The signals to predict.
        horizons: Numbers of rows, or durations.
        signals: All signals of the stream.
        timing: What is known of its times.
        coverage: The share of labels that are to fall inside their intervals.
        rows: The number of rows, where it is known: the second half is scored. Otherwise all rows are.
        find_periods: A function of readings and of the periods so far that finds their periods, as
            ``answers.periods.find_periods`` does; None to look for none.
    """

    def __init__(
        self,
        predicted: Sequence[str],
        horizons: Sequence[float | str],
        signals: Sequence[str],
        timing: Timing,
        coverage: float = 0.8,
        rows: int | None = None,
        find_periods: FindPeriods | None = None,
    ) -> None:
        k, self.timing, self.find_periods = _kernels(), timing, find_periods
        pairs = headline_questions(predicted, horizons, timing.step)
        #: The questions, those of a signal together.
        self.questions = [question for pair in pairs.values() for question in pair]
        self.predicted = tuple(dict.fromkeys(signal for signal, _ in pairs))
        self.horizons = tuple(dict.fromkeys(horizon for _, horizon in pairs))
        every = [(signal, horizon) for signal in predicted for horizon in horizons]
        self._forecasts = np.array([every.index(key) for key in pairs], np.intp)
        self._selects_forecasts = len(pairs) < len(every)
        #: Texts that name another column already, and are not shown.
        self.hidden: frozenset[str] = frozenset()
        self._half = 0 if rows is None else rows // 2
        S, H = len(self.predicted), len(self.horizons)
        inputs = [list(signals).index(name) for name in self.predicted]
        unpredicted = [c for c in range(len(signals)) if c not in inputs][:_OTHERS]
        self._cycles = cycles = _Cycles.of(timing)
        step = timing.step or 1.0
        slack = _SLACK if timing.step is not None and timing.regular else 1e-6
        width = k.PAST + (k.SEASONAL if cycles else 0)
        extra = 1 + 3 * len(unpredicted) + (cycles.short.bins + cycles.long.bins + 13 if cycles else 0)
        possible = [i for i in _PICKS if i < width]
        picks = possible[: max(0, (_SHARED - extra) // S)] if S else []
        if len(picks) < 2:  # so many signals that each sees only itself
            unpredicted, extra, picks = [], 0, []
        self._inputs, self._others = np.array(inputs, np.intp), np.array(unpredicted, np.intp)
        #: Whether not all signals are predicted, in their order; and others of one row where there are none.
        self._selects, self._no_others = inputs != list(range(len(signals))), np.empty((1, 0))
        shared = extra + S * len(picks)
        self._picks = np.array(picks, np.int64)
        self._scratch = _aligned(np.zeros(k.scratch_size(S, width, extra)))
        c = np.zeros(k.ALL_CONSTANTS)
        c[k.STEP], c[k.REGULAR], c[k.LIMIT], c[k.SLACK] = step, timing.regular, timing.limit, slack * step
        c[k.HALF], c[k.COVERAGE], c[k.OWN], c[k.EXTRA], c[k.SHARED] = self._half, coverage, width, extra, shared
        if cycles is not None:
            c[k.PERIOD_A], c[k.SLOTS_A], c[k.BINS_A], c[k.OFFSET_A] = cycles.short
            c[k.PERIOD_B], c[k.SLOTS_B], c[k.BINS_B], c[k.OFFSET_B] = cycles.long
            c[k.SHIFT], c[k.CYCLES], c[k.WEEKLY] = cycles.shift, 1.0, cycles.long.period == _WEEK
        day = max(1, round(_DAY / step)) if timing.dated else 1
        c[k.DAY_STRIDE] = max(1, -(-day // _DAY_SLOTS))
        self._constants = c
        self._horizons = np.zeros((H, k.HORIZON))
        for h in range(H):
            self._set_horizon(self._horizons[h], self.questions[2 * h], slack)
        self._paces = np.array([self._find_paces(horizon) for horizon in self._horizons]).reshape(H, 2)
        self._horizons[:, k.RECORD_AT] = np.cumsum(self._horizons[:, k.RECORD_ROOM]) - self._horizons[:, k.RECORD_ROOM]
        self._horizons[:, k.STORED_AT] = np.cumsum(self._horizons[:, k.STORED_ROOM]) - self._horizons[:, k.STORED_ROOM]
        ridges = k.OWN_RIDGE * self._horizons[:, k.ROWS] / self._horizons[:, k.STRIDE]
        slots, days = max(cycles.short.slots, cycles.long.slots) if cycles else 1, max(1, day // int(c[k.DAY_STRIDE]))
        shifted = np.stack([np.zeros(days), np.full(days, -np.inf)])
        bins = cycles.short.bins if cycles else 1
        self.state = np.array([0.0, -np.inf, 0.0])
        rooms = self._horizons[:, k.RECORD_ROOM].sum(), self._horizons[:, k.STORED_ROOM].sum()
        # (in the order of the kernel's parameters; as they are saved)
        arrays = {
            "places": np.tile([0.0] * k.BLOCK_ROWS + [1.0], (H, 1)),
            "readings": np.zeros((k.BLOCK * 4, 2 + S)),
            "sums": np.zeros((4, 1 + 2 * S)),
            "records": np.zeros((int(rooms[0]), k.RECORD + 2 * S * k.RECORD_FIELDS)),
            "stored": np.zeros((int(rooms[1]), S * width + extra + S + 2 * S * k.ENTRIES + 6 * S)),
            "recent": np.zeros((S, k.REMEMBERED)),
            "traces": np.zeros((S, 4)),
            "bounds": np.tile([np.inf, -np.inf, 0.0, 0.0], (S, 1)),
            "moments": np.zeros((S, k.PLAIN, 3)),
            "other_memory": np.zeros((5, len(unpredicted))),
            "other_moments": np.zeros((3 * len(unpredicted), 3)),
            "ahead_moments": np.zeros((H, S, 12, 3)),
            "memory": np.full((S, slots, 4), np.nan),
            "climate": np.zeros((H, 2 * S, bins, 4)),
            "own_P": np.array(_padded(np.eye(width), 2) / ridges[:, None, None, None] * np.ones((1, S, 1, 1))),
            "P": np.tile(_padded(np.eye(shared), 2) / k.SHARED_RIDGE, (H, 1, 1)),
            "own_W": _padded(np.zeros((H, S, 6, width))),
            "W": _padded(np.zeros((H, 4 * S, shared))),
            "targets": np.zeros((H, 2 * S, k.TARGET)),
            "ratios": np.zeros((H, 2 * S, 2 * k.REMEMBERED_RATIOS)),
            "scores": np.zeros((H, 2 * S, 4, layout.SUMS)),
            "blocks": np.zeros((H, 2 * S, BLOCKS, 4 + layout.BASELINE_COUNT)),
            "value_shifted": np.tile(shifted, (S, 1, 1)),
            "mean_shifted": np.tile(shifted, (H * S, 1, 1)),
            "plotted": np.full((H, k.PLOTTED, 2 + S + 10 * S), np.nan),
            "past": np.zeros((S, _FIRST_PAST)),
            # The period of each signal in rows, how many rows ``past`` has taken in, and the row of the next search.
            "cycle": np.array([0.0] * S + [0.0, _FIRST_SEARCH]),
        }
        arrays["targets"][:, :, k.CHOICE] = -1.0
        self._arrangements = self._arrange(arrays, width, extra)
        self._arrays = {name: self._arranged(name, arrays) for name in arrays}
        #: The answers at the last row, its time and readings, (1, …) each.
        self._latest = np.full((1, len(self.questions), 4), np.nan), np.full(1, np.nan), np.full((1, S), np.nan)
        self._gather()

    def _arrange(self, arrays: Mapping[str, Array], width: int, extra: int) -> dict[str, _LaneLayout]:
        """How the kernel has arrays that are saved in another form."""
        k, S, O, H = _kernels(), len(self.predicted), len(self._others), len(self.horizons)
        rows = {
            "readings": ((0, 2), (1, 1)),
            "sums": ((0, 1), (2, 1)),
            "records": ((0, k.RECORD), (2, k.RECORD_FIELDS)),
            "stored": ((0, S * width + extra), (1, 1), (2, k.ENTRIES), (1, 6)),
        }
        out = {name: _LaneLayout((-1,), fields, S, (-1, arrays[name].shape[1])) for name, fields in rows.items()}
        out["other_memory"] = _LaneLayout((5,), ((1, 1),), O, (5, O))
        out["other_moments"] = _LaneLayout((), ((1, 9),), O, (3 * O, 3))
        out["plotted"] = _LaneLayout((H, k.PLOTTED), ((0, 2), (1, 1), (2, 5)), S, arrays["plotted"].shape)
        for name in ("recent", "traces", "bounds", "moments", "memory", "value_shifted"):
            shape = arrays[name].shape
            out[name] = _LaneLayout((), ((1, math.prod(shape[1:])),), S, shape)
        for name, kinds in (("ahead_moments", 1), ("climate", 2), ("targets", 2), ("scores", 2), ("blocks", 2)):
            shape = arrays[name].shape
            out[name] = _LaneLayout((H,), ((kinds, math.prod(shape[2:])),), S, shape)
        shape = arrays["mean_shifted"].shape
        out["mean_shifted"] = _LaneLayout((H,), ((1, math.prod(shape[1:])),), S, shape)
        return out

    def _arranged(self, name: str, arrays: Mapping[str, Array]) -> Array:
        """One of the arrays that are saved, as the kernel has it."""
        k, saved, S = _kernels(), arrays[name], len(self.predicted)
        if name == "W":  # (of a signal, the value and the mean by either difference)
            saved = saved.reshape(len(saved), S, 4, -1).swapaxes(1, 2).reshape(saved.shape)
        if name == "ratios":
            # (0 in a file where there are none yet)
            is_known = np.arange(k.ORDERED) < arrays["targets"][:, :, k.RATIOS, None]
            ordered = np.where(is_known, saved[..., k.ORDERED :], np.inf)
            lasts = ordered[..., k.APART - 1 :: k.APART]
            unused = np.full((*saved.shape[:2], k.RATIO_ROOM - k.LASTS - lasts.shape[-1]), np.inf)
            saved = np.concatenate([saved[..., : k.ORDERED], ordered, lasts, unused], -1)
        return self._arrangements[name].arrange(saved) if name in self._arrangements else np.ascontiguousarray(saved)

    def _saved(self, name: str) -> Array:
        """An array as it is saved: a copy."""
        array, S = self._arrays[name], len(self.predicted)
        if name == "W":
            array = array.reshape(len(array), 4, S, -1).swapaxes(1, 2).reshape(array.shape)
        if name == "ratios":
            array = array[..., : _kernels().LASTS]
            array = np.where(array < np.inf, array, 0.0)
        return self._arrangements[name].save(array) if name in self._arrangements else array.copy()

    def _gather(self) -> None:
        """What the kernel is given besides the rows, in the order of its parameters."""
        self._arrays = {name: _aligned(array) for name, array in self._arrays.items()}
        self._fixed = self._constants, self._horizons, self._paces, self._picks
        self._changing = self._scratch, self.state, *self._arrays.values()
        self._is_short = self._arrays["past"].shape[1] < _kernels().PERIOD_ROWS

    def _set_horizon(self, c: Array, question: Question, slack: float) -> None:
        """What is fixed for a horizon."""
        k = _kernels()
        step, span = self.timing.step or 1.0, question.span(self.timing.step)
        rows = max(1, math.floor(span / step + slack))
        keep = max(1, rows // _SCORED)
        stride = keep * max(1, rows // (_LEARNED * keep))
        c[k.SPAN], c[k.ROWS], c[k.KEEP], c[k.STRIDE] = span, rows, keep, stride
        if self._cycles is not None:
            length = min(rows, max(1.0, self._cycles.long.period / step))
            between = max(1.0, math.ceil(length / _LOOKED_UP))
            c[k.LOOK_BEGIN], c[k.LOOK_STRIDE] = between if between < length else length, between
            c[k.LOOK_COUNT] = max(1, int(length / between))
            c[k.FADING] = math.exp(-rows / max(9.5, 0.4 * self._cycles.short.slots))
        c[k.RECORD_ROOM], c[k.STORED_ROOM] = rows // keep + _SPARE, rows // stride + _SPARE + k.BATCH * k.THIN
        c[k.PLOT_STRIDE] = keep * max(1, rows // (100 * keep))

    def _find_paces(self, horizon: Array) -> tuple[float, float]:
        """By how much a label moves the ends of the intervals of a horizon, and those of an hour."""
        k, cycles, rows = _kernels(), self._cycles, horizon[_kernels().ROWS]
        hourly = 0.0
        if cycles is not None:
            # Labels of one hour within a window are much the same: together they count as one.
            slots, bins = cycles.short.slots, cycles.short.bins
            together = min(rows, max(1.0, slots // bins)) * max(1.0, rows // slots) / horizon[k.STRIDE]
            hourly = min(layout.HOUR_RATE, 0.5 / max(1.0, together))
        return min(0.02, 0.5 / rows), hourly

    @property
    def texts(self) -> list[str]:
        """The texts of the questions that are shown."""
        return [question.text for question in self.questions if question.text not in self.hidden]

    @property
    def shown(self) -> list[int]:
        """The places of the questions that are shown."""
        return [q for q, question in enumerate(self.questions) if question.text not in self.hidden]

    @property
    def features(self) -> int:
        """The number of features that the signals of a horizon share; 0 where each sees only itself."""
        return int(self._constants[_kernels().SHARED])

    def between_rows(self) -> dict[str, str]:
        """The horizons that end between two rows, and how far ahead the reading is that counts as theirs.

        Of two readings that are equally near, it is the earlier one.
        """
        step = self.timing.step
        if step is None:
            return {}
        rows = {str(horizon): self._horizons[h, _kernels().SPAN] / step for h, horizon in enumerate(self.horizons)}
        return {
            horizon: format_duration(max(1, math.ceil(count - 0.5 - 1e-6)) * step)
            for horizon, count in rows.items()
            if abs(count - round(count)) > 0.05
        }

    def __len__(self) -> int:
        return len(self.questions)

    def __call__(self, values: Array, held: Array, when: Array, forecasts: Array | None) -> Array:
        """Answer, low, high and usual (B, Q, 4) at the next rows, after learning from the windows that they close.

        Args:
            values: The readings (B, signals of the stream), NaN where missing: labels are about these.
            held: The readings to make features of.
            when: The times (B,) of the rows.
            forecasts: The exponential means (B, Q'), the first of them of every signal at every horizon.
        """
        B = len(values)
        out = np.empty((B, len(self.questions), 4))
        if B == 1 and _all_near(values) and (held is values or _all_near(held)):
            # One row in which nothing is missing: as it is.
            readings, features, others = values, held, self._no_others
            if self._selects:
                readings, features = values.take(self._inputs, 1), held.take(self._inputs, 1)
                others = held.take(self._others, 1)
            self._run(readings, features, others, when, self._means(forecasts, 1), out)
            self._latest = out, when, features
            return out
        begin = 0
        while begin < B:
            until_search = int(self._arrays["cycle"][-1] - self.state[0])
            rows = slice(begin, begin + max(1, until_search))
            begin = rows.stop
            readings = values[rows].take(self._inputs, 1)
            features = np.clip(held[rows].take(self._inputs, 1), -1e100, 1e100)
            self._run(
                np.where(np.abs(readings) < 1e100, readings, np.nan),
                features,
                np.clip(held[rows].take(self._others, 1), -1e100, 1e100),
                when[rows],
                self._means(None if forecasts is None else forecasts[rows], len(readings)),
                out[rows],
            )
        self._latest = out[-1:].copy(), when[-1:].copy(), features[-1:]
        return out

    def _means(self, forecasts: Array | None, B: int) -> Array:
        """The exponential means of the predicted signals and their horizons, (B, S, H)."""
        shape = B, len(self.predicted), len(self.horizons)
        if forecasts is None:
            return np.full(shape, np.nan)
        if self._selects_forecasts or forecasts.shape[1] != len(self._forecasts):
            forecasts = forecasts.take(self._forecasts, 1)
        return np.ascontiguousarray(forecasts, np.float64).reshape(shape)

    def _run(self, values: Array, held: Array, others: Array, when: Array, means: Array, out: Array) -> None:
        """The kernel, on some rows; all arrays are contiguous, and of the types that it reads."""
        if self._is_short:
            self._lengthen_past(when)
        done = direct(_kernels().advance)(*self._fixed, values, held, others, when, means, *self._changing, out)
        while done < len(values):
            self._make_room()
            waiting = values[done:], held[done:], others[done:], when[done:], means[done:]
            done += direct(_kernels().advance)(*self._fixed, *waiting, *self._changing, out[done:])
        if self.state.item(0) >= self._arrays["cycle"].item(-1):
            self._search()

    def _lengthen_past(self, when: Array) -> None:
        """Room for the rows in which periods are found, until there is room for all: row n lies at place n."""
        past, rows = self._arrays["past"], float(len(when))
        if self.timing.step and self.timing.regular:
            if len(when) == 1:
                later = when.item(0) - self.state.item(1)
                rows += later / self.timing.step if 0.0 < later < math.inf else 0.0
            else:
                times = np.concatenate([self.state[1:2], when])
                ahead = np.diff(times[np.isfinite(times)])
                rows += float(ahead[ahead > 0.0].sum()) / self.timing.step
        length = _past_length(self._arrays["cycle"].item(-2) + rows)
        if length > past.shape[1]:
            self._arrays["past"] = np.pad(past, ((0, 0), (0, length - past.shape[1])))
            self._gather()

    def _search(self) -> None:
        """Look for the period of each signal: what came one period ago takes the place of the short cycle's last."""
        cycle, past, S = self._arrays["cycle"], self._arrays["past"], len(self.predicted)
        row, count = int(self.state[0]), int(cycle[S])
        growth = _GROWTH if row < _kernels().PERIOD_ROWS else _LATE_GROWTH
        cycle[S + 1] = max(row + 1, int(row * growth))
        if self.find_periods is None:
            return
        rows = np.arange(max(0, count - past.shape[1]), count) % past.shape[1]
        for s in range(S):
            readings = past[s, rows]
            cycle[s] = self._select_period(self.find_periods(readings[np.isfinite(readings)], [int(cycle[s])]))

    def _select_period(self, periods: Sequence[tuple[int, float]]) -> int:
        """The longest strong period in rows; 0 for none, or where a cycle of the calendar is among the periods."""
        if self._cycles is not None:
            step, cycles = self.timing.step or 1.0, (self._cycles.short.period, self._cycles.long.period)
            lengths = [times * rows * step for rows, _ in periods for times in range(1, _WITHIN_CYCLE + 1)]
            if any(abs(length - cycle) <= _SAME * cycle for length in lengths for cycle in cycles):
                return 0
        return max((rows for rows, strength in periods if strength >= _STRONG), default=0)

    def _make_room(self) -> None:
        """Room for more rows than wait: windows are longer than what is remembered, or rows closer together."""
        k, places, row = _kernels(), self._arrays["places"], int(self.state[0])
        oldest = int(places[:, k.BEGIN_MEAN].min()) // k.BLOCK * k.BLOCK
        if row - oldest + 3 * k.BLOCK > len(self._arrays["readings"]):
            size = 2 * (-(-(row - oldest) // k.BLOCK) + 2) * k.BLOCK
            at, blocks = np.arange(oldest, row), np.arange(oldest // k.BLOCK, -(-row // k.BLOCK))
            for name, ring, places_of in (("readings", size, at), ("sums", size // k.BLOCK, blocks)):
                old = self._arrays[name]
                self._arrays[name] = new = np.zeros((ring, old.shape[1]))
                new[places_of % ring] = old[places_of % len(old)]
        for name, head, tail, begin, room in (
            ("records", k.FIRST_RECORD, k.END_RECORD, k.RECORD_AT, k.RECORD_ROOM),
            ("stored", k.FIRST_STORED, k.END_STORED, k.STORED_AT, k.STORED_ROOM),
        ):
            waiting = places[:, tail] - places[:, head]
            if np.any(waiting >= self._horizons[:, room]):
                old, previous = self._arrays[name], self._horizons.copy()
                self._horizons[:, room] = np.maximum(previous[:, room], 2 * waiting + 1)
                self._horizons[:, begin] = np.cumsum(self._horizons[:, room]) - self._horizons[:, room]
                self._arrays[name] = new = np.zeros((int(self._horizons[:, room].sum()), old.shape[1]))
                for h in range(len(places)):
                    at = np.arange(int(places[h, head]), int(places[h, tail]))
                    from_rows = int(previous[h, begin]) + at % int(previous[h, room])
                    new[int(self._horizons[h, begin]) + at % int(self._horizons[h, room])] = old[from_rows]
        self._gather()

    # ------------------------------------------------------------------ scores

    def summary(self) -> list[dict[str, Any]]:
        """The scores of the questions that are shown, a dict each."""
        return [
            self._scored(q).summary() | {"signal": self.predicted[q // 2 // len(self.horizons)], "headline": True}
            for q in self.shown
        ]

    def about_values(self) -> list[_Answerer]:
        """The questions about values at +h that are shown, with their scores."""
        return [self._scored(q) for q in self.shown if self.questions[q].kind == "at"]

    def recent(self, q: int) -> dict[str, Array]:
        """Some of the last rows of a question, and the last: row, time, now, answer, low, high, usual and label."""
        H = len(self.horizons)
        s, h, kind = q // 2 // H, q // 2 % H, q % 2
        rows = self._arrays["plotted"][h]
        rows = rows[np.argsort(rows[:, 0])][: int(np.isfinite(rows[:, 0]).sum())]
        L = self._arrays["bounds"].shape[1]
        answers = rows[:, 2 + L :].reshape(-1, 5, 2 * L)[:, :, kind * L + s]
        shown = np.column_stack([rows[:, :2], rows[:, 2 + s], answers])
        if self.state[0] > 0.0 and (not len(shown) or shown[-1, 0] != self.state[0] - 1.0):
            latest, time, readings = self._latest
            shown = np.vstack([shown, [self.state[0] - 1.0, time[0], readings[0, s], *latest[0, q], np.nan]])
        names = ("row", "time", "now", "answer", "low", "high", "usual", "label")
        return dict(zip(names, shown.T, strict=True))

    def baselines(self, text: str) -> dict[str, float]:
        """What each baseline predicts at the last row, by name; empty for a question that is not in the headline.

        Args:
            text: The question.
        """
        k, H, row = _kernels(), len(self.horizons), self.state[0] - 1.0
        q = next((q for q, question in enumerate(self.questions) if question.text == text), None)
        if q is None or row < 0.0:
            return {}
        s, h, kind = q // 2 // H, q // 2 % H, q % 2
        begin, room = int(self._horizons[h, k.RECORD_AT]), int(self._horizons[h, k.RECORD_ROOM])
        end = int(self._arrays["places"][h, k.END_RECORD])
        for place in (end - 1, end):  # (of long windows, not every row waits for its label)
            record = self._arrays["records"][begin + place % room]
            if record[k.R_ROW] == row:
                fields = record[k.RECORD :].reshape(k.RECORD_FIELDS, 2, -1)[:, kind, s]
                return {name: float(fields[k.R_NOW + b]) for name, b in self._scored(q).baseline_places.items()}
        return {}

    def _scored(self, q: int) -> _Answered:
        k, H = _kernels(), len(self.horizons)
        s, h, kind = q // 2 // H, q // 2 % H, q % 2
        j = kind * self._arrays["bounds"].shape[1] + s
        sums = self._arrays["scores"][h, :, j].reshape(4, layout.SUMS).copy()
        if kind == 0:
            sums[2:] = self._arrays["scores"][0, :, s].reshape(4, layout.SUMS)[2:]
        target = self._arrays["targets"][h, :, j]
        counts = self.state[k.ROW], target[k.LABELS], target[k.DROPPED]
        length = self._arrays["places"][h, k.BLOCK_ROWS]
        blocks = np.vstack([np.full(BLOCKS, length), self._arrays["blocks"][h, :, j].reshape(BLOCKS, -1).T])
        rows = self._horizons[h, k.ROWS]
        names = self._repeated(s)
        recent = self.recent(q)
        return _Answered(self.questions[q], self._cycles, names, sums, counts, recent, rows, blocks, self._half)

    def _repeated(self, s: int) -> tuple[str | None, str | None]:
        """What the baselines that repeat the short and the long cycle of a signal are called; None for no such one."""
        seconds = self.state[0] * (self.timing.step or 1.0)
        names: list[str | None] = [None, None]
        if self._cycles is not None:
            periods = self._cycles.short.period, self._cycles.long.period
            names = [n if seconds > p else None for n, p in zip(self._cycles.names, periods, strict=True)]
        return "last_period" if self._arrays["cycle"][s] > 0.0 else names[0], names[1]

    # ------------------------------------------------------------------ saving

    def arrays(self) -> dict[str, Array]:
        """The whole state."""
        arrays = {name: self._saved(name) for name in self._arrays}
        arrays |= {"horizons": self._horizons.copy(), "state": self.state.copy(), "half": np.array([float(self._half)])}
        arrays["past"] = arrays["past"][:, : _past_length(arrays["cycle"].item(-2))]  # (however rows were cut)
        answers, time, readings = self._latest
        row = self.state[0] - 1.0 if self.state[0] > 0.0 else np.nan
        return arrays | {"last": answers[0].copy(), "last_row": np.array([row, time[0], *readings[0]])}

    def restore(self, saved: Mapping[str, Array]) -> None:
        """Go on from ``arrays``; ValueError if they do not fit."""
        k = _kernels()
        new = {name: np.array(array, np.float64) for name, array in saved.items()}
        for name, array in self.arrays().items():
            grows = name in ("readings", "sums", "records", "stored")
            if name == "past" and new[name].shape[:-1] == array.shape[:-1]:
                continue
            if new[name].shape[grows:] != array.shape[grows:]:
                raise ValueError(f"what was learned for the values at each horizon does not fit: {name}")
        rooms = new["horizons"][:, [k.RECORD_ROOM, k.STORED_ROOM]].sum(0)
        if (len(new["records"]), len(new["stored"])) != tuple(rooms) or len(new["readings"]) != k.BLOCK * len(
            new["sums"]
        ):
            raise ValueError("what was learned for the values at each horizon does not fit: rooms")
        self._arrays = {name: self._arranged(name, new) for name in self._arrays}
        self._horizons, self.state = new["horizons"], new["state"]
        self._latest = new["last"][None], new["last_row"][1:2], new["last_row"][None, 2:]
        self._half = int(new["half"][0])
        self._constants[k.HALF] = self._half
        self._gather()


def _padded(array: Array, axes: int = 1) -> Array:
    """An array whose last axes are padded with zeros to joined vectors."""
    widths = [(0, 0)] * (array.ndim - axes) + [(0, -size % WIDTH) for size in array.shape[array.ndim - axes :]]
    return np.pad(array, widths)


def _aligned(array: Array) -> Array:
    """An array that begins where a line of the cache does: a vector that lies in two lines takes twice as long."""
    if array.ctypes.data % _LINE == 0:
        return array
    room = np.empty(array.size + WIDTH)
    begin = -room.ctypes.data % _LINE // room.itemsize
    out = room[begin : begin + array.size].reshape(array.shape)
    out[...] = array
    return out


class _LaneLayout(NamedTuple):
    """How an array of the kernel is saved: the numbers of one signal after those of the other.

    The kernel has each number of all signals side by side, padded to whole vectors. Files have no padding, and do not
    depend on the width of vectors.

    Args:
        lead: The first axes, which are the same in both forms; −1 for a number of rows that grows.
        fields: What follows them: (0, n) for n numbers, (1, n) for n of each signal, (2, n) for n of each target, which
            is a kind and a signal.
        signals: The number of signals.
        saved: The axes in a file; −1 for a number of rows that grows.
    """

    lead: tuple[int, ...]
    fields: tuple[tuple[int, int], ...]
    signals: int
    saved: tuple[int, ...]

    @property
    def lanes(self) -> int:
        """The signals with those that they are padded with."""
        return -(-self.signals // WIDTH) * WIDTH

    def arrange(self, saved: Array) -> Array:
        """The array of a file as the kernel has it."""
        lead = tuple(len(saved) if size < 0 else size for size in self.lead)
        rows = saved.reshape(*lead, sum(n * (kinds * self.signals if kinds else 1) for kinds, n in self.fields))
        pieces, begin = [], 0
        for kinds, n in self.fields:
            width = n * (kinds * self.signals if kinds else 1)
            piece = rows[..., begin : begin + width]
            begin += width
            if kinds:
                piece = np.moveaxis(piece.reshape(*lead, kinds, self.signals, n), -1, len(lead))
                piece = _padded(piece).reshape(*lead, n * kinds * self.lanes)
            pieces.append(piece)
        joined = np.concatenate(pieces, -1)
        if len(self.fields) == 1 and self.fields[0][1] > 1:  # (each number of all signals is a row)
            kinds, n = self.fields[0]
            joined = joined.reshape(*lead, n, kinds * self.lanes)
        return np.ascontiguousarray(joined)

    def save(self, array: Array) -> Array:
        """The array of the kernel as files have it."""
        lead = tuple(len(array) if size < 0 else size for size in self.lead)
        lanes = self.lanes
        rows = array.reshape(*lead, sum(n * (kinds * lanes if kinds else 1) for kinds, n in self.fields))
        pieces, begin = [], 0
        for kinds, n in self.fields:
            width = n * (kinds * lanes if kinds else 1)
            piece = rows[..., begin : begin + width]
            begin += width
            if kinds:
                piece = piece.reshape(*lead, n, kinds, lanes)[..., : self.signals]
                piece = np.moveaxis(piece, len(lead), -1).reshape(*lead, n * kinds * self.signals)
            pieces.append(piece)
        joined = np.concatenate(pieces, -1)
        return np.ascontiguousarray(joined.reshape(*(len(array) if size < 0 else size for size in self.saved)))


def _past_length(rows: float) -> int:
    """For how many rows there is room, where periods are looked for, after so many rows."""
    length = _FIRST_PAST
    while length < min(rows, _kernels().PERIOD_ROWS):
        length *= 2
    return length


class _Answered(_Answerer):
    """One question of the headline, as far as its scores are computed from it."""

    def __init__(
        self,
        question: Question,
        cycles: _Cycles | None,
        repeated: tuple[str | None, str | None],
        sums: Array,
        counts: tuple[float, float, float],
        recent: Mapping[str, Array],
        rows: float,
        blocks: Array,
        half: int,
    ) -> None:
        k = layout
        self.question, self._cycles, self.scale, self._rows = question, cycles, 1.0, dict(recent)
        self._repeated = repeated
        self._arrays, self._constants, self.state = {"sums": sums}, np.full(k.CONSTANTS, float(k.AT)), np.zeros(k.STATE)
        self.state[k.ROW], self.state[k.LABELS], self.state[k.DROPPED] = counts
        self._half = half
        self._constants[k.ROWS] = rows
        names = self._baseline_names()
        self._blocks = ErrorBlocks(["answer", "label", "label_square", *names], 1)
        used = [0, 1, 2, 3, 4, *(5 + place for place in names.values())]  # (the length of a block comes first)
        self._blocks.restore(blocks[used, :, None])

    def recent(self) -> dict[str, Array]:
        return self._rows

    @property
    def baseline_places(self) -> dict[str, int]:
        """The place of each baseline among those that are known at a row, by name."""
        return self._baseline_names()

    def _baseline_names(self) -> dict[str, int]:
        places = dict(zip((layout.LAST_A, layout.LAST_B), self._repeated, strict=True))
        names = {"persistence": layout.PERSISTENCE, "past_mean": layout.PAST_MEAN, "climatology": layout.CLIMATOLOGY}
        return names | {name: place for place, name in places.items() if name is not None}
