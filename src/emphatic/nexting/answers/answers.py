"""Answers to questions about a stream, row by row, and what was learned for them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.engines.compiled import blas_threads, direct
from emphatic.nexting.answers import kernels, records
from emphatic.nexting.answers.language import parse
from emphatic.nexting.answers.periods import find_periods
from emphatic.nexting.answers.regression import Relations, solve
from emphatic.nexting.answers.scores import baseline_names, judged, scores_of
from emphatic.nexting.answers.targets import LARGEST, GroupOf, Plan
from emphatic.nexting.answers.timing import LogCalendar, Timing
from emphatic.nexting.scores.returns import rows_known
from emphatic.nexting.scores.verdicts import Verdict, finite
from emphatic.nexting.tables import Block, Hold

__all__ = ["Answers"]

Array = NDArray[np.float64]
#: What is learned changes after at most so many rows, fewer at first: a share of the rows so far.
_CHUNK, _SHARE = 64, 16
#: Rows of a window that are learned from at least; the factor by which they grow until the next solution; the ridges,
#: in windows, of all features and of those of the own past; what is added to the first for numbers, in rows.
_LEARNED, _GROWTH, _STRENGTH, _EVENT_STRENGTH, _STRONGER = 32, 1.05, 3.0, 12.0, 20.0
#: How far a feature may be from its mean, in deviations, and the least deviation of one of the series' own past, as a
#: share of that of the series: what is calm now may move again.
_FAR, _LEAST = 3.0, 0.1
#: Rows before periods are looked for, the factors by which they grow until the next time, and the rows looked through.
_FIRST_SEARCH, _GROWN, _LATER, _SEARCHED = 40, 1.25, 2.0, 8192
#: Rows of each question that are remembered, and of all together.
_RECENT, _REMEMBERED = 400, 400_000
#: More groups than this have effects of the hour of the day, no features of other series, and are solved less often.
_MANY, _GROWTH_OF_MANY = 256, 1.1
#: The most rows that are filled in where a regular log lacks them; what is longer is a new beginning.
_FILLED = 1024
#: Rows for which there is room at first, and those that a weighted mean sees at most.
_AT_FIRST, _MOST_LEADS = 1 << 14, 1 << 20
#: Counts of rows that are saved.
_COUNTS = ("row", "read", "half", "due", "search_at", "expected")
#: A row that does not come.
_NEVER = 1 << 60


class Answers:
    """The answers to questions about one stream, and their state.

    Args:
        signals: The signals of the stream.
        questions: The questions as text.
        timing: What is known of the times of the rows.
        coverage: The share of labels that are to lie within their bands.
        rows: The number of rows, where it is known: the second half is scored. Otherwise all rows are.

    >>> x = np.sin(np.arange(400) / 9.0)[:, None]
    >>> answers = Answers(["x"], ["x at +3", "P(x > 0.5 within 5 rows)"], Timing(None))
    >>> out = answers(Block(0, x, None, {}, gap=np.zeros(400, bool)))
    >>> out.shape, bool(abs(out[390, 0, 0] - x[393, 0]) < 0.1)
    ((400, 2, 4), True)
    """

    def __init__(
        self,
        signals: Sequence[str],
        questions: Sequence[str],
        timing: Timing,
        coverage: float = 0.8,
        rows: int | None = None,
    ) -> None:
        self.signals, self.timing = tuple(signals), timing
        self._plan = plan = Plan(self.signals, [parse(text) for text in questions], timing)
        self._calendar = LogCalendar(timing, len(plan.groups) > _MANY)
        learned = {(of.series, of.h) for of in plan.groups if of.series < len(self.signals)}
        self._learners = {pair: column for column, pair in enumerate(sorted(learned))}
        #: The signals and horizons in rows of which TD's weighted means are answers among the others.
        self.learners = [(self.signals[i], h) for i, h in self._learners]
        self._columns = {name: i for i, name in enumerate(self.signals)}
        self._hold = Hold(len(self.signals))
        #: The last time, rows so far with those that were filled in, the row before which rows are learned from next,
        #: and the row of the next search for periods.
        self._time, self._row, self._due, self._search_at = math.nan, 0, 1, _FIRST_SEARCH
        self._expected = 0.0
        farthest = max([_far(group) for group in plan.groups], default=1)
        longest = min(farthest, _AT_FIRST)
        self._has_room = timing.regular and farthest == longest
        periods = [cycle.rows for cycle in self._calendar.cycles]
        self._filled = max([_FILLED, longest, *periods])
        self._memory = self._new_memory(_power(max([longest, _RECENT, *periods]) + 2 * _CHUNK + 2), coverage)
        #: Rows so far that were not filled in, and the one from which on answers are scored.
        self._read, self._half = 0, 0 if rows is None else rows // 2
        self._memory.stream["half"] = _NEVER if self._half else 0
        self._relations = Relations(len(self.signals), len(plan.series))
        S, G = len(plan.series), len(plan.groups)
        self._buffer = np.zeros((S, _CHUNK, records.KNOWN)), np.zeros((G, _CHUNK, 3 + records.PAST_INPUTS))
        self._said = np.zeros(records.SIDES)
        self._room = np.zeros(records.TARGETS), np.zeros((records.ANSWERS, records.ANSWERS)), np.zeros(records.ANSWERS)

    @property
    def texts(self) -> list[str]:
        """The questions."""
        return [question.text for question in self._plan.questions]

    # ------------------------------------------------------------------ state

    def _new_memory(self, R: int, coverage: float) -> records.Memory:
        """The memory before the first row, for R remembered rows."""
        plan, timing, zeros = self._plan, self.timing, np.zeros
        S, G, T = len(plan.series), len(plan.groups), sum(len(group.kinds) for group in plan.groups)
        stream = zeros(1, records.Stream)
        step = timing.step or 1.0
        stream["step"], stream["regular"], stream["limit"] = step, timing.regular, timing.limit
        stream["slack"] = timing.slack * step
        stream["coverage"], stream["block"] = coverage, 1
        series = zeros(S, records.Series)
        series["is_condition"] = [of.is_condition for of in plan.series]
        for p, cycle in enumerate(self._calendar.cycles):
            series["periods"][:, p], series["slots"][:, p], series["dated"][:, p] = cycle.rows, cycle.slots, 1
            series["pace"][:, p] = cycle.slots / max(1.0, cycle.seconds / step)
        groups, targets = zeros(G, records.Group), zeros(T, records.Target)
        lengths = sorted({group.h for group in plan.groups if group.kinds == (records.WEIGHTED,)}) or [1]
        place = target = 0
        seen_signals = min(len(self.signals), records.OTHERS if G <= _MANY else 0)
        for group, of in zip(groups, plan.groups, strict=True):
            condition, is_signal = plan.series[of.series].is_condition, of.series < len(self.signals)
            seen = min(seen_signals, len(self.signals) - is_signal)
            group["series"], group["h"], group["span"], group["is_event"] = of.series, of.h, of.span, of.is_event
            group["stride"] = _stride(of.h)
            group["far"] = _far(of)
            group["room"] = min(_far(of), _AT_FIRST) // group["stride"] + 2 * _CHUNK
            group["begin"], group["target"], group["targets"] = place, target, len(of.kinds)
            group["own"] = (
                2 + (records.SIMPLE - records.DRIFT) * len(of.kinds) + records.CONDITION * condition + records.OWN
            )
            group["features"] = group["own"] - records.OWN + records.COMMON + len(records.OTHER) * seen
            group["learner"] = self._learners.get((of.series, of.h), -1)
            group["fade"] = lengths.index(of.h) if of.h in lengths else 0
            targets["kind"][target : target + len(of.kinds)] = of.kinds
            targets["weights"][target : target + len(of.kinds), records.PAST if of.is_event else records.NOW] = 1.0
            place, target = place + int(group["room"]) + 1, target + len(of.kinds)
        D, H = int(groups["features"].max(initial=1)), self._calendar.cell.slots
        slots = int(series["slots"].max(initial=1)) or 1
        leads = min((kernels.LONGEST + 1) * max(lengths), _MOST_LEADS)
        with np.errstate(under="ignore"):
            fade = (1.0 - 1.0 / np.array(lengths, float).reshape(-1, 1)) ** np.arange(leads)
        clip = np.stack([np.full((G, D), -np.inf), np.full((G, D), np.inf)], axis=1)
        sides = [3 * len(of.kinds) if not of.is_event else 1 for of in plan.groups]
        widths = [int(d) + k for d, k in zip(groups["features"], sides, strict=True)]
        self._grams = [zeros((width, width)) for width in widths]
        room = zeros(2 * _CHUNK * max(widths, default=0))  # (the groups learn one after the other)
        self._rooms = [room[: 2 * _CHUNK * width].reshape(-1, width) for width in widths]
        return records.Memory(
            stream,
            series,
            groups,
            targets,
            zeros(place, records.Arrival),
            zeros((place, D)),
            zeros((place, records.TARGETS), records.Pending),
            zeros((S, 2 * R)),
            zeros((S, 2 * R)),
            zeros((S, 2 * R)),
            zeros((S, 2 * R)),
            zeros(2 * R),
            zeros(2 * R),
            zeros((2 * R, 3 + records.PERIODS), np.int64),
            zeros((S, records.PERIODS, slots), records.Mean),
            zeros((T, records.PERIODS, slots), records.Mean),
            zeros((G, H, D + 3 * records.TARGETS)),
            zeros((G, records.SIDES, D)),
            zeros((G, H, records.SIDES)),
            clip,
            zeros((T, records.SCALES, records.RATIOS)),
            zeros((T, records.BLOCKS), records.Scored),
            self._first_others(seen_signals),
            fade,
            np.full((T, max(32, min(_RECENT, _REMEMBERED // max(T, 1)))), -1.0, records.Recent),
        )

    def _first_others(self, count: int) -> NDArray[np.int64]:
        """The first signals other than each series, until it is known which are related to it."""
        every = range(len(self.signals))
        seen_signals = np.zeros((len(self._plan.series), records.OTHERS), np.int64)
        for i in range(len(seen_signals)):
            seen = [j for j in every if j != i][:count]
            seen_signals[i, : len(seen)] = seen
        return seen_signals

    # ------------------------------------------------------------------ rows

    def __call__(self, block: Block, td: Array | None = None) -> Array:
        """Answer, low, high and usual at each row of a block, (B, Q, 4); NaN where there is no band.

        Args:
            block: The next rows, with what a guard made of them.
            td: The weighted means that TD predicts there, of ``learners``, (B, L); NaN, or None, where there is none.
        """
        if not self.texts:
            return np.empty((len(block), 0, 4))
        learned = np.full((len(block), len(self._learners)), np.nan) if td is None else td
        sound = np.where(np.abs(block.to_learn) < LARGEST, block.to_learn, np.nan)
        gap = block.gap if len(block.gap) else np.zeros(len(block), bool)
        time = None if block.time is None else np.asarray(block.time, np.float64)
        when, expected, at = self._place(gap, time)
        if self._read <= self._half < self._read + len(block):
            self._memory.stream["half"] = self._row + at[self._half - self._read]
        self._read += len(block)
        previous = self._hold.last
        filled, values = self._hold.fill(sound)[0], block.values
        if len(when) > len(block):  # rows that are not there
            latest = np.searchsorted(at, np.arange(len(when)), side="right")
            filled = np.vstack([previous, filled])[latest]
            values, sound, learned = (_spread(array, at, len(when)) for array in (values, sound, learned))
        filled = np.where(np.isnan(filled), 0.0, filled)
        inputs = [sound, filled, filled]
        if expressions := self._plan.series[len(self.signals) :]:
            read = np.where(np.isnan(sound) | ~np.isfinite(values), np.nan, values)
            of_each = zip(*(series.read(self._columns, read, sound, filled) for series in expressions), strict=True)
            inputs = [np.column_stack([array, *columns]) for array, columns in zip(inputs, of_each, strict=True)]
        out = self._run(when, expected, at, [np.ascontiguousarray(array) for array in (*inputs, learned)])
        out = (out if len(out) == len(block) else out[at])[:, self._plan.targets]
        out *= self._plan.scales[:, None]
        return out

    def _place(self, gap: NDArray[np.bool_], time: Array | None) -> tuple[Array, Array, NDArray[np.int64]]:
        """The time of each row and how many rows there should be up to it, with rows that lack; the places of rows."""
        step, timing, B = self.timing.step or 1.0, self.timing, len(gap)
        dated = time is not None and timing.step is not None
        when: list[float] = []
        expected: list[float] = []
        at = np.arange(B)
        total, latest = self._expected, self._time
        for t in range(B):
            moment = float(time[t]) if dated and time is not None else math.nan
            if not math.isfinite(moment):
                moment = latest + step if latest == latest else 0.0
                missing = 1.0 if gap[t] and not dated else 0.0
            elif latest != latest:
                missing = 0.0
            elif moment < latest - 1e-6 * step:
                missing = math.inf
            elif timing.regular:
                missing = float(round((moment - latest) / step) - 1) if gap[t] else 0.0
            else:
                missing = (moment - latest) / step - 1.0 if moment - latest > timing.limit else 0.0
            filled = 0
            if missing > self._filled:
                total += records.BREAK
            elif missing > 0.0 and not timing.regular:
                total += missing
            elif missing > 0.0:
                filled = int(missing)
                when += [latest + step * (k + 1) for k in range(filled)]
                expected += [total + k + 1.0 for k in range(filled)]
                total += filled
                moment = moment if dated else moment + filled * step
            total += 1.0
            at[t] = len(when)
            when.append(moment)
            expected.append(total)
            latest = moment
        self._time, self._expected = latest, total
        return np.array(when), np.array(expected), at

    def _run(self, when: Array, expected: Array, at: NDArray[np.int64], inputs: Sequence[Array]) -> Array:
        """The answers of all targets at rows, (B, T, 4); learns before those rows that come after ``_due``.

        ``inputs``: of each row and series, the reading, that as it is held, and that for features; what TD predicts.
        """
        calendar, clock = self._calendar.features(when), self._calendar.clock(when)
        clock[at, -1] = 1
        out = np.empty((len(when), len(self._memory.targets), 4))
        common, margins = self._buffer
        begin = 0
        while begin < len(when):
            end = min(len(when), begin + self._due - self._row)
            self._make_room(end - begin)
            of_rows = [array[begin:end] for array in (*inputs, calendar, expected, when, clock)]
            rows = kernels.RowBatch._make((*of_rows, common, margins, out[begin:end]))
            _kernel("advance")(self._memory, self._row, rows, self._said)
            self._row, begin = self._row + end - begin, end
            if self._row == self._due:
                with blas_threads(1):  # the last bits depend on how many there are
                    self._learn()
                self._due = self._row + min(_CHUNK, max(1, self._row // _SHARE))
        return out

    def _make_room(self, count: int) -> None:
        """Room for so many more rows, where windows have more rows than there is room for at first."""
        groups = self._memory.groups
        if self._has_room:
            return
        waiting = self._row + count - groups["scored"]
        if waiting.max() + _CHUNK >= len(self._memory.expected) // 2:
            self._grow(_power(2 * int(waiting.max()) + 2 * _CHUNK))
        if np.any(waiting // groups["stride"] + 2 >= groups["room"]):
            self._grow_pending(2 * (waiting // groups["stride"] + _CHUNK))

    def _grow(self, R: int) -> None:
        """Remember R rows."""
        memory = self._memory
        old = len(memory.expected) // 2
        rows = np.arange(max(0, self._row - old), self._row)
        grown = {}
        for name in ("x", "z", "sums", "reads", "expected", "time", "clock"):
            array = getattr(memory, name)
            axis = 1 if name in ("x", "z", "sums", "reads") else 0
            new = np.zeros([2 * R if k == axis else size for k, size in enumerate(array.shape)], array.dtype)
            ring, present = np.moveaxis(new, axis, 0), np.moveaxis(array, axis, 0)
            ring[rows % R] = ring[rows % R + R] = present[rows % old]
            grown[name] = new
        self._memory = memory._replace(**grown)

    def _grow_pending(self, rooms: NDArray[np.int64]) -> None:
        """Room for so many waiting rows of each group."""
        memory = self._memory
        groups = memory.groups.copy()
        groups["room"] = np.maximum(rooms, groups["room"])
        groups["begin"] = np.cumsum(groups["room"] + 1) - groups["room"] - 1
        count = int((groups["room"] + 1).sum())
        grown = {
            name: np.zeros((count, *getattr(memory, name).shape[1:]), getattr(memory, name).dtype)
            for name in ("arrivals", "features", "pending")
        }
        for old, new in zip(memory.groups, groups, strict=True):
            steps = np.arange(old["scored"] // old["stride"], -(-self._row // old["stride"]))
            for name, array in grown.items():
                array[new["begin"] + steps % new["room"]] = getattr(memory, name)[old["begin"] + steps % old["room"]]
        self._memory = memory._replace(groups=groups, **grown)

    # ------------------------------------------------------------------ learning

    def _learn(self) -> None:
        """Learn from all windows that have closed; find periods."""
        memory = self._memory
        self._join_blocks(memory)
        for g, group in enumerate(memory.groups):
            Z, gram = self._rooms[g], self._grams[g]
            used = len(Z)
            while used == len(Z):
                used = _kernel("close")(memory, g, self._row, Z, *self._room)
                if used:
                    gram += Z[:used].T @ Z[:used]
            rows = float(group["rows"])
            growth = _GROWTH if len(self._grams) <= _MANY else _GROWTH_OF_MANY
            if rows >= max(kernels.ENOUGH, growth * float(group["solved_at"])):
                self._solve(g, group)
        if len(self.signals) - 1 > records.OTHERS:
            self._relate()
        if self._row >= self._search_at:
            self._search()

    def _relate(self) -> None:
        """Find the other signals that tell most of each series; of new ones, nothing is known yet."""
        memory = self._memory
        self._relations.add(memory.x, self._row)
        if not self._relations.is_due(self._row):
            return
        for g, group in enumerate(memory.groups):
            i, size = int(group["series"]), len(records.OTHER)
            first = int(group["own"]) - records.OWN + records.COMMON
            count = (int(group["features"]) - first) // size
            present = memory.related[i, :count]
            new = self._relations.choose(i, present)
            for c in np.flatnonzero(new != present):
                of = slice(first + size * int(c), first + size * int(c) + size)
                self._grams[g][of] = self._grams[g][:, of] = memory.hours[g, :, of] = memory.weights[g, :, of] = 0.0
                memory.clip[g, 0, of], memory.clip[g, 1, of] = -np.inf, np.inf
            if g + 1 == len(memory.groups) or memory.groups["series"][g + 1] != i:
                memory.related[i, :count] = new

    def _solve(self, g: int, group: np.void) -> None:
        """Find the weights of a group, its bands and choices."""
        memory, gram = self._memory, self._grams[g]
        d, K = int(group["features"]), int(group["targets"])
        width = len(gram)
        _kernel("decide")(memory, g)
        group["solved_at"] = group["rows"]
        windows = (1.0 + float(group["h"])) / float(group["stride"])
        strength, least = (_EVENT_STRENGTH, 0.0) if group["is_event"] else (_STRENGTH, _STRONGER)
        scale = 1.0 / float(group["rows"])
        gram, hours = gram * scale, memory.hours[g, :, :width] * scale
        sides = [0] if group["is_event"] else [side * records.TARGETS + k for side in range(3) for k in range(K)]
        # the features of the series' own past come first, so that their sums are a part of the same matrix
        own = int(group["own"])
        few = [*range(own), *range(d, d + (1 if group["is_event"] else 2 * K))]
        of_past = gram[np.ix_(few, few)]
        w, effects, mean, deviation = solve(gram, hours, d, strength * windows + least)
        memory.weights[g, sides, :d], memory.effects[g, :, sides] = w.T, effects.T
        w, effects, _, _ = solve(of_past, hours[:, few], own, 0.1 * strength * windows)
        own_sides = [3 * records.TARGETS + side for side in sides[: w.shape[1]]]
        memory.weights[g, own_sides, :own], memory.effects[g, :, own_sides] = w.T, effects.T
        past = slice(1, own + records.LEVEL)
        calm = _LEAST * math.sqrt(float(memory.series["variance"][int(group["series"])]))
        deviation[past] = np.maximum(deviation[past], calm)
        reach = np.where(deviation > 0.0, _FAR * deviation, np.inf)
        memory.clip[g, 0, :d], memory.clip[g, 1, :d] = mean - reach, mean + reach
        memory.clip[g, :, 0] = 1.0

    def _join_blocks(self, memory: records.Memory) -> None:
        """Join the blocks of rows by two, whose length doubles, while there are more rows than they have room for."""
        stream = memory.stream[0]
        while (self._row - stream["half"]) // stream["block"] >= records.BLOCKS - 1:
            sums = memory.scores.view(np.float64).reshape(len(memory.targets), records.BLOCKS, -1)
            joined = sums[:, 1::2] + sums[:, 2::2]
            sums[:, 1:] = 0.0
            sums[:, 1 : 1 + joined.shape[1]] = joined
            stream["block"] *= 2

    def _search(self) -> None:
        """Look for the periods of each series whose rows have no dates."""
        growth = _GROWN if self._row < _SEARCHED else _LATER
        self._search_at = max(self._row + 1, int(self._row * growth))
        if self._calendar.cycles or not self.timing.regular:
            return
        R = len(self._memory.expected) // 2
        if min(_SEARCHED, 2 * self._row) > R:
            self._grow(_power(2 * self._row))
        memory, R = self._memory, len(self._memory.expected) // 2
        rows = np.arange(max(0, self._row - min(_SEARCHED, R)), self._row) % R
        for i, series in enumerate(memory.series):
            previous = series["periods"]
            periods = [period.rows for period in find_periods(memory.x[i, rows], previous.tolist())]
            new = np.array([*periods, 0, 0][: records.PERIODS], np.int64)
            for p in np.flatnonzero(new != previous):
                self._forget_usual(i, int(p), int(new[p]))

    def _forget_usual(self, i: int, p: int, period: int) -> None:
        """Begin the means of a period anew, which has another length."""
        memory = self._memory
        if period > memory.usual.shape[2]:
            longer = ((0, 0), (0, 0), (0, period - memory.usual.shape[2]))
            memory = self._memory = memory._replace(
                usual=np.pad(memory.usual, longer), labels=np.pad(memory.labels, longer)
            )
        memory.series["periods"][i, p] = memory.series["slots"][i, p] = period
        memory.series["pace"][i, p] = 1.0
        memory.usual[i, p] = np.zeros((), records.Mean)
        for group in memory.groups[memory.groups["series"] == i]:
            first = int(group["target"])
            memory.labels[first : first + int(group["targets"]), p] = np.zeros((), records.Mean)

    # ------------------------------------------------------------------ scores and saving

    def summary(self, texts: Collection[str] | None = None) -> list[dict[str, Any]]:
        """The scores of these questions, by default of all, a dict each."""
        memory, periods = self._up_to_date(), self._periods()
        summary = []
        for q, (question, target) in enumerate(zip(self._plan.questions, self._plan.targets.tolist(), strict=True)):
            if texts is not None and question.text not in texts:
                continue
            score = scores_of(question, target, float(self._plan.scales[q]), memory, self._row, periods)
            for name, answer in self._simple_answers(q).items():
                score["baselines"][name]["answer"] = finite(answer)
            latest = {name: values[-1:] for name, values in self.recent(q).items()}
            for name in ("answer", "low", "high", "usual", "now"):
                score[name] = finite(float(latest[name][0])) if len(latest[name]) else None
            summary.append(score | {"usual_by": self._calendar.word})
        return summary

    def judge(self, levels: Mapping[str, float]) -> dict[str, Verdict]:
        """The verdicts on some questions by their texts, whose intervals may miss by these levels."""
        memory, periods = self._up_to_date(), self._periods()
        pairs = zip(self._plan.questions, self._plan.targets.tolist(), strict=True)
        return {
            question.text: judged(question, target, memory, self._row, periods).verdict(levels[question.text])
            for question, target in pairs
            if question.text in levels
        }

    def _periods(self) -> list[str]:
        """What the baselines that repeat a period are called."""
        names = [f"last_{cycle.name}" for cycle in self._calendar.cycles]
        return ["last_period", "last_longer_period"] if not names and self.timing.regular else names

    def _up_to_date(self) -> records.Memory:
        """The memory with the scores of all windows that have closed."""
        # Windows that have closed since the last time that anything was learned count too; what is learned is not kept.
        changed = ("stream", "groups", "targets", "labels", "hours", "ratios", "scores", "recent")
        memory = self._memory._replace(**{name: getattr(self._memory, name).copy() for name in changed})
        self._join_blocks(memory)
        for g, Z in enumerate(self._rooms):
            _kernel("close")(memory, g, self._row, Z, *self._room)
        return memory

    @property
    def periods(self) -> dict[str, list[int]]:
        """The periods in rows that were found in each signal; none where rows have dates."""
        found = self._memory.series["periods"].tolist() if not self._calendar.cycles else ()
        return {name: sorted(filter(None, of_one)) for name, of_one in zip(self.signals, found, strict=False)}

    def readings(self, signal: str, rows: int) -> tuple[Array, Array]:
        """The times of the last rows that are remembered, and the readings of a signal there, NaN where missing."""
        memory, i = self._memory, self.signals.index(signal)
        R = len(memory.expected) // 2
        places = np.arange(max(0, self._row - min(rows, R - 1)), self._row) % R
        places = places[memory.clock[places, -1] > 0]
        is_read = memory.reads[i, places] > memory.reads[i, places - 1]
        return memory.time[places], np.where(is_read, memory.z[i, places], np.nan)

    def recent(self, q: int) -> dict[str, Array]:
        """The last rows of a question, by name: row, time, now, answer, low, high, usual and label.

        Args:
            q: The place of the question.
        """
        memory, target, scale = self._memory, int(self._plan.targets[q]), float(self._plan.scales[q])
        group = memory.groups[np.searchsorted(memory.groups["target"], target, "right") - 1]
        R = len(memory.expected) // 2
        rows = np.sort(memory.recent[target], order="row")
        rows = rows[rows["row"] >= 0.0]
        places = rows["row"].astype(np.int64) % R
        is_there = memory.clock[places, -1] > 0
        rows, places = rows[is_there], places[is_there]
        now = memory.z[int(group["series"]), places]
        shown = {"row": rows["row"], "time": memory.time[places], "now": now}
        return shown | {name: scale * rows[name] for name in ("answer", "low", "high", "usual", "label")}

    def _simple_answers(self, q: int) -> dict[str, float]:
        """What each simple answer is at the last row, by its name as a baseline."""
        memory, target, scale = self._memory, int(self._plan.targets[q]), float(self._plan.scales[q])
        group = memory.groups[np.searchsorted(memory.groups["target"], target, "right") - 1]
        n, stride, room = self._row - 1, int(group["stride"]), int(group["room"])
        place = int(group["begin"]) + (n // stride % room if n % stride == 0 else room)
        answers = memory.pending["answers"][place, target - int(group["target"])] if n >= 0 else ()
        names = zip(baseline_names(self._plan.questions[q], self._periods()), answers, strict=False)
        return {name: scale * float(answer) for name, answer in names if name is not None}

    def state(self) -> dict[str, Any]:
        """What is saved with a model: arrays by name, which go on to change; under ``answers`` numbers and fields."""
        arrays = {f"answers.{name}": array for name, array in self._memory._asdict().items()}
        arrays |= {f"answers.gram.{g}": gram for g, gram in enumerate(self._grams)}
        arrays |= {f"answers.relations.{name}": array for name, array in self._relations.arrays.items()}
        header = {name: getattr(self, f"_{name}") for name in _COUNTS} | {
            "texts": self.texts,
            "time": None if math.isnan(self._time) else self._time,
            "hold": self._hold.state(),
            "records": self._fields(),
        }
        return {"answers": header} | {name: _as_numbers(array) for name, array in arrays.items()}

    def _fields(self) -> dict[str, str]:
        """The fields of each kind of record."""
        return {name: str(array.dtype) for name, array in self._memory._asdict().items() if array.dtype.names}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what was saved; ValueError if it does not fit.

        Args:
            state: As ``state`` returns it.
        """
        header = state["answers"]
        if header["texts"] != self.texts:
            raise ValueError(f"these answers are to other questions: {header['texts']}")
        if header["records"] != self._fields():
            raise ValueError("what was learned does not fit: other records")
        restored = {}
        for name, array in self._memory._asdict().items():
            new = np.array(state[f"answers.{name}"])
            new = new if array.dtype.names is None else new.view(array.dtype)
            if (new.ndim, new.dtype) != (array.ndim, array.dtype):
                raise ValueError(f"what was learned does not fit: {name}")
            fixed = ("series", "h", "own", "features") if name == "groups" else ()
            if any(not np.array_equal(new[field], array[field]) for field in fixed):
                raise ValueError("what was learned does not fit: other features")
            restored[name] = new
        self._memory = records.Memory(**restored)
        for g, gram in enumerate(self._grams):
            gram[:] = state[f"answers.gram.{g}"]
        for name, array in self._relations.arrays.items():
            array[:] = state[f"answers.relations.{name}"]
        for name in _COUNTS:
            setattr(self, f"_{name}", header[name])
        self._time = math.nan if header["time"] is None else header["time"]
        self._hold = Hold.restore(header["hold"])


def _far(group: GroupOf) -> int:
    """The rows after which a row is scored: those of its window; for a weighted mean, those of .99 of the weight."""
    return rows_known(1.0 - 1.0 / group.h) if group.kinds == (records.WEIGHTED,) else group.h


def _stride(h: int) -> int:
    """One row in so many is learned from, of a window of h rows: coprime to 210, to meet every slot of a week.

    >>> [_stride(h) for h in (2, 144, 360, 1440)]
    [1, 1, 11, 43]
    """
    return next(stride for stride in range(max(1, h // _LEARNED), 0, -1) if math.gcd(stride, 210) == 1)


def _power(n: int) -> int:
    """The least power of 2 from n on."""
    return 1 << max(0, n - 1).bit_length()


def _spread(array: Array, at: NDArray[np.int64], rows: int) -> Array:
    """Rows at their places, NaN where one is not there."""
    out = np.full((rows, array.shape[1]), np.nan)
    out[at] = array
    return out


def _as_numbers(array: NDArray[Any]) -> NDArray[Any]:
    """Records as whole numbers, for each field takes eight bytes."""
    return array if array.dtype.names is None else array.view(np.int64)


@cache
def _kernel(name: str) -> Any:
    return direct(getattr(kernels, name))
