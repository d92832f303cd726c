"""General value functions of the user's own: intervals, what is usual, baselines, and scores against actual returns.

The return of a row is followed until nothing is missing of it: of a constant γ until .99 of its weight has passed, as
of every signal at its horizons (``nexting.scores.returns``), and otherwise until .999 has. A gap ends it without a
return; so does, where the return is no weighted mean, a value that is missing. Of a question with a policy the returns
are known of rows after which the log took that policy's actions; of a policy that may take several actions none are.

Baselines are ``persistence`` (the present cumulant, or where the return is no weighted mean the last return that is
known), ``past_mean`` and ``climatology`` (the mean of the returns so far, in all and at this hour), and ``mean``
(that of the first half). An interval reaches from quantile to quantile of the last 1,000 errors, each divided by the
usual size of errors at its hour, and is corrected by how often it missed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic import rules
from emphatic.gvfs.evaluator import Evaluator
from emphatic.gvfs.gvf import GVF, Observations, action_name, sure_action
from emphatic.nexting.answers.asked import KINDS
from emphatic.nexting.scores.verdicts import ErrorBlocks, finite, judge_errors, mean_of, share_of
from emphatic.nexting.tables import Hold

__all__ = ["MARKS", "FollowedGVFs", "find_marks"]

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
#: Rows that a plot shows.
_RECENT = 400
#: The columns of a plot.
_SHOWN = ("row", "time", "now", "answer", "low", "high", "usual", "label")
_BASELINES = ("persistence", "past_mean", "climatology")
#: The mark of an answer, by its number.
MARKS = (None, "unsupported", "impossible")
#: The support that an answer needs to have none.
_SUPPORTED = 10.0


@cache
def _kernels() -> Any:
    """The compiled loop, when it is first needed."""
    from emphatic.nexting.runs import return_kernels

    return return_kernels


def find_marks(answers: Array, possible: Array, support: Array) -> NDArray[np.int8]:
    """The numbers of the marks of answers (B, Q) by the range of what is possible, (2, Q), and their support, (Q,).

    >>> find_marks(np.array([[0.5, 0.5, 3.0]]), np.array([[0.0] * 3, [1.0] * 3]), np.array([20.0, 9.0, 9.0])).tolist()
    [[0, 1, 2]]
    """
    return np.where((answers < possible[0]) | (answers > possible[1]), 2, support < _SUPPORTED).astype(np.int8)


class FollowedGVFs:
    """The returns of some questions of a horde, and their state from row to row.

    Args:
        questions: The questions.
        signals: The signals of the stream.
        categories: Its columns of words.
        step: The seconds of a step; None without times.
        coverage: The share of returns that are to fall inside their intervals.
        dated: Whether times are seconds since 1970, so that rows have an hour.
        rows: The number of rows, where it is known: the second half is scored. Otherwise all rows are.

    >>> t = np.arange(600)
    >>> bright = GVF("x > 0", gamma=0.8, name="bright")
    >>> followed = FollowedGVFs([bright], ["x"], [], None, 0.8, rows=600)
    >>> x = np.sin(t / 9)[:, None]
    >>> answers = followed(np.full((600, 1), 0.5), x, np.zeros(600, bool), None, {})
    >>> answers.shape, round(followed.scores()[0]["coverage"], 1)
    ((600, 1, 4), 0.8)
    """

    def __init__(
        self,
        questions: Sequence[GVF],
        signals: Sequence[str],
        categories: Sequence[str],
        step: float | None,
        coverage: float,
        dated: bool = False,
        rows: int | None = None,
    ) -> None:
        self.questions, self._signals, self._dated = tuple(questions), tuple(signals), dated
        self._coverage = coverage
        plain = [replace(question, policy=None, interest=None) for question in self.questions]
        self._evaluator = Evaluator(plain, signals, categories, step, rules.get("true_online_etd"))
        self._hold = Hold(len(self._signals))
        self._taken = np.zeros(len(self.questions), bool)  # whether the action of the last row was the policy's
        self._begun = False
        #: The least and the most answer that is possible, (2, Q).
        self.possible = np.repeat([[-np.inf], [np.inf]], len(self), axis=1)
        self._marks = [0] * len(self)
        self._followed = [
            _Followed(question, gamma, coverage, 0 if rows is None else rows // 2)
            for question, gamma in zip(self.questions, self._evaluator.gamma, strict=True)
        ]

    def __len__(self) -> int:
        return len(self.questions)

    def __call__(
        self,
        predictions: Array,
        readings: Array,
        gap: Flags,
        time: Array | None,
        labels: Mapping[str, Sequence[Any] | NDArray[np.object_]],
    ) -> Array:
        """Prediction, low, high and usual (B, Q, 4) at the next B rows, after learning from returns that they close.

        Args:
            predictions: The predictions (B, Q).
            readings: The readings (B, S) of all signals, NaN where missing.
            gap: The rows (B,) that do not follow the row before.
            time: The times (B,) of the rows; None without times.
            labels: The words of each category, (B,) each.
        """
        B, Q = len(readings), len(self)
        read = np.where(np.isfinite(readings), readings, np.nan)
        held, _ = self._hold.fill(read)
        words = {name: list(column) for name, column in labels.items()}
        raw, filled = (Observations(self._signals, values, words) for values in (read, held))
        follows = ~gap
        if B and not self._begun:
            follows[0], self._begun = False, True
        targets = self._evaluator(raw, filled, None, follows)
        known = np.broadcast_to(targets.known, (B, Q))
        taken = self._actions(raw)
        hour = np.zeros(B)
        if self._dated and time is not None:
            hour = np.where(np.isfinite(time), np.floor(time / 3600.0) % 24.0, 0.0)
        when = np.full(B, np.nan) if time is None else time
        now = np.broadcast_to(self._evaluator.cumulants(filled), (B, Q))
        R, gamma = np.broadcast_to(targets.R, (B, Q)), np.broadcast_to(targets.gamma, (B, Q))
        out = np.empty((B, Q, len(KINDS)))
        for q, followed in enumerate(self._followed):
            columns = (
                np.where(known[:, q], R[:, q], np.nan),
                gamma[:, q],
                taken[:, q],
                follows,
                now[:, q],
                hour,
                predictions[:, q],
            )
            out[:, q, 0], out[:, q, 1:] = predictions[:, q], followed(columns, when)
        return out

    def _actions(self, raw: Observations) -> Flags:
        """Where the step that ends in a row began with the action of each question's policy, (B, Q)."""
        taken = np.ones((len(raw), len(self)), bool)
        for q, question in enumerate(self.questions):
            if question.policy is None or question.policy.column is None:
                continue
            sure = sure_action(question.policy)
            column = raw.column(question.policy.column)
            taken[:, q] = [
                sure is not None and action is not None and action == action and action_name(action) == sure
                for action in column
            ]
        began = np.vstack([self._taken, taken[:-1]]) if len(taken) else taken
        self._taken = taken[-1] if len(taken) else self._taken
        policies = np.array([question.policy is not None for question in self.questions], bool)
        out: Flags = began | ~policies
        return out

    def scores(self) -> list[dict[str, Any]]:
        """The scores of the second half, a dict each, as they follow in ``summary.json``."""
        marks = [{"mark": MARKS[mark]} if mark else {} for mark in self._marks]
        return [followed.summary() | mark for followed, mark in zip(self._followed, marks, strict=True)]

    def note(self, possible: Array, marks: NDArray[np.int8]) -> None:
        """Note what is ``possible``, and the marks of the next answers (B, Q): those of the last are in ``scores``."""
        self.possible, self._marks = possible, marks[-1].tolist() if len(marks) else self._marks

    def recent(self, q: int) -> dict[str, Array]:
        """The last rows of a question, by name: row, time, now, answer, low, high, usual and label."""
        return dict(zip(_SHOWN, self._followed[q].recent.T, strict=True))

    # ------------------------------------------------------------------ saving

    def state(self) -> dict[str, Any]:
        """What is saved with a model: arrays by name, and what JSON can hold under ``gvfs``."""
        if not self.questions:
            return {}
        header: dict[str, Any] = {"names": [question.name for question in self.questions], "hold": self._hold.state()}
        header |= {"taken": self._taken.tolist(), "begun": self._begun}
        arrays = {
            f"gvf.{q}.{name}": array
            for q, followed in enumerate(self._followed)
            for name, array in followed.arrays().items()
        }
        return {"gvfs": header, **arrays}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what was saved, or afresh if nothing was; ValueError if it does not fit.

        Args:
            state: As ``state`` returns it, among other entries.
        """
        saved = state.get("gvfs")
        if saved is None or not self.questions:
            return
        try:
            if saved["names"] != [question.name for question in self.questions]:
                raise ValueError("what was saved of the returns of questions is of other questions")
            self._hold = Hold.restore(saved["hold"])
            self._taken, self._begun = np.array(saved["taken"], bool), bool(saved["begun"])
            for q, followed in enumerate(self._followed):
                prefix = f"gvf.{q}."
                arrays = {name.removeprefix(prefix): a for name, a in state.items() if name.startswith(prefix)}
                followed.restore(arrays)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"what was saved of the returns of questions does not fit: {error!r}") from None


class _Followed:
    """The returns of one question."""

    def __init__(self, question: GVF, gamma: float, coverage: float, half: int) -> None:
        k = _kernels()
        self.question, self._half, self._coverage = question, half, coverage
        is_mean = 0.0 <= gamma < 1.0 and question.terminal is None
        #: Predictions of a constant γ are scaled by 1 − γ.
        self._scale = 1.0 - gamma if 0.0 <= gamma < 1.0 and not is_mean else 1.0
        self._is_mean = is_mean
        #: Why no return is known, where none can be.
        self.reason = ""
        if question.policy is not None and sure_action(question.policy) is None:
            self.reason = "the policy may take several actions: a log does not show its return"
        elif gamma == 1.0:
            self.reason = "γ is 1 everywhere: the return does not end"
        self._fixed = np.zeros(k.FIXED)
        self._fixed[k.MEAN_OF_WEIGHTS], self._fixed[k.ENOUGH] = is_mean, k.MEAN_NOTHING if is_mean else k.NOTHING
        self._fixed[k.COVERAGE], self._fixed[k.HALF] = coverage, half
        carried = np.zeros(k.QUESTION)
        carried[[k.LEAST, k.MOST]] = np.inf, -np.inf
        self._arrays = {
            "question": carried,
            "rows": np.zeros((k.OPEN_ROWS, k.FIELDS)),
            "climate": np.zeros((25, 3)),
            "ratios": np.zeros(k.REMEMBERED),
            "sums": np.zeros((2, k.SUMS)),
        }
        self._blocks = ErrorBlocks(["answer", "label", "label_square", *_BASELINES])
        self.recent: Array = np.empty((0, len(_SHOWN)))

    def __call__(self, columns: Sequence[NDArray[Any]], when: Array) -> Array:
        """Low, high and usual (B, 3) at the next rows, by the columns of the kernel; ``when`` are their times."""
        k, B = _kernels(), len(when)
        R, gamma, taken, follows, now, hour, answer = columns
        if self.reason:
            R = np.full(B, np.nan)
        first = int(self._arrays["question"][k.ROW])
        out, closed = np.empty((B, 3)), np.empty((B + k.OPEN_ROWS, k.FIELDS))
        persistence = now if self._is_mean else np.full(B, np.nan)
        inputs = (R * self._scale, gamma, taken, follows, persistence, hour, answer)
        count = k.follow_returns(
            self._fixed, *self._arrays.values(), *(np.ascontiguousarray(column) for column in inputs), out, closed
        )
        known = closed[:count]
        scored = known[known[:, k.AT_ROW] >= self._half]
        y = scored[:, k.RETURN]
        squares = {"answer": (scored[:, k.ANSWER] - y) ** 2, "label": y, "label_square": y**2}
        simple = zip(_BASELINES, (k.NOW, k.PAST_MEAN, k.USUAL), strict=True)
        squares |= {name: (scored[:, place] - y) ** 2 for name, place in simple}
        self._blocks.add(scored[:, k.AT_ROW].astype(np.int64) - self._half, squares)
        shown = np.column_stack([first + np.arange(B), when, now, answer, out, np.full(B, np.nan)])
        recent = np.concatenate([self.recent, shown])
        places = np.searchsorted(recent[:, 0], known[:, k.AT_ROW])
        there = (places < len(recent)) & (recent[np.minimum(places, len(recent) - 1), 0] == known[:, k.AT_ROW])
        recent[places[there], -1] = known[there, k.RETURN]
        self.recent = recent[-_RECENT:]
        return out

    def summary(self) -> dict[str, Any]:
        """Its object in ``summary.json``."""
        k, carried = _kernels(), self._arrays["question"]
        first, second = self._arrays["sums"]
        n = second[k.COUNT]
        config = self.question.config()
        config.pop("name", None)
        last = dict(zip(_SHOWN, self.recent[-1], strict=True)) if len(self.recent) else dict.fromkeys(_SHOWN, math.nan)
        score: dict[str, Any] = {"text": self.question.name, "kind": "gvf", "definition": config, "default": False}
        score |= {"signal": None, "horizon": self.question.horizon}
        score |= {"known": int(carried[k.CLOSED]), "scored": int(n), "dropped_returns": int(carried[k.DROPPED])}
        score |= {name: finite(last[name]) for name in ("answer", "low", "high", "usual", "now")}
        mean = first[k.TOTAL] / first[k.COUNT] if first[k.COUNT] else math.nan
        spread = second[k.SQUARES] - second[k.TOTAL] ** 2 / n if n else math.nan
        squares = {name: second[k.BASELINES + b] for b, name in enumerate(_BASELINES)}
        absolute = {name: second[k.BASELINES_ABSOLUTE + b] for b, name in enumerate(_BASELINES)}
        squares["mean"] = second[k.SQUARES] - 2.0 * mean * second[k.TOTAL] + n * mean * mean
        absolute["mean"] = math.nan
        score |= self._verdict(mean)
        score |= {
            "mae": mean_of(second[k.ABSOLUTE], n),
            "rmse": mean_of(second[k.SQUARE], n, root=True),
            "variance_explained": share_of(second[k.SQUARE], spread),
            "skill": {name: share_of(second[k.SQUARE], square) for name, square in squares.items()},
            "baselines": {
                name: {
                    "mae": mean_of(absolute[name], n),
                    "rmse": mean_of(square, n, root=True),
                    "variance_explained": share_of(square, spread),
                }
                for name, square in squares.items()
            },
        }
        hours = second[k.HOURS :].reshape(24, 2)
        covered = second[k.COVERED_ROWS]
        score |= {
            "coverage": mean_of(second[k.COVERED], covered),
            "coverage_by_hour": [mean_of(inside, rows) for rows, inside in hours] if hours[1:].any() else [],
            "interval_score": mean_of(second[k.INTERVAL_SCORE], covered),
        }
        if not n:
            why = self.reason or "no return in the second half can be computed: gaps or missing values come before"
            score["reasons"] = {"variance_explained": why}
        return score

    def _verdict(self, mean: float) -> dict[str, Any]:
        """Whether predictions are better than the best baseline, by the second half of the rows so far.

        ``mean`` is that of the returns of the first half of a log.
        """
        at = self._blocks.count_before(int(self._arrays["question"][_kernels().ROW]) // 2 - self._half)
        if not math.isfinite(mean) and (early := self._blocks.sums()[:at].sum()) > 0.0:
            mean = float(self._blocks.sums("label")[:at].sum() / early)
        sums = {name: self._blocks.sums(name)[at:] for name in self._blocks.columns}
        counts, errors, labels, squares = self._blocks.sums()[at:], *(sums.pop(n) for n in self._blocks.columns[:3])
        if math.isfinite(mean):
            sums["mean"] = np.maximum(squares - 2.0 * mean * labels + counts * mean**2, 0.0)
        length = max(1.0, self._arrays["question"][_kernels().LENGTH])
        return judge_errors(counts, errors, sums, length, self._blocks.length)._asdict()

    def arrays(self) -> dict[str, Array]:
        """The whole state."""
        arrays = {name: array.copy() for name, array in self._arrays.items()}
        half = np.array([float(self._half)])
        return arrays | {"blocks": self._blocks.state(), "recent": self.recent.copy(), "half": half}

    def restore(self, saved: Mapping[str, Array]) -> None:
        """Go on from ``arrays``; ValueError if they do not fit."""
        for name, array in self._arrays.items():
            if np.shape(saved[name]) != array.shape:
                raise ValueError(f"what was saved of the returns of {self.question.name!r} does not fit: {name}")
        self._arrays = {name: np.array(saved[name], np.float64) for name in self._arrays}
        self._blocks.restore(np.array(saved["blocks"], np.float64))
        self._half = int(saved["half"][0])
        self._fixed[_kernels().HALF] = self._half
        self.recent = np.array(saved["recent"], np.float64).reshape(-1, len(_SHOWN))
