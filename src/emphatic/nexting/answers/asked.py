"""All questions about a stream: those that are asked by default, and those of a user, which come and go."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.nexting.answers.answers import Answers
from emphatic.nexting.answers.language import ENOUGH, Question, parse, parse_all
from emphatic.nexting.answers.timing import Timing
from emphatic.nexting.scores.verdicts import LEVEL, judge_signal
from emphatic.nexting.tables import Block

__all__ = ["KINDS", "Asked"]

Array = NDArray[np.float64]
#: The columns of a question besides its answer, and all four.
ENDS = ("low", "high", "usual")
KINDS = ("answer", *ENDS)


class Asked:
    """The questions about one stream, and their state from row to row.

    Questions that are there from the start are answered together. One that is asked later begins with the next row, by
    itself.

    Args:
        questions: The questions of a user, as text.
        signals: The signals of the stream.
        timing: What is known of the times of the rows.
        coverage: The share of labels that are to lie within their bands.
        rows: The number of rows, where it is known: the second half is scored. Otherwise all rows are.
        default: The questions that are asked by default.
        learned: The signals and horizons of which TD learns weighted means: the first columns of ``td``.

    >>> x = np.sin(np.arange(600) / 9.0)[:, None]
    >>> asked = Asked(["P(x > 0.5 within 5 rows)"], ["x"], Timing(None), rows=600, default=["x at +3"])
    >>> asked(Block(0, x, None, {})).shape, asked.texts
    ((600, 2, 4), ['x at +3', 'P(x > 0.5 within 5 rows)'])
    >>> [score["best_baseline"] for score in asked.summary()]
    ['last_period', 'drift']
    """

    def __init__(
        self,
        questions: Sequence[str],
        signals: Sequence[str],
        timing: Timing,
        coverage: float = 0.8,
        rows: int | None = None,
        default: Sequence[str] = (),
        learned: Sequence[tuple[str, float | str]] = (),
    ) -> None:
        self.signals, self.timing, self.default = tuple(signals), timing, tuple(default)
        self._learned = tuple(learned)
        self._columns: dict[tuple[str, int], int] = {}
        for column, (signal, horizon) in enumerate(learned):
            self._columns.setdefault((signal, timing.window(horizon)), column)
        self._coverage, self._rows = coverage, rows
        self._asked = [question.text for question in parse_all(questions)]
        self._groups = [self._new(list(dict.fromkeys([*default, *self._asked])))]
        self._arrange()

    def _new(self, texts: Sequence[str]) -> Answers:
        return Answers(self.signals, texts, self.timing, self._coverage, self._rows)

    @property
    def questions(self) -> list[Question]:
        """The questions of the user."""
        return [parse(text) for text in self._asked]

    @property
    def names(self) -> list[str]:
        """The columns of the predictions."""
        return [name for text in self.texts for name in (text, *(f"{text}.{end}" for end in ENDS))]

    def __call__(self, block: Block, td: Array | None = None) -> Array:
        """Answer, low, high and usual at each row of a block, (B, Q, 4), of ``texts``; NaN where there is no band.

        Args:
            block: The next rows, with what a guard made of them.
            td: The weighted means that TD predicts there, (B, L).
        """
        nothing = np.full((len(block), 1), np.nan)
        learned = nothing if td is None else np.concatenate([td, nothing], axis=1)
        pairs = zip(self._groups, self._learned_by, strict=True)
        answers = [group(block, learned[:, columns if td is not None else columns * 0]) for group, columns in pairs]
        joined = answers[0] if len(answers) == 1 else np.concatenate(answers, axis=1)
        return joined[:, self._order]

    def _arrange(self) -> None:
        """Find where the answers of each text are, and what TD learns for each ``Answers``, after questions changed."""
        #: The texts of all that is answered: what is asked by default alone, then what the user asks.
        self.texts = [*(text for text in self.default if text not in self._asked), *self._asked]
        places = {text: q for q, text in enumerate(text for group in self._groups for text in group.texts)}
        self._order = np.array([places[text] for text in self.texts], np.int64)
        # (the last column says nothing)
        self._learned_by = [
            np.array([self._columns.get(pair, -1) for pair in group.learners], np.int64) for group in self._groups
        ]

    def _places(self) -> dict[str, tuple[int, int]]:
        """By which ``Answers`` each text is answered, and its place there."""
        return {text: (g, q) for g, group in enumerate(self._groups) for q, text in enumerate(group.texts)}

    # ------------------------------------------------------------------ scores

    def summary(self, texts: Collection[str] | None = None) -> list[dict[str, Any]]:
        """The scores of questions, as ``summary.json`` has them.

        Args:
            texts: The questions; by default all.
        """
        scores = {score["text"]: score for group in self._groups for score in group.summary(texts)}
        for text, score in scores.items():
            score["default"] = text not in self._asked
            if "td" in score and not self._has_learner(parse(text)):
                score["td"] = None
        return [scores[text] for text in self.texts if text in scores]

    def _has_learner(self, question: Question) -> bool:
        """Whether TD learns this weighted mean."""
        rows = self.timing.rows(question.span(self.timing.step))
        return (question.signal or "", rows) in self._columns

    def judge_signals(self, signals: Collection[str] | None = None) -> dict[str, dict[str, Any]]:
        """The verdict on each signal whose values at +h can be judged: ``judge_signal``, and the errors behind it.

        A horizon with fewer than 100 known windows is still being learned and does not count.

        Args:
            signals: The signals; default: all.
        """
        about: dict[str, list[Question]] = {}
        for question in map(parse, self.texts):
            signal = question.value_of
            if signal is not None and (signals is None or signal in signals):
                about.setdefault(signal, []).append(question)
        texts = {question.text for questions in about.values() for question in questions}
        scores = {score["text"]: score for score in self.summary(texts)}
        ready = {
            signal: [scores[question.text] for question in questions if scores[question.text]["known"] >= ENOUGH]
            for signal, questions in about.items()
        }
        levels = {score["text"]: LEVEL / len(of_one) for of_one in ready.values() for score in of_one}
        judged = {text: verdict for group in self._groups for text, verdict in group.judge(levels).items()}
        verdicts: dict[str, dict[str, Any]] = {}
        for signal, of_one in ready.items():
            if of_one:
                by_horizon = {score["horizon"]: score for score in of_one}
                verdict = judge_signal(signal, {h: judged[score["text"]] for h, score in by_horizon.items()})
                score = by_horizon[verdict["horizon"]]
                of_best = score["baselines"].get(verdict["best_baseline"], {})
                verdicts[signal] = verdict | {"rmse": score["rmse"], "baseline_rmse": of_best.get("rmse")}
        return verdicts

    @property
    def periods(self) -> dict[str, list[int]]:
        """The periods in rows that were found in each signal; none where rows have dates."""
        return self._groups[0].periods

    def readings(self, signal: str, rows: int) -> tuple[Array, Array]:
        """The times of the last rows, and the readings of a signal there, NaN where missing."""
        return self._groups[0].readings(signal, rows)

    def recent(self, text: str) -> dict[str, Array]:
        """The last rows of a question, by name: row, time, now, answer, low, high, usual and label."""
        group, place = self._places()[text]
        return self._groups[group].recent(place)

    # ------------------------------------------------------------------ questions come and go

    def add(self, text: str) -> None:
        """Ask one more question, which is learned from now on. ValueError if it is asked already."""
        question = parse_all([*self._asked, text])[-1]
        if all(question.text not in group.texts for group in self._groups):
            self._groups.append(self._new([question.text]))
        self._asked.append(question.text)
        self._arrange()

    def remove(self, text: str) -> None:
        """No longer ask a question. ValueError if it was not asked."""
        if text.strip() not in self._asked:
            raise ValueError(f"{text!r} is not among the questions added: {'; '.join(self._asked) or 'none'}.")
        self._asked.remove(text.strip())
        later = [group for group in self._groups[1:] if group.texts[0] in self._asked]
        self._groups = [self._groups[0], *later]
        self._arrange()

    # ------------------------------------------------------------------ saving

    def state(self) -> dict[str, Any]:
        """What is saved with a model: arrays by name, and what JSON can hold under ``asked``."""
        headers: list[Any] = []
        arrays: dict[str, Any] = {}
        for g, group in enumerate(self._groups):
            state = group.state()
            headers.append(state.pop("answers"))
            arrays |= {f"asked.{g}.{name}": array for name, array in state.items()}
        step, regular, limit, dated = self.timing
        header = {
            "asked": self._asked,
            "default": self.default,
            "learned": self._learned,
            "coverage": self._coverage,
            "timing": [step, regular, limit if math.isfinite(limit) else None, dated],
            "groups": headers,
        }
        return {"asked": header, **arrays}

    @classmethod
    def load(cls, state: Mapping[str, Any], signals: Sequence[str]) -> Asked:
        """The questions that were saved with a model, as they stood.

        Args:
            state: As ``state`` returns it, among other entries. ValueError if it does not fit.
            signals: The signals of the stream.
        """
        try:
            saved = state["asked"]
            step, regular, limit, dated = saved["timing"]
            timing = Timing(step, bool(regular), math.inf if limit is None else float(limit), bool(dated))
            learned = [(signal, horizon) for signal, horizon in saved["learned"]]
            asked = cls(saved["asked"], signals, timing, saved["coverage"], None, saved["default"], learned)
            asked._groups = [asked._new(header["texts"]) for header in saved["groups"]]
            asked._arrange()
            for g, header in enumerate(saved["groups"]):
                prefix = f"asked.{g}."
                arrays = {name.removeprefix(prefix): state[name] for name in state if name.startswith(prefix)}
                asked._groups[g].restore({"answers": header, **arrays})
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise ValueError(f"what was learned for questions does not fit: {error!r}") from None
        return asked
