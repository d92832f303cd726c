"""General value functions of the user's own: intervals, what is usual, baselines, and scores against actual returns.

The return of a row is followed until nothing is missing of it: of a constant γ until .99 of its weight has passed, as
of every signal at its horizons (``emphatic.scores.returns``), and otherwise until .999 has. A gap ends it without a
return; so does, where the return is no weighted mean, a value that is missing. Of a question with a policy the returns
are known of rows after which the log took that policy's actions; of a policy that may take several actions none are.

Baselines are ``persistence`` (the present cumulant, or where the return is no weighted mean the last return that is
known), ``past_mean`` and ``climatology`` (the mean of the returns so far, in all and at this hour), and ``mean``
(that of the first half). An interval reaches from quantile to quantile of the last 1,000 errors, each divided by the
usual size of errors at its hour, and is corrected by how often it missed.

On the report each question has a card, and so has each of one line: its answer in a sentence, its scores, its plots.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emphatic import rules
from emphatic.answers.asked import Asked
from emphatic.answers.language import describe_answer, describe_prediction, describe_score
from emphatic.questions.durations import format_duration
from emphatic.questions.evaluator import Evaluator
from emphatic.questions.gvf import GVF, Observations, action_name, sure_action
from emphatic.report.page import NONE, Column, Html, Key, Plots, amount, share, table
from emphatic.report.plots import Axis, Line, Marks, Panel, Plot
from emphatic.scores.measures import ErrorBlocks, judge_errors
from emphatic.tables import Hold

__all__ = ["ASKED_KEYS", "MARKS", "Card", "FollowedGVFs", "find_marks", "make_cards", "make_gvf_cards"]

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
    from emphatic.asking import return_kernels

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
        given: The places of questions whose intervals are made elsewhere, and given with each call.

    >>> t = np.arange(600)
    >>> bright = GVF("x > 0", gamma=0.8, name="bright")
    >>> followed = FollowedGVFs([bright], ["x"], [], None, 0.8, rows=600)
    >>> x = np.sin(t / 9)[:, None]
    >>> derived = followed(np.full((600, 1), 0.5), x, np.zeros(600, bool), None, {})
    >>> derived["usual"].shape, round(followed.scores()[0]["coverage"], 1)
    ((600, 1), 0.8)
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
        given: Sequence[int] = (),
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
            _Followed(question, gamma, coverage, 0 if rows is None else rows // 2, q not in given)
            for q, (question, gamma) in enumerate(zip(self.questions, self._evaluator.gamma, strict=True))
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
        low: Array | None = None,
        high: Array | None = None,
    ) -> dict[str, Array]:
        """``low``, ``high`` and ``usual`` (B, Q) at the next B rows, after learning from the returns that they close.

        Args:
            predictions: The predictions (B, Q).
            readings: The readings (B, S) of all signals, NaN where missing.
            gap: The rows (B,) that do not follow the row before.
            time: The times (B,) of the rows; None without times.
            labels: The words of each category, (B,) each.
            low: The lower ends (B, Q) of intervals that are made elsewhere; the other columns are not looked at.
            high: The upper ends.
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
        out = {kind: np.full((B, Q), np.nan) for kind in ("low", "high", "usual")}
        nothing = np.full(B, np.nan)
        for q, followed in enumerate(self._followed):
            ends = [nothing if array is None else array[:, q] for array in (low, high)]
            columns = (
                np.where(known[:, q], R[:, q], np.nan),
                gamma[:, q],
                taken[:, q],
                follows,
                now[:, q],
                hour,
                predictions[:, q],
                *ends,
            )
            answers = followed(columns, when)
            for i, kind in enumerate(out):
                out[kind][:, q] = answers[:, i]
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

    def __init__(self, question: GVF, gamma: float, coverage: float, half: int, makes_intervals: bool) -> None:
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
        self._fixed[k.COVERAGE], self._fixed[k.HALF], self._fixed[k.INTERVALS] = coverage, half, makes_intervals
        carried = np.zeros(k.QUESTION)
        carried[[k.LEAST, k.MOST]] = np.inf, -np.inf
        self._arrays = {
            "question": carried,
            "rows": np.zeros((k.OPEN_ROWS, k.FIELDS)),
            "climate": np.zeros((25, 3)),
            "ratios": np.zeros(k.REMEMBERED),
            "sums": np.zeros((2, k.SUMS)),
        }
        self._blocks = ErrorBlocks(["answer", "label", "label_square", *_BASELINES], 1)
        self.recent: Array = np.empty((0, len(_SHOWN)))

    def __call__(self, columns: Sequence[NDArray[Any]], when: Array) -> Array:
        """Low, high and usual (B, 3) at the next rows, by the columns of the kernel; ``when`` are their times."""
        k, B = _kernels(), len(when)
        R, gamma, taken, follows, now, hour, answer, low, high = columns
        if self.reason:
            R = np.full(B, np.nan)
        first = int(self._arrays["question"][k.ROW])
        out, closed = np.empty((B, 3)), np.empty((B + k.OPEN_ROWS, k.FIELDS))
        persistence = now if self._is_mean else np.full(B, np.nan)
        inputs = (R * self._scale, gamma, taken, follows, persistence, hour, answer, low, high)
        count = k.follow_returns(
            self._fixed, *self._arrays.values(), *(np.ascontiguousarray(column) for column in inputs), out, closed
        )
        known = closed[:count]
        scored = known[known[:, k.AT_ROW] >= self._half]
        y = scored[:, k.RETURN]
        squares = {"answer": (scored[:, k.ANSWER] - y) ** 2, "label": y, "label_square": y**2}
        simple = zip(_BASELINES, (k.NOW, k.PAST_MEAN, k.USUAL), strict=True)
        squares |= {name: (scored[:, place] - y) ** 2 for name, place in simple}
        self._blocks.add_rows(scored[:, k.AT_ROW].astype(np.int64) - self._half, squares)
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
        score: dict[str, Any] = {"question": self.question.name, "kind": "gvf", "definition": config}
        score |= {"known": int(carried[k.CLOSED]), "scored": int(n), "dropped_returns": int(carried[k.DROPPED])}
        score |= {name: _finite(last[name]) for name in ("answer", "low", "high", "usual", "now")}
        mean = first[k.TOTAL] / first[k.COUNT] if first[k.COUNT] else math.nan
        spread = second[k.SQUARES] - second[k.TOTAL] ** 2 / n if n else math.nan
        squares = {name: second[k.BASELINES + b] for b, name in enumerate(_BASELINES)}
        absolute = {name: second[k.BASELINES_ABSOLUTE + b] for b, name in enumerate(_BASELINES)}
        squares["mean"] = second[k.SQUARES] - 2.0 * mean * second[k.TOTAL] + n * mean * mean
        absolute["mean"] = math.nan
        score |= self._verdict(mean)
        score |= {
            "mae": _mean(second[k.ABSOLUTE], n),
            "rmse": _root(second[k.SQUARE], n),
            "variance_explained": _skill(second[k.SQUARE], spread),
            "skill": {name: _skill(second[k.SQUARE], square) for name, square in squares.items()},
            "baselines": {
                name: {
                    "mae": _mean(absolute[name], n),
                    "rmse": _root(square, n),
                    "variance_explained": _skill(square, spread),
                }
                for name, square in squares.items()
            },
        }
        hours = second[k.HOURS :].reshape(24, 2)
        covered = second[k.COVERED_ROWS]
        score |= {
            "coverage": _mean(second[k.COVERED], covered),
            "coverage_by_hour": [_mean(inside, rows) for rows, inside in hours] if hours[1:].any() else [],
            "interval_score": _mean(second[k.INTERVAL_SCORE], covered),
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
        if not math.isfinite(mean) and (early := self._blocks.sums()[:at, 0].sum()) > 0.0:
            mean = float(self._blocks.sums("label")[:at, 0].sum() / early)
        sums = {name: self._blocks.sums(name)[at:, 0] for name in self._blocks.columns}
        counts, errors, labels, squares = self._blocks.sums()[at:, 0], *(sums.pop(n) for n in self._blocks.columns[:3])
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


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _mean(total: float, count: float) -> float | None:
    return _finite(total / count) if count > 0 else None


def _root(total: float, count: float) -> float | None:
    return _finite(math.sqrt(max(total, 0.0) / count)) if count > 0 else None


def _skill(errors: float, of_baseline: float) -> float | None:
    """1 − errors / of_baseline."""
    return _finite(1.0 - errors / of_baseline) if of_baseline > 0 else None


# ---------------------------------------------------------------------- cards of the report


#: Rows that a plot of a question of one line shows.
_PLOTTED = 400
#: Units of times until, the longest first.
_UNITS = ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"))
#: What the lines of the plots mean.
ASKED_KEYS = (
    Key("hue", "answer, with its interval"),
    Key("truth", "what came, or when the condition held"),
    Key("baseline", "usual at this time"),
)


class Card(NamedTuple):
    """What the report shows of a question."""

    text: str
    answer: str
    score: str
    table: Html
    plot: Html
    reliability: Html | None


def make_cards(asked: Asked, plots: Plots) -> list[Card]:
    """A card for each question that was asked, in their order; what is asked by default has its own place.

    Args:
        asked: The questions after the last row.
        plots: The plots of the page.
    """
    cards = []
    questions = asked.questions
    scores = asked.summary([question.text for question in questions])
    for q, (question, score) in enumerate(zip(questions, scores, strict=True)):
        rows = {name: values[-_PLOTTED:] for name, values in asked.recent(question.text).items()}
        dated = asked.timing.dated
        last = float(rows["time"][-1]) if dated and len(rows["time"]) else None
        span = question.span(asked.timing.step)
        panel = _event_panel(rows, dated) if question.is_event else _number_panel(question.kind, rows, span, dated)
        shown = "probability and events" if question.is_event else "forecasts with intervals, and actual values"
        plot = plots(Plot({"": [panel]}, f"asked {q}"), f"{question.text}: {shown}")
        reliability = _reliability(score, plots) if question.is_event and score["scored"] else None
        cards.append(
            Card(question.text, describe_answer(score, last), describe_score(score), _scores(score), plot, reliability)
        )
    return cards


def make_gvf_cards(returns: FollowedGVFs, plots: Plots, dated: bool) -> list[Card]:
    """A card for each question of the user's own, in their order.

    Args:
        returns: The questions and their returns after the last row.
        plots: The plots of the page.
        dated: Whether times are seconds since 1970.
    """
    cards = []
    for q, score in enumerate(returns.scores()):
        rows = returns.recent(q)
        has_time = bool(len(rows["time"])) and bool(np.isfinite(rows["time"]).all())
        x = _x(rows, dated) if has_time else rows["row"]
        lines = [
            Line(x, rows["usual"], "usual", "baseline", dash="dash"),
            Line(x, rows["label"], "actual return", "truth"),
            Line(x, rows["answer"], "prediction", "hue", low=rows["low"], high=rows["high"]),
        ]
        low, high = returns.possible[:, q]
        outside = ((rows["answer"] < low) | (rows["answer"] > high)).any()
        marked = f"; values below {low:.4g} or above {high:.4g} are impossible" if outside else ""
        panel = Panel(f"Prediction and actual return, at the row that predicts{marked}", lines)
        plot = plots(Plot({"": [panel]}, f"own {q}"), f"{score['question']}: predictions and actual returns")
        table_of = _scores(score)
        definition = ", ".join(f"{key} = {value}" for key, value in score["definition"].items())
        answer = f"{describe_prediction(score)} ({definition})"
        cards.append(Card(score["question"], answer, describe_score(score), table_of, plot, None))
    return cards


def _scores(score: Mapping[str, Any]) -> Html:
    """The score of the answers, and those of the baselines."""
    event = "brier" in score
    measures = ("brier",) if event else ("rmse", "mae", "variance_explained")
    names = {"brier": "Brier score", "mae": "MAE", "rmse": "RMSE"}
    names["variance_explained"] = "variance explained"
    rows: list[dict[str, Any]] = [{"name": "answer", **{name: score[name] for name in measures}}]
    for name, values in score["baselines"].items():
        rows.append({"name": name.replace("_", " "), "skill": score["skill"][name]} | values)
    lasting = score["kind"] == "until" and isinstance(score["horizon"], str)
    shows = {"mae": _lasting} if lasting else {}
    columns = [Column("", "name"), *(Column(names[name], name, shows.get(name, amount)) for name in measures)]
    columns.append(Column("skill of the answer over it", "skill", share))
    return table(columns, rows)


def _lasting(value: float | None) -> str:
    return NONE if value is None else format_duration(value)


def _x(rows: Mapping[str, Array], dated: bool, shift: float = 0.0) -> NDArray[Any]:
    if dated:
        return ((rows["time"] + shift) * 1000.0).astype("int64").astype("datetime64[ms]")
    return rows["time"] + shift


def _event_panel(rows: Mapping[str, Array], dated: bool) -> Panel:
    x = _x(rows, dated)
    holds = rows["now"] > 0.0
    lines = [
        Line(x, rows["usual"], "usual", "baseline", dash="dash"),
        Line(x, rows["answer"], "probability", "hue", low=rows["low"], high=rows["high"]),
    ]
    marks = [Marks(x[holds], np.ones(int(holds.sum())), "the condition holds", symbol="dot", size=0.6)]
    return Panel("Probability, and rows in which the condition holds", lines, (0.0, 1.05), marks)


def _number_panel(kind: str, rows: Mapping[str, Array], span: float, dated: bool) -> Panel:
    """Answers where they are about, so that the last ones lie beyond the last row; a time until, at its own row."""
    x = _x(rows, dated, 0.0 if kind == "until" else span)
    unit, title = 1.0, "Forecast, at the time that it is about"
    if kind == "until":
        unit, word = next((u for u in _UNITS if dated and span >= 2 * u[0]), (1.0, "seconds" if dated else "rows"))
        title = f"Time until, in {word}, at the row that asks"
    usual, label, answer, low, high = (rows[name] / unit for name in ("usual", "label", "answer", "low", "high"))
    lines = [
        Line(x, usual, "usual", "baseline", dash="dash"),
        Line(x, label, "what came", "truth"),
        Line(x, answer, "answer", "hue", low=low, high=high),
    ]
    return Panel(title, lines)


def _reliability(score: Mapping[str, Any], plots: Plots) -> Html:
    """How often it happened where a probability was given, beside the diagonal."""
    bins = [entry for entry in score["reliability"] if entry["count"]]
    predicted = np.array([entry["predicted"] for entry in bins])
    observed = np.array([entry["observed"] for entry in bins])
    notes = [f"{entry['count']:,} windows" for entry in bins]
    ends = np.array([0.0, 1.0])
    lines = [Line(ends, ends, "perfectly calibrated", "baseline", dash="dash")]
    lines.append(Line(predicted, observed, "observed", "hue", notes=notes))
    panel = Panel("Reliability", lines, (0.0, 1.0))
    axis = Axis("predicted probability", range=(0.0, 1.0))
    plot = Plot({"": [panel]}, "reliability", x=axis, y=Axis("how often it happened"))
    return plots(plot, f"{score['text']}: how often it happened, by the predicted probability")
