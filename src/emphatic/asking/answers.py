"""Answers to questions of one line, online and causal: a label is learned from when its window has closed.

The label of row t depends on W, the rows with times in (t, t + h]:

    P(COND within h)        1 if the condition holds in any row of W
    P(COND at +h), EXPR at +h   the reading nearest t + h, at most half a step off
    time until COND up to h the time to the first row of W in which it holds; h if there is none
    sum of EXPR over h      the mean of the rows that were read × the rows expected; ``integral`` × the step
    mean of, share of time  the mean of the rows that were read
    max of, min of          the extreme of W

Row t itself never counts. A label is known only if 90% of the rows of W were read, whether or not an event was seen in
them; rows that a gap left out, and readings that are missing, were not read. Without times, rows are counted.

A probability is the combination, by logistic regression in log odds, of three logistic regressions, a ridge regression
and TD(λ) with survival as γ, plus the mean error that such probabilities had in the last windows. A number is the mean
of ridge regressions on differences from simple answers, of these answers and of TD, weighted by their mean squared
errors so far, the more sharply the more windows are known. It is mixed with the mean of the simple answers alone, by
the share that would have had the least squared error. After many windows it may move towards the median or the value
now, so that neither the mean absolute nor the mean squared error is worse than that of a simple answer. All of them see
about 150 features: the reading or margin and its past, what came at this time of day and week, other signals, the
calendar, what the labels were.
An interval reaches from quantile to quantile of the past errors, each divided by its expected size.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emphatic.answers.language import CONDITIONS, ENOUGH, Question, parse_all
from emphatic.answers.timing import Timing
from emphatic.asking import layout
from emphatic.scores.measures import LEVEL, ErrorBlocks, Verdict, judge_errors, judge_signal
from emphatic.tables import Block, Hold

if TYPE_CHECKING:
    from emphatic.asking.headline import FindPeriods, Headline

__all__ = ["ENDS", "Asked"]

Array = NDArray[np.float64]

_FLOAT64 = np.dtype(np.float64)
#: The columns of a question besides its answer, and all four.
ENDS = ("low", "high", "usual")
KINDS = ("answer", *ENDS)
#: Rows that are answered at a time, and signals besides the question's own that are features.
_CHUNK, _OTHERS = 1024, 7
#: Windows of more rows than this are learned from at every so many rows.
_LONG = 4096
_DAY, _WEEK, _YEAR = 86400.0, 604800.0, 365.2425 * 86400.0
#: The most rows of a day, for the scale of errors.
_DAY_ROWS = 100_000
#: The share of a step by which rows of a regular log may come late and still count.
_SLACK = 0.1
#: Rows that a plot shows.
RECENT = 2000
#: The first Monday after the epoch, less a week: weeks begin on Mondays.
_MONDAY = 3 * _DAY


class Asked:
    """Questions of one line about one stream, and their state from row to row.

    Args:
        questions: The questions, as text.
        signals: The signals of the stream.
        timing: What is known of its times.
        coverage: The share of labels that are to fall inside their intervals.
        rows: The number of rows, where it is known: the second half is scored. Otherwise all rows are.
        headline: The values and means of all signals at all horizons, which are answered too; None without.

    >>> x = np.sin(np.arange(600) / 9)
    >>> asked = Asked(["P(x > 0.5 within 5 rows)", "x at +3"], ["x"], Timing(None), rows=600)
    >>> answers = asked(x[:, None], x[:, None], np.zeros(600, bool))
    >>> answers["answer"].shape, bool((answers["answer"][:, 0] >= 0).all())
    ((600, 2), True)
    >>> [round(score["variance_explained"], 1) for score in asked.summary()[1:]]
    [1.0]
    """

    def __init__(
        self,
        questions: Sequence[str],
        signals: Sequence[str],
        timing: Timing,
        coverage: float = 0.8,
        rows: int | None = None,
        headline: Headline | None = None,
    ) -> None:
        self.signals, self.timing, self.headline = tuple(signals), timing, headline
        self._coverage, self._half = coverage, 0 if rows is None else rows // 2
        self._answerers = [
            _Answerer(question, self.signals, timing, coverage, self._half) for question in parse_all(questions)
        ]
        self._hold = Hold(len(self.signals))
        self._time = math.nan
        self._hide()

    @property
    def questions(self) -> list[Question]:
        """The questions that were asked; those of the headline are its own."""
        return [answerer.question for answerer in self._answerers]

    @property
    def texts(self) -> list[str]:
        """The texts of all that is answered: the headline, then the questions."""
        headline = [] if self.headline is None else self.headline.texts
        return [*headline, *(question.text for question in self.questions)]

    @property
    def names(self) -> list[str]:
        """The columns of the predictions."""
        return [name for text in self.texts for name in (text, *(f"{text}.{end}" for end in ENDS))]

    def _hide(self) -> None:
        """Leave out of the headline what is asked."""
        if self.headline is not None:
            self.headline.hidden |= {question.text for question in self.questions}

    def keep_apart(self, names: Collection[str]) -> None:
        """ValueError if a column of a question has one of these names; of the headline, it is left out.

        Args:
            names: The other columns of the predictions.
        """
        if self.headline is not None:
            columns = {text: {text, *(f"{text}.{end}" for end in ENDS)} for text in self.headline.texts}
            self.headline.hidden |= {text for text, named in columns.items() if named.intersection(names)}
        if twice := set(self.names).intersection(names):
            raise ValueError(f"{min(twice)!r} is asked, and a question or column has that name already.")

    def __len__(self) -> int:
        return len(self._answerers)

    def __bool__(self) -> bool:
        return bool(self._answerers)

    def __call__(
        self,
        values: Array,
        guarded: Array,
        gap: NDArray[np.bool_],
        time: Array | None = None,
        forecasts: Array | None = None,
    ) -> dict[str, Array]:
        """The answers at the next B rows, after learning from the windows that they close.

        Args:
            values: The readings (B, S) as they were read, NaN where missing: labels of conditions are about these.
            guarded: The readings (B, S) as a ``ReadingGuard`` took them: features and all other labels are about these.
                Those that it counts as missing are missing in all labels.
            gap: The rows (B,) that do not follow the row before.
            time: The times (B,) of the rows, NaN where missing; None without times.
            forecasts: The exponential means (B, Q'), those of every signal at every horizon first, which are features
                of the headline.

        Returns:
            ``answer``, ``low``, ``high`` and ``usual``, (B, Q) each, of ``texts``.
        """
        out = self._answer(values, guarded, gap, time, forecasts)
        return {kind: out[:, :, i] for i, kind in enumerate(KINDS)}

    def _answer(
        self, values: Array, guarded: Array, gap: NDArray[np.bool_], time: Array | None, forecasts: Array | None
    ) -> Array:
        """The answers at the next B rows, (B, Q, 4) by ``KINDS``; arguments as of a call."""
        B, headline = len(values), self.headline
        if not B or (not self._answerers and headline is None):
            return np.empty((B, len(self.texts), len(KINDS)))
        if B == 1 and _all_near(values) and (guarded is values or _all_near(guarded)):
            self._hold.follow(guarded[0])  # nothing is missing: the row is as questions need it
            return self._answer_rows(values, guarded, guarded, gap, self._times(gap, time), forecasts)
        if B <= _CHUNK:
            return self._answer_chunk(values, guarded, gap, time, forecasts)
        out = np.empty((B, len(self.texts), len(KINDS)))
        for begin in range(0, B, _CHUNK):
            rows = slice(begin, begin + _CHUNK)
            when, means = (None if array is None else array[rows] for array in (time, forecasts))
            out[rows] = self._answer_chunk(values[rows], guarded[rows], gap[rows], when, means)
        return out

    def _answer_chunk(
        self, values: Array, guarded: Array, gap: NDArray[np.bool_], time: Array | None, forecasts: Array | None
    ) -> Array:
        """The same of rows of which some may be missing."""
        held, _ = self._hold.fill(guarded)
        held = np.nan_to_num(held, nan=0.0, posinf=0.0, neginf=0.0)
        # A far reading counts as the guard took it: one of them would spoil all errors and means that follow. Of
        # conditions what was read decides, unless it counts as missing: a code such as −999 is no reading.
        sound = np.where(np.isfinite(guarded), guarded, np.nan)
        read = np.where(np.isfinite(values) & np.isfinite(guarded), values, np.nan)
        return self._answer_rows(read, sound, held, gap, self._times(gap, time), forecasts)

    def _answer_rows(
        self, read: Array, sound: Array, held: Array, gap: NDArray[np.bool_], when: Array, forecasts: Array | None
    ) -> Array:
        """The same of rows as they were ``read``, of their ``sound`` readings, and with the last of these ``held``."""
        if self.headline is None:
            out = np.empty((len(read), len(self._answerers), len(KINDS)))
            first = 0
        else:
            answers = self.headline(sound, held, when, forecasts)
            if not self._answerers and not self.headline.hidden:
                return answers
            shown = self.headline.shown
            first = len(shown)
            out = np.empty((len(read), first + len(self._answerers), len(KINDS)))
            out[:, :first] = answers[:, shown]
        for q, answerer in enumerate(self._answerers, first):
            about = read if answerer.question.kind in CONDITIONS else sound
            out[:, q] = answerer(about, held, gap, when)
        return out

    def stacked(self, block: Block, forecasts: Array | None = None) -> Array:
        """The answers at the rows of a block, (B, Q, 4) by ``KINDS``.

        Args:
            block: The next rows, with their guarded readings.
            forecasts: The exponential means at these rows.
        """
        return self._answer(block.values, block.to_learn, block.gap, block.time, forecasts)

    def _times(self, gap: NDArray[np.bool_], time: Array | None) -> Array:
        """The time of each row; rows are counted where there is none, and a gap leaves out one row at least."""
        known = time is not None and time.dtype is _FLOAT64 and self.timing.step is not None
        if len(gap) == 1 and known and time is not None and math.isfinite(time.item(0)):
            self._time = time.item(0)
            return time
        out = np.empty(len(gap))
        step = self.timing.step or 1.0
        for i in range(len(gap)):
            known = time is not None and self.timing.step is not None and math.isfinite(time[i])
            if known and time is not None:
                self._time = float(time[i])
            elif math.isnan(self._time):
                self._time = 0.0
            else:
                self._time += step * (2.0 if gap[i] and self.timing.step is None else 1.0)
            out[i] = self._time
        return out

    def columns(self, answers: Mapping[str, Array]) -> dict[str, Array]:
        """The columns of ``predictions.parquet``, by name."""
        columns = {}
        for q, text in enumerate(self.texts):
            columns[text] = np.ascontiguousarray(answers["answer"][:, q])
            columns |= {f"{text}.{end}": np.ascontiguousarray(answers[end][:, q]) for end in ENDS}
        return columns

    def summary(self) -> list[dict[str, Any]]:
        """The scores of the questions that were asked, a dict each."""
        return [answerer.summary() for answerer in self._answerers]

    def scores(self) -> list[dict[str, Any]]:
        """The scores of the headline and of the questions, as they follow in ``summary.json``."""
        return [*([] if self.headline is None else self.headline.summary()), *self.summary()]

    def values_of(self, signal: str) -> list[dict[str, Any]]:
        """The scores of the questions about the value of a signal at +h.

        Args:
            signal: The signal.
        """
        return [answerer.summary() for answerer in self._about_values().get(signal, ())]

    def judge_signals(self, signals: Collection[str] | None = None) -> dict[str, dict[str, Any]]:
        """The verdict on each signal whose values at +h can be judged, as ``judge_signal`` describes it.

        A horizon with fewer than 100 known windows is still being learned and does not count.

        Args:
            signals: The signals; default: all.
        """
        verdicts = {}
        for signal, answerers in self._about_values().items():
            ready = [answerer for answerer in answerers if answerer.state[layout.LABELS] >= ENOUGH]
            if ready and (signals is None or signal in signals):
                judged = {answerer.question.length: answerer.verdict(LEVEL / len(ready)) for answerer in ready}
                verdict = judge_signal(signal, judged, "value")
                best = next(answerer for answerer in ready if answerer.question.length == verdict["horizon"])
                verdicts[signal] = verdict | best.judged_errors(verdict["best_baseline"])
        return verdicts

    def _about_values(self) -> dict[str, list[_Answerer]]:
        """Whoever answers about the value of a signal at +h, by signal."""
        answerers: dict[str, list[_Answerer]] = {}
        for answerer in (*(() if self.headline is None else self.headline.about_values()), *self._answerers):
            if (signal := answerer.question.value_of) is not None:
                answerers.setdefault(signal, []).append(answerer)
        return answerers

    def recent(self, q: int) -> dict[str, Array]:
        """The last rows of a question, by name: row, time, now, answer, low, high, usual and label."""
        return self._answerers[q].recent()

    # ------------------------------------------------------------------ questions come and go

    def add(self, text: str) -> None:
        """Ask one more question, which is learned from now on. ValueError if it is asked already."""
        question = parse_all([*(known.text for known in self.questions), text])[-1]
        answerer = _Answerer(question, self.signals, self.timing, self._coverage, self._half)
        self._answerers.append(answerer)
        self._hide()

    def remove(self, text: str) -> None:
        """No longer ask a question. ValueError if it was not asked."""
        left = [answerer for answerer in self._answerers if answerer.question.text != text.strip()]
        if len(left) == len(self._answerers):
            raise ValueError(f"{text!r} is not among the questions: {'; '.join(q.text for q in self.questions)}.")
        self._answerers = left
        if self.headline is not None:
            self.headline.hidden -= {text.strip()}

    # ------------------------------------------------------------------ saving

    def state(self) -> dict[str, Any]:
        """What is saved with a model: arrays by name, and what JSON can hold under ``asked``."""
        header: dict[str, Any] = {
            "texts": [question.text for question in self.questions],
            "coverage": self._coverage,
            "timing": [self.timing.step, self.timing.regular, _or_none(self.timing.limit), self.timing.dated],
            "hold": self._hold.state(),
            "time": _or_none(self._time),
        }
        arrays = {
            f"asked.{q}.{name}": array
            for q, answerer in enumerate(self._answerers)
            for name, array in answerer.arrays().items()
        }
        if self.headline is not None:
            header["headline"] = {"predicted": self.headline.predicted, "horizons": self.headline.horizons}
            arrays |= {f"headline.{name}": array for name, array in self.headline.arrays().items()}
        return {"asked": header, **arrays}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what was saved; a question that was not asked then begins afresh.

        Args:
            state: As ``state`` returns it, among other entries. ValueError if it does not fit.
        """
        if state.get("asked") is None:
            return
        try:
            self._restore(state["asked"], state)
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise ValueError(f"what was learned for questions of one line does not fit: {error!r}") from None

    def _restore(self, saved: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        self._hold = Hold.restore(saved["hold"])
        self._time = math.nan if saved["time"] is None else float(saved["time"])
        if self.headline is not None and saved.get("headline") is not None:
            arrays = {name.removeprefix("headline."): a for name, a in state.items() if name.startswith("headline.")}
            self.headline.restore(arrays)
        places = {text: q for q, text in enumerate(saved["texts"])}
        for answerer in self._answerers:
            q = places.get(answerer.question.text)
            if q is not None:
                prefix = f"asked.{q}."
                answerer.restore(
                    {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}
                )

    @classmethod
    def load(
        cls, state: Mapping[str, Any], signals: Sequence[str], find_periods: FindPeriods | None = None
    ) -> Asked | None:
        """The questions and the headline that were saved with a model, as they stood; None if there are none.

        Args:
            state: As ``state`` returns it, among other entries. ValueError if it does not fit.
            signals: The signals of the stream.
            find_periods: As for ``Headline``.
        """
        saved, timing = state.get("asked"), cls.saved_timing(state)
        if saved is None or timing is None:
            return None
        of_headline = saved.get("headline")
        pairs = () if of_headline is None else (of_headline["predicted"], of_headline["horizons"])
        asked = cls._new(saved["texts"], signals, timing, saved["coverage"], find_periods, *pairs)
        asked.restore(state)
        return asked

    def restarted(self) -> Asked:
        """The same questions and headline before the first row."""
        pairs = () if self.headline is None else (self.headline.predicted, self.headline.horizons)
        texts = [question.text for question in self.questions]
        find_periods = None if self.headline is None else self.headline.find_periods
        return self._new(texts, self.signals, self.timing, self._coverage, find_periods, *pairs)

    @classmethod
    def _new(
        cls,
        texts: Sequence[str],
        signals: Sequence[str],
        timing: Timing,
        coverage: float,
        find_periods: FindPeriods | None,
        predicted: Sequence[str] = (),
        horizons: Sequence[float | str] = (),
    ) -> Asked:
        """Questions, and a headline of these signals and horizons where there are any."""
        from emphatic.asking.headline import Headline

        headline = None
        if predicted:
            headline = Headline(predicted, horizons, signals, timing, coverage, find_periods=find_periods)
        return cls(texts, signals, timing, coverage, headline=headline)

    @staticmethod
    def has_headline(state: Mapping[str, Any]) -> bool:
        """Whether a model was saved with a headline: one that was not goes on without."""
        saved = state.get("asked")
        return isinstance(saved, Mapping) and saved.get("headline") is not None

    @staticmethod
    def saved_timing(state: Mapping[str, Any]) -> Timing | None:
        """The timing that was saved with a model; None if no questions were."""
        if "asked" not in state:
            return None
        try:
            step, regular, limit, dated = state["asked"]["timing"]
        except (KeyError, TypeError) as error:
            raise ValueError(f"the times of questions of one line do not fit: {error!r}") from None
        return Timing(step, bool(regular), math.inf if limit is None else float(limit), bool(dated))


#: Numbers that Python adds up in less time than a call of NumPy takes.
_FEW = 8


def _all_near(row: Array) -> bool:
    """Whether all readings of a row (1, S) are there, and none is beyond 1e100: quick, and without a warning."""
    if row.dtype is not _FLOAT64 or not row.flags.c_contiguous:
        return False
    return sum(map(abs, row[0].tolist())) <= 1e100 if row.size <= _FEW else bool(np.vdot(row, row) <= 1e200)


def _or_none(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


@cache
def _kernels() -> Any:
    """The compiled loop, when it is first needed."""
    from emphatic.asking import kernels

    return kernels


class _Cycle(NamedTuple):
    """A cycle of the calendar: its length, slots of memory, bins of features, and when it begins."""

    period: float = 1.0
    slots: int = 1
    bins: int = 1
    offset: float = 0.0


class _Cycles(NamedTuple):
    """The short and the long cycle of a log, and the baselines that repeat them."""

    short: _Cycle
    long: _Cycle
    shift: float
    names: tuple[str | None, str | None]

    @property
    def word(self) -> str:
        """What answers are usual at: a bin of the short cycle."""
        return {_DAY: "hour", _WEEK: "day of the week"}.get(self.short.period, "time of year")

    @classmethod
    def of(cls, timing: Timing) -> _Cycles | None:
        """Day and week, week and year, or the year alone, by the step of the rows; None without dates."""
        step = timing.step
        if not timing.dated or step is None or step > 0.5 * _YEAR:
            return None
        if step <= 0.5 * _DAY:
            slots = min(1440, max(2, round(_DAY / step)))
            day = _Cycle(_DAY, slots, min(24, slots))
            return cls(
                day, _Cycle(_WEEK, 7 * slots if slots <= 48 else 168, 7, _MONDAY), 1e-6, ("last_day", "last_week")
            )
        if step <= 0.5 * _WEEK:
            week = _Cycle(_WEEK, max(2, round(_WEEK / step)), 7, _MONDAY)
            return cls(week, _Cycle(_YEAR, 53, 12), 1e-6, ("last_week", "last_year"))
        year = _Cycle(_YEAR, max(2, round(_YEAR / step)), max(2, min(12, round(_YEAR / step))))
        return cls(year, _Cycle(_YEAR, year.slots, 1), 0.5, ("last_year", None))


class _Answerer:
    """One question, its learners and their state."""

    def __init__(self, question: Question, signals: Sequence[str], timing: Timing, coverage: float, half: int) -> None:
        question.check(signals)
        k = _kernels()
        self.question, self._signals = question, tuple(signals)
        step = timing.step or 1.0
        self._span = question.span(timing.step)
        # Times of a regular log may be off by a tenth of a step, as its clock allows.
        slack = _SLACK if timing.step is not None and timing.regular else 1e-6
        rows = max(1, math.floor(self._span / step + slack))
        self._cycles = _Cycles.of(timing)
        names = question.expression.names
        seen = [*(n for n in signals if n in names), *(n for n in signals if n not in names)][:_OTHERS]
        self._others = [signals.index(name) for name in seen]
        kind = {"event": k.ANY, "event_at": k.AT, "at": k.AT, "until": k.FIRST, "max": k.MAX, "min": k.MIN}
        condition, event = question.kind in CONDITIONS, question.is_event
        #: What an answer is multiplied by.
        self.scale = {
            "sum": float(rows) if timing.regular else self._span / step,
            "integral": (rows * step if timing.regular else self._span) / question.unit,
            "until": self._span,
        }.get(question.kind, 1.0)
        c = np.zeros(k.CONSTANTS)
        c[k.KIND], c[k.EVENT], c[k.CONDITION] = kind.get(question.kind, k.MEAN), event, condition
        c[k.SPAN], c[k.STEP], c[k.ROWS], c[k.REGULAR] = self._span, step, rows, timing.regular
        c[k.LOWEST], c[k.HIGHEST] = 0.0, 1.0
        c[k.STRIDE], c[k.HALF], c[k.COVERAGE] = max(1, rows // _LONG), half, coverage
        c[k.OTHERS], c[k.LIMIT], c[k.SLACK] = len(self._others), timing.limit, slack * step
        cycles = self._cycles
        if cycles is not None:
            short, long = cycles.short, cycles.long
            c[k.PERIOD_A], c[k.SLOTS_A], c[k.BINS_A], c[k.OFFSET_A] = short
            c[k.PERIOD_B], c[k.SLOTS_B], c[k.BINS_B], c[k.OFFSET_B] = long
            c[k.SHIFT], c[k.CYCLES], c[k.WEEKLY] = cycles.shift, 1.0, long.period == _WEEK
            c[k.DECAY] = 1.0 / max(9.5, 0.4 * short.slots)
        small = 12 + condition + (k.SEASONAL + 6 if cycles else 0) + (4 if event else 0)
        full = small + 2 + 3 * len(self._others) + (14 if condition else 3)
        if cycles:
            full += (36 if condition else 0) + cycles.short.bins + cycles.long.bins + 11 + (4 if condition else 0)
        c[k.SMALL], c[k.FULL] = small, full
        self._constants = c
        slots = max(cycles.short.slots, cycles.long.slots) if cycles else 1
        day = min(_DAY_ROWS, max(1, round(_DAY / step))) if timing.dated else 1
        evidence = max(1.0, rows / k.ALIKE) if event else 1.0
        c[k.EVIDENCE] = evidence
        c[k.ERROR_LABELS] = max(layout.ERROR_ROWS, layout.ERROR_WINDOWS * rows / c[k.STRIDE])
        if cycles is not None:
            slots_of_bin = max(1, cycles.short.slots // cycles.short.bins)
            together = min(rows, slots_of_bin) * max(1, rows // cycles.short.slots)
            c[k.HOUR_PACE] = min(k.HOUR_RATE, 0.5 / together)
        ridges: Sequence[float] = (k.NUMBER_RIDGES[0], *(r * rows for r in k.NUMBER_RIDGES[1:]))
        if event:
            ridges = tuple(evidence * ridge for ridge in k.EVENT_RIDGES)
        width, others = k.PLAIN + k.SEASONAL + 3 * _OTHERS, len(self._others)
        self.state = np.zeros(k.STATE)
        self.state[[k.LAST_TIME, k.LEAST, k.MOST, k.SINCE]] = -np.inf, np.inf, -np.inf, 50.0
        top = np.zeros((1, 6))
        top[0, 1:5] = 0.25
        # (in the order of the kernel's parameters)
        self._arrays = {
            "when": np.zeros(64),
            "reading": np.zeros(64),
            "pending": np.zeros((64, k.FEATURES + full)),
            "recent": np.zeros(k.REMEMBERED + 1),
            "traces": np.zeros((2, 4)),
            "other_memory": np.zeros((5, max(1, others))),
            "memory": np.full((slots, 4), np.nan),
            "moments": np.zeros((2, width)),
            "climate": np.zeros((4, 320, 2)),
            "P": np.stack([np.eye(full) / ridge for ridge in ridges]),
            "W": np.zeros((len(ridges), 2, full)),
            "top_P": np.eye(6) / (k.TOP_RIDGE * evidence),
            "top_w": top,
            "size_P": np.eye(small + 4) / k.SIZE_RIDGE,
            "size_w": np.zeros((1, small + 4)),
            "squares": np.zeros(k.MEMBERS),
            "ratios": np.zeros(k.REMEMBERED_RATIOS),
            "td_phi": np.zeros(full),
            "td_w": np.zeros((3, full)),
            "td_z": np.zeros((3, full)),
            "shifted": np.stack([np.zeros(day), np.full(day, -np.inf)]),
            "sums": np.zeros((4, k.SUMS)),
            "levels": np.zeros((24, 2)),
            "choices": np.zeros(layout.CHOICE_STATE),
            "calibration": np.zeros((2, k.KNOTS)),
        }
        self._recent: list[Array] = []
        #: Squared errors of the second half in blocks, for the verdict; labels besides, for the mean of the first half.
        self._half = half
        self._blocks = ErrorBlocks(["answer", "label", "label_square", *self._baseline_names()], 1)

    def __call__(self, values: Array, held: Array, gap: NDArray[np.bool_], when: Array) -> Array:
        """Answer, low, high and usual (B, 4) at the next rows."""
        k, expression = _kernels(), self.question.expression
        names = expression.names
        columns = {name: c for c, name in enumerate(self._signals) if name in names}
        read = np.asarray(expression({name: values[:, c] for name, c in columns.items()}), np.float64)
        readings = {name: held[:, c] for name, c in columns.items()}
        if self.question.kind in CONDITIONS:
            value = np.where(np.isnan(read), np.nan, (read != 0.0).astype(np.float64))
            feature = expression.margin(readings)  # type: ignore[attr-defined]
            now = np.asarray(expression(readings), np.float64)
            holds = np.where(np.isnan(value), (now != 0.0) & ~np.isnan(now), value).astype(np.float64)
        else:
            value, feature, holds = read, expression(readings), np.zeros(len(values))
        value = np.where(np.abs(value) < 1e100, value, np.nan)
        feature = np.where(np.abs(feature) < 1e100, feature, 0.0)
        self._make_room(len(values))
        out = np.empty((len(values), 4))
        head = int(self.state[k.FIRST_PENDING])
        others = np.ascontiguousarray(np.clip(held[:, self._others], -1e100, 1e100))
        k.advance(
            self._constants,
            self.state,
            np.ascontiguousarray(value),
            np.ascontiguousarray(feature),
            holds,
            np.ascontiguousarray(gap),
            when,
            others,
            *self._arrays.values(),
            out,
        )
        out *= self.scale
        closed = self._arrays["pending"][head : int(self.state[k.FIRST_PENDING])]
        self._add_errors(closed[(closed[:, k.AT_ROW] >= self._half) & ~np.isnan(closed[:, k.OUTCOME])])
        now = value if self.question.kind in CONDITIONS else feature
        self._remember(when, now, out, closed[:, k.AT_ROW], closed[:, k.OUTCOME] * self.scale)
        return out

    def _add_errors(self, closed: Array) -> None:
        """Sum the errors of windows that have closed."""
        k, labels = _kernels(), closed[:, _kernels().OUTCOME]
        squares = {name: (closed[:, k.BASELINES + b] - labels) ** 2 for name, b in self._baseline_names().items()}
        squares |= {"answer": (closed[:, k.ANSWER] - labels) ** 2, "label": labels, "label_square": labels**2}
        self._blocks.add_rows(closed[:, k.AT_ROW].astype(np.int64) - self._half, squares)

    def _make_room(self, rows: int) -> None:
        """Room for so many more rows: what waits is moved to the front of its buffers."""
        k = _kernels()
        for names, begin, end in (
            (("when", "reading"), k.FIRST_READING, k.END_READING),
            (("pending",), k.FIRST_PENDING, k.END_PENDING),
        ):
            first, last = int(self.state[begin]), int(self.state[end])
            for name in names:
                old = self._arrays[name]
                if last + rows + 1 > len(old):
                    count = last - first
                    size = max(len(old), 2 * count + rows + 1)
                    new = old if size == len(old) else np.zeros((size, *old.shape[1:]))
                    new[:count] = old[first:last].copy() if new is old else old[first:last]
                    self._arrays[name] = new
            if last + rows + 1 > len(old):
                self.state[begin], self.state[end] = 0, last - first

    def _remember(self, when: Array, now: Array, out: Array, closed: Array, labels: Array) -> None:
        """The last rows, for plots: time, reading, answers, and labels as they become known."""
        first = self.state[_kernels().ROW] - len(when)
        rows = np.column_stack([first + np.arange(len(when)), when, now, out, np.full(len(when), np.nan)])
        self._recent = [*self._recent, rows]
        while len(self._recent) > 1 and sum(map(len, self._recent[1:])) >= RECENT:
            self._recent.pop(0)
        for block in self._recent:
            inside = (closed >= block[0, 0]) & (closed <= block[-1, 0])
            block[(closed[inside] - block[0, 0]).astype(np.int64), 7] = labels[inside]

    def recent(self) -> dict[str, Array]:
        """The last rows."""
        rows = np.concatenate(self._recent)[-RECENT:] if self._recent else np.empty((0, 8))
        names = ("row", "time", "now", "answer", "low", "high", "usual", "label")
        return dict(zip(names, rows.T, strict=True))

    # ------------------------------------------------------------------ scores

    def summary(self) -> dict[str, Any]:
        """The scores of the second half, as ``summary.json`` has them."""
        k, question, state = layout, self.question, self.state
        first, second, naive = self._arrays["sums"][0], self._arrays["sums"][1], self._arrays["sums"][2]
        n, scale = second[k.COUNT], self.scale
        last = self.recent()
        answer = float(last["answer"][-1]) if len(last["answer"]) else math.nan
        score: dict[str, Any] = {
            "text": question.text,
            "kind": question.kind,
            "horizon": question.length,
            "known": int(state[k.LABELS]),
            "scored": int(n),
            "dropped_windows": int(state[k.DROPPED]),
            "answer": _finite(answer),
            "low": _finite(last["low"][-1]) if len(last["low"]) else None,
            "high": _finite(last["high"][-1]) if len(last["high"]) else None,
            "usual": _finite(last["usual"][-1]) if len(last["usual"]) else None,
            "usual_by": self._cycles.word if self._cycles else None,
            "now": _finite(last["now"][-1]) if len(last["now"]) else None,
        }
        mean = first[k.LABEL] / first[k.COUNT] if first[k.COUNT] else math.nan
        constant = second[k.LABEL_SQUARE] - 2.0 * mean * second[k.LABEL] + n * mean * mean
        names = self._baseline_names()
        squares = {name: float(second[k.BASELINE_SQUARE + b]) for name, b in names.items()}
        squares["rate" if question.is_event else "mean"] = float(constant)
        squared = float(second[k.SQUARE])
        skill = {name: _ratio(squared, square) for name, square in squares.items()}
        score |= self.verdict()._asdict()
        spread = second[k.LABEL_SQUARE] - second[k.LABEL] ** 2 / n if n else math.nan
        if question.is_event:
            score |= {
                "brier": _mean(squared, n),
                "skill": skill,
                "baselines": {
                    name: {
                        "brier": _mean(square, n),
                        "rmse": _finite(math.sqrt(max(square, 0.0) / n)) if n else None,
                        "variance_explained": _ratio(square, spread),
                    }
                    for name, square in squares.items()
                },
                "rate": _mean(second[k.LABEL], n),
                "td": {"brier": _mean(second[k.TD_MEMBER], n)},
            }
            return score | self._reliability(second)
        errors = {name: float(second[k.BASELINE_ABS + b]) * scale / max(n, 1.0) for name, b in names.items()}
        unit = naive[1] / naive[0] if naive[0] else math.nan
        mae = _mean(second[k.ABS] * scale, n)
        score |= {
            "mae": mae,
            "mase": _mean(second[k.ABS], n * unit),
            "rmse": _finite(scale * math.sqrt(squared / n)) if n else None,
            "variance_explained": _ratio(squared, spread),
            "skill": skill,
            "baselines": {
                name: {
                    "mae": _finite(errors.get(name, math.nan)) if n else None,
                    "mase": _mean(errors.get(name, math.nan), unit * scale),
                    "rmse": _finite(scale * math.sqrt(max(square, 0.0) / n)) if n else None,
                    "variance_explained": _ratio(square, spread),
                }
                for name, square in squares.items()
            },
            "td": {"variance_explained": _ratio(float(second[k.TD_MEMBER]), spread)}
            if int(self._constants[k.KIND]) in (k.FIRST, k.MEAN)
            else None,
        }
        return score | self._coverage(second)

    def verdict(self, level: float = LEVEL) -> Verdict:
        """Whether the answers are better than the best baseline, by the second half of the rows so far.

        Args:
            level: The share of intervals that may miss the true skill.
        """
        counts, errors, baselines = self._judged()
        return judge_errors(counts, errors, baselines, self._constants[layout.ROWS], self._blocks.length, level)

    def judged_errors(self, baseline: str | None) -> dict[str, float | None]:
        """The errors of the answers and of a baseline over the rows of the verdict.

        Args:
            baseline: The baseline; None if there is none.
        """
        counts, errors, baselines = self._judged()
        of_baseline = float(baselines[baseline].sum()) if baseline in baselines else math.nan
        squares = {"rmse": float(errors.sum()), "baseline_rmse": of_baseline}
        n = float(counts.sum())
        return {name: _finite(self.scale * math.sqrt(sum_ / n)) if n else None for name, sum_ in squares.items()}

    def _judged(self) -> tuple[Array, Array, dict[str, Array]]:
        """The rows, squared errors, and those of each baseline by name, in the blocks of the second half so far."""
        first, blocks = self._arrays["sums"][0], self._blocks
        at = blocks.count_before(int(self.state[layout.ROW]) // 2 - self._half)
        sums = {name: blocks.sums(name)[:, 0] for name in blocks.columns}
        counts, labels = blocks.sums()[:, 0], sums["label"]
        # What a stream has scored before the middle is to it what the first half is to a log.
        early, total = first[layout.COUNT] + counts[:at].sum(), first[layout.LABEL] + labels[:at].sum()
        sums = {name: column[at:] for name, column in sums.items()}
        counts, errors, labels, squares = counts[at:], *(sums.pop(name) for name in blocks.columns[:3])
        if early > 0.0 and math.isfinite(total):
            mean = total / early
            constant = np.maximum(squares - 2.0 * mean * labels + counts * mean**2, 0.0)
            sums["rate" if self.question.is_event else "mean"] = constant
        return counts, errors, sums

    def _baseline_names(self) -> dict[str, int]:
        k = layout
        if self.question.is_event:
            return {"climatology": k.CLIMATOLOGY, "so_now": k.PERSISTENCE}
        names = {"persistence": k.PERSISTENCE, "past_mean": k.PAST_MEAN, "climatology": k.CLIMATOLOGY}
        for name, place in zip(self._cycles.names if self._cycles else (), (k.LAST_A, k.LAST_B), strict=False):
            if name is not None:
                names[name] = place
        return names

    def _reliability(self, sums: Array) -> dict[str, Any]:
        """The expected calibration error, and the bins it is computed from."""
        k = layout
        bins = sums[k.BINS : k.BINS + 21].reshape(7, 3)
        n = sums[k.COUNT]
        curve = [
            {"count": int(count), "predicted": _mean(p, count), "observed": _mean(y, count)} for count, p, y in bins
        ]
        return {"ece": _mean(float(np.abs(bins[:, 1] - bins[:, 2]).sum()), n), "reliability": curve}

    def _coverage(self, sums: Array) -> dict[str, Any]:
        """How many labels fell inside their intervals, in all and by hour (or bin of the shorter cycle)."""
        k = layout
        n = sums[k.INTERVALS]
        hours = sums[k.HOURS : k.HOURS + 48].reshape(24, 2)
        count = self._cycles.short.bins if self._cycles else 0
        return {
            "coverage": _mean(sums[k.INSIDE], n),
            "coverage_by_hour": [_mean(inside, rows) for rows, inside in hours[:count]],
            "interval_score": _mean(sums[k.INTERVAL_SCORE] * self.scale, n),
        }

    # ------------------------------------------------------------------ saving

    def arrays(self) -> dict[str, Array]:
        """The whole state; of buffers, what waits."""
        k = _kernels()
        arrays = {name: array.copy() for name, array in self._arrays.items()}
        first, last = int(self.state[k.FIRST_READING]), int(self.state[k.END_READING])
        arrays["when"], arrays["reading"] = arrays["when"][first:last], arrays["reading"][first:last]
        arrays["pending"] = arrays["pending"][int(self.state[k.FIRST_PENDING]) : int(self.state[k.END_PENDING])]
        # Places in the buffers are counted from what waits: what is saved does not tell when it was loaded.
        state = self.state.copy()
        state[k.END_READING] -= state[k.FIRST_READING]
        state[k.END_PENDING] -= state[k.FIRST_PENDING]
        state[k.FIRST_READING] = state[k.FIRST_PENDING] = 0.0
        arrays |= {"state": state, "recent_rows": self._recent_rows(), "blocks": self._blocks.state()}
        return arrays | {"half": np.array([float(self._half)])}

    def _recent_rows(self) -> Array:
        return np.concatenate(self._recent)[-RECENT:] if self._recent else np.empty((0, 8))

    def restore(self, saved: Mapping[str, Array]) -> None:
        """Go on from ``arrays``; ValueError if they do not fit."""
        k = _kernels()
        for name, array in self._arrays.items():
            new, waits = np.array(saved[name], np.float64), name in ("when", "reading", "pending")
            if new.shape[waits:] != array.shape[waits:]:
                raise ValueError(f"what was learned for {self.question.text!r} does not fit: {name}")
            self._arrays[name] = new
        state = np.array(saved["state"], np.float64)
        if state.shape != self.state.shape:
            raise ValueError(f"what was learned for {self.question.text!r} does not fit: state")
        self.state = state
        self._blocks.restore(np.array(saved["blocks"], np.float64))
        self._half = int(saved["half"][0])
        self._constants[k.HALF] = self._half
        rows = np.array(saved["recent_rows"], np.float64).reshape(-1, 8)
        self._recent = [rows] if len(rows) else []


def _mean(total: float, count: float) -> float | None:
    return _finite(total / count) if count > 0 else None


def _ratio(errors: float, of_baseline: float) -> float | None:
    """The skill, 1 − errors / of_baseline."""
    return _finite(1.0 - errors / of_baseline) if of_baseline > 0 else None


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
