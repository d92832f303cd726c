"""Answers from a signal's own past: as one period ago, and a regression in differences.

The *seasons* of a signal are up to two periods, found from its readings (``answers.periods``) after the first
40 rows, and again whenever the rows have grown by a quarter. A season answers that the path of the last period repeats,

    s = Σ_{k<P} (1 − γ) γᵏ x_{t−P+1+k} / (1 − γᴾ),   and with the rise u of a period, s + u / (1 − γᴾ)

where u is the mean of x_t − x_{t−P} over about two periods. Where there is one period, the second answer is the first
without its rise; where there is none, there is no answer (NaN).

The *drift* answer is x + θ·f + e_c, a ridge regression of G − x on differences f: of the reading from its traces over
4 to 1024 rows, from the readings one and two rows before, and of both seasons s − x, x_t − x_{t−P}, and u; with an
effect e_c of the hour of the week c (of the weekday, where rows are days; of the hour of the day, where signals are
very many) if rows have times. A constant added to all readings is added to the answer: it follows a level that drifts.
The ridge shrinks θ towards the answer of the longer season, or to the reading where there is none, by 0.001 + 10/rows
of each feature's own mean square. Later rows weigh more, in proportion to their number. What is not known of a return
yet is replaced by the prediction, as in ``ridges``:

    z_t = γ z_{t−1} + t f_t,   b += d z_{t−1},   d = (1 − γ) x_t + γ v_t − v_{t−1}

When a period changes, everything is learned anew from the last 8,192 rows, as if it had been known before. Rows that
are missing in time count for the phase: they are filled in as one period ago. In the place of a missing reading stands
the last one, plus the change from row to row of one period ago where there is a season; nothing is learned from its
row. So it is with a far reading that was pulled in towards the last one, which may have been a peak. Bits do not depend
on how rows are cut into blocks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.answers.periods import Period, find_periods
from emphatic.engines.compiled import direct
from emphatic.hordes import season_kernels
from emphatic.hordes.blend import WIDTH, make_lanes

__all__ = ["ANSWERS", "Seasons"]

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: The shares of each feature's mean square that are added to it.
STRENGTHS = (0.001,)
#: The names of the answers.
ANSWERS = ("short season", "long season", *(f"drift {strength:g}" for strength in STRENGTHS))
#: Rows that a signal remembers, at most and at first: a period is at most a third of them.
SPAN, _FIRST_SPAN = 8192, 512
#: Rows before periods are looked for, and the factor by which they grow until the next time.
_FIRST, _GROWTH = 40, 1.25
#: Of ``season_kernels``.
_SEASONS, _SHARED, _SIGNAL, _STALE, _SCALE = 2, 12, 11, 1, 2
_FEATURES = _SHARED + _SEASONS
#: A sum over a path is found anew when rounding errors have grown by e to the power of this.
_RENEWED = 4.0
#: Horizons after which the weights of a path are below rounding errors.
_HORIZONS = 37.0
#: In seconds. 1970-01-05 was a Monday.
_HOUR, _DAY, _MONDAY = 3600.0, 86_400.0, 4 * 86_400.0
#: Stands for a last time of 0: in ``counts`` 0 is for none.
_AT_ZERO = 5e-324
#: A row that follows the row before.
_FOLLOWS = np.ones(1, bool)
#: What a signal and a question carry, and what is the same for all.
_OF_SIGNAL = ("period", "strength", "ring", "flags", "changed", "signals", "squares", "A", "cross", "weights")
_IN_LANES = ("questions", "path_squares", "sums", "path_products", "b", "z", "theta")
_OF_CALENDAR = ("path_cross", "cells", "effect")
_OF_QUESTION = (*_IN_LANES[:-1], *_OF_CALENDAR[:-1], "theta", "effect")
_OF_ALL = ("codes", "counts")
#: What has a number for each row that is remembered.
_REMEMBERED = ("ring", "flags", "codes")


class Seasons:
    """The answers of Q questions with constant γ about C signals, and their state.

    Args:
        gamma: γ of each question, (Q,).
        signal: The signal that each question is about, (Q,): 0 to C − 1, each with a question.
        step: The usual step in seconds; None where rows have no times.
        weekly: Whether the calendar has the hours of a week, or those of a day.
    """

    def __init__(self, gamma: Array, signal: NDArray[np.int64], step: float | None, weekly: bool = True) -> None:
        Q, C, S, F = len(gamma), int(signal.max(initial=-1)) + 1, len(STRENGTHS), _FEATURES
        self.gamma, self.signal, self.step, self._weekly = np.ascontiguousarray(gamma), signal, step, weekly
        #: The first question about each signal: its readings are the signal's.
        self._leaders = np.array([int(np.argmax(signal == c)) for c in range(C)], np.int64)
        members = np.argsort(signal, kind="stable").astype(np.int64)
        self._members = members, np.searchsorted(signal[members], np.arange(C + 1)).astype(np.int64)
        #: The length of a cell of the calendar in seconds, and the number of cells.
        self._cell = _HOUR if step is None or step < 0.75 * _DAY else _DAY
        M = 0 if step is None or not 0.0 < step < 1.5 * _DAY else int(7 * _DAY / self._cell)
        M = min(M, M if weekly else int(_DAY / _HOUR))
        self.period, self.strength = np.zeros((C, _SEASONS), np.int64), np.zeros((C, _SEASONS))
        self.ring, self.flags = np.zeros((C, _FIRST_SPAN)), np.zeros((C, _FIRST_SPAN), np.uint8)
        self.changed, self.signals = np.zeros((C, _SEASONS), np.int64), np.zeros((C, _SIGNAL))
        self.squares, self.A = np.zeros((C, _SHARED - 1)), np.zeros((C, _SHARED, _SHARED))
        self.cross, self.weights = np.zeros((C, _SHARED, M)), np.zeros((C, M))
        self.path_cross, self.cells = np.zeros((Q, _SEASONS, M)), np.zeros((Q, 3, M))
        self.effect = np.zeros((Q, S, M))
        # Questions of one signal, WIDTH at a time, are a bundle, each in a lane.
        counts = np.bincount(signal, minlength=C)
        self._bundles = np.concatenate([[0], np.cumsum(-(-counts // WIDTH))]).astype(np.int64)
        order = np.empty(Q, np.int64)  # of a question among those of its signal
        order[members] = np.arange(Q) - self._members[1][signal[members]]
        #: The bundle and the lane of each question.
        self._place = self._bundles[signal] + order // WIDTH, order % WIDTH
        shapes = (4,), (_SEASONS,), (_SEASONS,), (_SEASONS, F), (F,), (F,), (S, F)
        count = int(self._bundles[-1])
        self._lanes = {name: make_lanes(count, shape) for name, shape in zip(_IN_LANES, shapes, strict=True)}
        self._scales = make_lanes(count, (_SEASONS, 4))
        # γ, and the rows after which a sum over a path is found anew; lanes without a question have some numbers, too
        self._gamma, self._renewals = make_lanes(count, ()) + 0.5, make_lanes(count, ()) + 1.0
        self._gamma[self._place] = gamma
        rows = [max(1, int(_RENEWED / -math.log(max(g, 1e-300)))) for g in gamma.tolist()]
        self._renewals[self._place] = rows
        self._features, self._room = np.zeros(_SHARED), make_lanes(1, (F + 7, F))[0]
        self.codes = np.zeros(_FIRST_SPAN, np.int64)
        #: Rows so far with those that were skipped, rows of the next search, and the last time.
        self.counts = np.array([0.0, _FIRST, 0.0])
        self._lanes["questions"][:, [_STALE, _SCALE]] = 1.0
        self._strengths = np.array(STRENGTHS)
        #: Of one row: whether its readings are learned from, no new seasons, no place in the calendar, no skipped rows.
        self._learned, self._unlearned = np.ones((1, C), bool), np.zeros((1, C), bool)
        self._none_fresh = np.zeros((1, Q, _SEASONS), bool)
        self._anytime, self._none_skipped = np.full(1, -1, np.int64), np.zeros(1, np.int64)
        self._changed = False  # whether some season is a new one at the next row
        self._state = self._gather_state()

    @property
    def periods(self) -> list[list[Period]]:
        """The periods of each signal, shortest first."""
        return [
            [Period(int(p), float(s)) for p, s in dict(zip(rows, strengths, strict=True)).items() if p > 0]
            for rows, strengths in zip(self.period.tolist(), self.strength.tolist(), strict=True)
        ]

    def __call__(
        self,
        x: Array,
        follows: Flags,
        seconds: Array | None = None,
        learn: bool = True,
        answers: Array | None = None,
        place: int = 0,
    ) -> tuple[Array, Flags]:
        """The answers at B rows, (B, Q, 3), NaN where there is no season, and which season is a new one, (B, Q, 2).

        The first may be ``answers`` with these in it.

        Args:
            x: The readings (B, Q), NaN where missing.
            follows: The rows (B,) that follow the row before.
            seconds: The time of each row in seconds since 1970, NaN where it is not known; None for no times.
            learn: Whether to learn from the rows.
            answers: An array (B, Q, …) of several answers to each question, to put them into.
            place: The place of the first of them there.
        """
        B, Q = x.shape
        if answers is None:
            answers = np.empty((B, Q, len(ANSWERS)))
        cell, skipped = self._calendar(seconds, follows)
        x, follows = np.ascontiguousarray(x), np.ascontiguousarray(follows)
        if B == 1:  # without the arrays that a block needs
            return answers, self._run_row(x, follows, cell, skipped, learn, answers, place)
        sound, fresh = np.full((B, len(self._leaders)), learn), np.zeros((B, Q, _SEASONS), bool)
        inputs = x, sound, follows, cell, skipped, answers, fresh, place
        rows, begin = self.counts[0] + np.cumsum(1 + skipped), 0
        self._remember(int(rows[-1]))
        while begin < B:
            end = min(B, int(np.searchsorted(rows, self.counts[1])) + 1)
            self._run(inputs, begin, end)
            self._changed, begin = False, end
            if self.counts[0] >= self.counts[1]:
                self._search()
        return answers, fresh

    def row(self, x: Array, seconds: Array, answers: Array, place: int) -> Flags | None:
        """A call with one row that follows the row before, and learns; all arrays are contiguous.

        Args:
            x: The readings (1, Q).
            seconds: The time, (1,), or none of it, (0,).
            answers: An array (1, Q, …) to put the answers into.
            place: The place of the first of them there.

        Returns:
            Which season is a new one, (1, Q, 2); None where none is.
        """
        cell, skipped = self._calendar(seconds, _FOLLOWS)
        fresh = self._run_row(x, _FOLLOWS, cell, skipped, True, answers, place)
        return None if fresh is self._none_fresh else fresh

    def _run_row(
        self,
        x: Array,
        follows: Flags,
        cell: NDArray[np.int64],
        skipped: NDArray[np.int64],
        learn: bool,
        answers: Array,
        place: int,
    ) -> Flags:
        """One row; returns which season is a new one, (1, Q, 2)."""
        sound = self._learned if learn else self._unlearned
        fresh = np.zeros((1, x.shape[1], _SEASONS), bool) if self._changed else self._none_fresh
        self._changed = False
        rows = int(self.counts.item(0))
        if rows + 1 + skipped.item(0) > len(self.codes):
            self._remember(rows + 1 + skipped.item(0))
        n = direct(season_kernels.rows)(
            x, sound, follows, cell, skipped, answers, fresh, place, 0, 1, rows, 0, *self._state
        )
        self.counts[0] = n
        if n >= self.counts.item(1):
            self._search()
        return fresh

    def _remember(self, rows: int) -> None:
        """Make room to remember so many rows, or ``SPAN`` of them.

        Until ``SPAN`` rows have come row n lies at place n: longer arrays have the same rows at the same places.
        """
        length = len(self.codes)
        if length < min(rows, SPAN):
            longer = _span(rows) - length
            self.ring, self.flags = np.pad(self.ring, ((0, 0), (0, longer))), np.pad(self.flags, ((0, 0), (0, longer)))
            self.codes = np.pad(self.codes, (0, longer))
            self._state = self._gather_state()

    def _gather_state(self) -> tuple[NDArray[Any], ...]:
        """What the kernel is given of the state, in the order of its arguments: all is changed in place."""
        state: tuple[NDArray[Any], ...]
        state = (self._leaders, *self._members, self._bundles, self._gamma, self._renewals, self._strengths)
        state += (self.period, self._scales, self.changed, self.ring, self.flags, self.codes, self.signals)
        state += (self.squares, self.A, self.cross, self.weights, *self._lanes.values())
        return (*state, *(getattr(self, name) for name in _OF_CALENDAR), self._features, self._room)

    def _run(self, inputs: tuple[Any, ...], begin: int, end: int, earlier: int = 0) -> None:
        """The kernel on some of the rows, which are counted."""
        self.counts[0] = direct(season_kernels.rows)(
            *inputs, begin, end, int(self.counts.item(0)), earlier, *self._state
        )

    def _scale(self) -> None:
        """What the sums over paths of these periods are multiplied by: see the kernel."""
        period, g = self.period[self.signal], self.gamma[:, None]
        rows = np.minimum(period, (_HORIZONS / (1.0 - g)).astype(np.int64) + 1)
        with np.errstate(all="ignore"):
            scales = rows, g ** (rows - 1), (1.0 - g) / (1.0 - g**rows), 1.0 / (1.0 - g**period)
        _questions_of(self._scales)[self._place] = np.where(period[:, :, None] > 0, np.stack(scales, axis=2), 0.0)

    def _calendar(self, seconds: Array | None, follows: Flags) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The cell of the calendar of each row, −1 for none, and how many rows were skipped before it."""
        B = len(follows)
        if seconds is None or len(seconds) != B or self.step is None or not self.step > 0.0:
            if B == 1:
                return self._anytime, self._none_skipped
            return np.full(B, -1, np.int64), np.zeros(B, np.int64)
        cells = self.cells.shape[2]
        if B == 1 and follows[0]:
            second = seconds.item(0)
            if not math.isfinite(second):
                return self._anytime, self._none_skipped
            self.counts[2] = second or _AT_ZERO
            cell = np.array([math.floor((second - _MONDAY) / self._cell) % cells], np.int64) if cells else self._anytime
            return cell, self._none_skipped
        timed = np.isfinite(seconds)
        if not cells:
            cell = np.full(B, -1, np.int64)
        else:
            since = np.where(timed, seconds, _MONDAY) - _MONDAY
            cell = np.where(timed, np.floor(since / self._cell) % cells, -1).astype(np.int64)
        times = np.concatenate([[self.counts[2] or np.nan], seconds])
        latest = np.maximum.accumulate(np.where(timed, np.arange(1, B + 1), 0))
        before = times[np.concatenate([[0], latest[:-1]])]
        skipped = np.zeros(B, np.int64)
        if not follows.all():
            with np.errstate(all="ignore"):
                missing = np.rint((seconds - before) / self.step) - 1.0
            skips = ~follows & (missing > 0.0)
            skips[0] &= self.counts[0] > 0.0
            skipped[skips] = np.minimum(missing[skips], SPAN).astype(np.int64)
        if latest[-1]:
            self.counts[2] = times[latest[-1]] or _AT_ZERO
        return cell, skipped

    def _search(self) -> None:
        """Find the periods of every signal; where they have changed, learn anew from the rows in its ring."""
        n = int(self.counts[0])
        self.counts[1] = max(n + 1, int(n * _GROWTH))
        span = len(self.codes)
        rows = np.arange(max(0, n - span), n) % span
        for c in range(len(self.ring)):
            periods = find_periods(self.ring[c, rows], self.period[c].tolist())
            periods = periods * 2 if len(periods) == 1 else periods or [Period(0, 0.0)] * 2
            period = np.array([p.rows for p in periods], np.int64)
            changed = np.abs(period - self.period[c]) > 0.05 * period
            self.strength[c] = [p.strength for p in periods]
            if (period != self.period[c]).any():
                self.period[c] = period
                self._scale()
                self._learn_anew(c, rows, n)
                self.changed[c] = changed
        self._changed = bool(self.changed.any())

    def _learn_anew(self, c: int, rows: NDArray[np.intp], n: int) -> None:
        """Learn signal c anew from these rows of its ring, the last of n."""
        questions = np.flatnonzero(self.signal == c)
        shadow, B = (
            Seasons(self.gamma[questions], np.zeros(len(questions), np.int64), self.step, self._weekly),
            len(rows),
        )
        bundle, lane = self._place
        places = bundle[questions], lane[questions]
        shadow.period[0] = self.period[c]
        _questions_of(shadow._scales)[shadow._place] = _questions_of(self._scales)[places]
        shadow._remember(B)
        codes = self.codes[rows]
        x, sound = self.ring[c, rows][:, None], (self.flags[c, rows] > 0)[:, None]
        inputs = x, sound, codes % 2 > 0, codes // 2 - 1, np.zeros(B, np.int64)
        answers, fresh = np.empty((B, len(questions), len(ANSWERS))), np.empty((B, len(questions), _SEASONS), bool)
        shadow._run((*map(np.ascontiguousarray, inputs), answers, fresh, 0), 0, B, n - B)
        for name in ("signals", "squares", "A", "cross", "weights"):
            getattr(self, name)[c] = getattr(shadow, name)[0]
        shadow._lanes["questions"][:, _STALE] = 1.0
        for name, lanes in self._lanes.items():
            _questions_of(lanes)[places] = _questions_of(shadow._lanes[name])[shadow._place]
        for name in _OF_CALENDAR:
            getattr(self, name)[questions] = getattr(shadow, name)

    # ------------------------------------------------------------------ saving

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The state, by name."""
        rows = {name: _questions_of(lanes)[self._place] for name, lanes in self._lanes.items()}
        names = (*_OF_SIGNAL, *_OF_QUESTION, *_OF_ALL)
        arrays = {name: rows[name] if name in rows else getattr(self, name) for name in names}
        span = _span(int(self.counts[0]))  # however rows were cut into blocks
        return arrays | {name: arrays[name][..., :span] for name in _REMEMBERED}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what ``arrays`` returned; ValueError if it does not fit."""
        self._remember(len(arrays["codes"]))
        for name, array in self.arrays().items():
            stored = arrays[name]
            if name in _REMEMBERED:
                array = getattr(self, name)[..., : len(arrays["codes"])]
            if stored.shape != array.shape or stored.dtype != array.dtype or not np.isfinite(stored).all():
                raise ValueError(f"the array {name!r} of the seasons does not fit")
            array[:] = stored
            if name in self._lanes:
                _questions_of(self._lanes[name])[self._place] = stored
        places = 2 * self.cells.shape[2] + 2
        if (
            len(arrays["codes"]) != _span(int(self.counts[0]))
            or not ((self.period >= 0) & (self.period < SPAN)).all()
            or not ((self.codes >= 0) & (self.codes < places)).all()
            or not 0.0 <= self.counts[0] < 2**53
        ):
            raise ValueError("the periods or rows of the seasons do not fit")
        self._scale()
        self._changed = bool(self.changed.any())

    def join(self, seasons: Sequence[Seasons]) -> None:
        """Join the states of seasons of the same rows that have these questions between them, in order."""
        shards = [shard.arrays() for shard in seasons]
        arrays = {name: shards[0][name] for name in _OF_ALL}
        for name in _OF_QUESTION:
            arrays[name] = np.concatenate([shard[name] for shard in shards])
        shard_of = np.repeat(np.arange(len(seasons)), [len(shard.signal) for shard in seasons])
        local = np.concatenate([shard.signal for shard in seasons])
        for name in _OF_SIGNAL:
            arrays[name] = np.stack([shards[shard_of[q]][name][local[q]] for q in self._leaders])
        self.restore(arrays)


def _questions_of(lanes: Array) -> Array:
    """Numbers in lanes by bundle and lane, (bundles, WIDTH, …)."""
    return np.moveaxis(lanes, -1, 1)


def _span(rows: int) -> int:
    """The length of a ring for so many rows: a power of 2."""
    return min(max(1 << max(rows - 1, 0).bit_length(), _FIRST_SPAN), SPAN)
