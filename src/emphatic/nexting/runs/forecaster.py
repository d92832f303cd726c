"""A forecaster: all that is learned from a stream row by row, and all that is said at each row.

A horde learns the weighted mean of each signal at each horizon by TD, and the general value functions of the user.
From it follow the answers to questions (``nexting.answers``), the predictions of the user's own questions with their
intervals (``nexting.runs.gvfs``), and alarms (``nexting.runs.alarms``). A run on a table, a pipe and a service advance
the same forecaster, and save all of it: how rows are cut into blocks changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emphatic.hordes.horde import Horde
from emphatic.nexting.answers.asked import ENDS, KINDS, Asked
from emphatic.nexting.answers.language import parse
from emphatic.nexting.answers.targets import default_questions
from emphatic.nexting.answers.timing import Timing
from emphatic.nexting.runs.alarms import OF_A_SIGNAL, Alarms, write_reasons
from emphatic.nexting.runs.gvfs import FollowedGVFs, find_marks
from emphatic.nexting.runs.settings import Settings
from emphatic.nexting.tables import Block

__all__ = ["Forecaster", "Said", "make_asked"]

Array = NDArray[np.float64]


class Said(NamedTuple):
    """What is said at B rows.

    Attributes:
        asked: The answer, low, high and usual answer of each question (B, Q, 4).
        own: The same of each question of the user's own (B, G, 4).
        mark: The number of each of their marks (B, G), as of the last of these rows.
        anomaly: How surprising the reading of each predicted signal is (B, S).
        why: The number of the reason of its alarm (B, S), 0 where there is none.
    """

    asked: Array
    own: Array
    mark: NDArray[np.int8]
    anomaly: Array
    why: NDArray[np.int8]

    def row(self, t: int | None) -> Said:
        """What is said at one of the rows, without the first axis; with None, that of one row with a first axis."""
        return Said(self.asked[t], self.own[t], self.mark[t], self.anomaly[t], self.why[t])


def make_asked(
    settings: Settings, signals: Sequence[str], timing: Timing, columns: Collection[str], rows: int | None = None
) -> Asked:
    """The questions of the settings, and by default the value and the mean of every signal at every horizon.

    Args:
        settings: The settings, with their defaults.
        signals: All signals of the stream.
        timing: What is known of its times.
        columns: The other columns of the predictions: a question that would have the same column is not asked by
            default, and refused if it is asked.
        rows: The number of rows, where it is known.
    """
    predict, horizons = settings.predict or (), settings.horizons or ()
    default = default_questions(predict, horizons, timing.step, bool(settings.weighted))
    default = [text for text in default if not {text, *(f"{text}.{end}" for end in ENDS)}.intersection(columns)]
    asked = Asked(settings.ask, signals, timing, settings.coverage, rows, default, settings.learned())
    _check_names(asked.names, columns)
    return asked


def _check_names(asked: Collection[str], columns: Collection[str]) -> None:
    """ValueError if a column of what is asked has the name of another one."""
    if twice := set(asked).intersection(columns):
        raise ValueError(f"{min(twice)!r} is asked, and a question or column has that name already.")


class Forecaster:
    """All that is learned from a stream, and its state from row to row.

    Args:
        horde: The horde that ``make_horde`` makes: first every signal at every horizon, then the user's own questions.
        settings: What to predict, with all defaults.
        timing: What is known of the times of the stream.
        rows: The number of rows, where it is known: the second half is scored. Otherwise all rows are.
        asked: The questions as they were saved with the horde (``Asked.load``); by default those of the settings.
    """

    def __init__(
        self,
        horde: Horde,
        settings: Settings,
        timing: Timing,
        rows: int | None = None,
        asked: Asked | None = None,
    ) -> None:
        self.horde, self._own = horde, len(horde.questions) - len(settings.questions)
        watched = len(settings.predict or ()) * len(settings.horizons or ())
        places = [horde.signals.index(str(question.cumulant)) for question in horde.questions[:watched]]
        self.alarms = Alarms(places, horde.gamma[:watched], settings.false_alarm_rate)
        # The places of the shortest horizon, and the questions about the means until then, where they can be asked.
        horizons = settings.horizons or (1,)
        shortest = int(np.argmin(horde.gamma[: len(horizons)])) if watched else 0
        pairs = [default_questions([name], [horizons[shortest]], timing.step) for name in settings.predict or ()]
        self._means = {pair[1]: shortest + i * len(horizons) for i, pair in enumerate(pairs) if pair}
        self._texts: Sequence[str] = ()
        #: The signals that are predicted, which have alarms.
        self.signals = tuple(horde.signals[c] for c in self.alarms.places.tolist())
        #: The user's own questions, and their returns.
        self.returns = FollowedGVFs(
            horde.questions[self._own :],
            horde.signals,
            horde.categories,
            horde.step,
            settings.coverage,
            timing.dated,
            rows,
        )
        self._of_signals = [(f"{name}.{kind}", kind, i) for i, name in enumerate(self.signals) for kind in OF_A_SIGNAL]
        of_signals = {name for name, _, _ in self._of_signals}
        own = horde.names[self._own :]
        if twice := of_signals.intersection(own):
            raise ValueError(f"question {min(twice)!r}: this is the name of a column of alarms. Give it another name.")
        # (a question that has one of these names keeps it)
        taken = {*own, *of_signals}
        self._of_own = [(name, 0, g) for g, name in enumerate(own)]
        ends = [(f"{name}.{end}", k, g) for g, name in enumerate(own) for k, end in enumerate(ENDS, 1)]
        self._of_own += [entry for entry in ends if entry[0] not in taken]
        columns = [name for name, _, _ in self._of_own + self._of_signals]
        self._columns = frozenset(columns)
        self.asked = make_asked(settings, horde.signals, timing, columns, rows) if asked is None else asked

    def __call__(self, block: Block, learn: bool = True) -> Said:
        """Learn from the rows of a block that a guard has marked; what is said at each of them.

        ValueError if the horde refuses the block, which then changes nothing.
        """
        predictions = self.horde.advance(block, learn=learn)
        plain, own = predictions[:, : self._own], predictions[:, self._own :]
        asked = self.asked(block, plain)
        anomaly, why = self.alarms(self._expect(plain, asked), block.values, block.gap)
        if not own.shape[1]:
            return Said(asked, np.empty((len(block), 0, len(KINDS))), np.empty((len(block), 0), np.int8), anomaly, why)
        sound = block.values if block.guarded is None else np.where(np.isnan(block.guarded), np.nan, block.values)
        answers = self.returns(own, sound, block.gap, block.time, block.labels)
        has_policy = [question.policy is not None for question in self.returns.questions]
        # (a cumulant without a policy may go on to rise)
        possible = np.where(has_policy, self.horde.possible[:, self._own :], [[-np.inf], [np.inf]])
        mark = find_marks(own, possible, self.horde.support[self._own :])
        self.returns.note(possible, mark)
        return Said(asked, answers, mark, anomaly, why)

    def _expect(self, plain: Array, asked: Array) -> Array:
        """What alarms compare readings with: TD's predictions; at the shortest horizon the mean until then, if asked.

        It is closer to what follows.
        """
        if self._texts is not self.asked.texts:
            self._texts = self.asked.texts
            pairs = [(self._means[text], q) for q, text in enumerate(self._texts) if text in self._means]
            self._nearest, self._answers = np.array(pairs, np.int64).reshape(-1, 2).T
        expected = plain[:, : len(self.alarms.gamma)].copy()
        expected[:, self._nearest] = asked[:, self._answers, 0]
        return expected

    def ask(self, text: str) -> None:
        """Ask one more question, which is learned from now on; ValueError if it cannot be asked.

        Args:
            text: The question.
        """
        name = parse(text).text
        _check_names([name, *(f"{name}.{end}" for end in ENDS)], self._columns)
        self.asked.add(name)

    def columns(self, said: Said) -> dict[str, Any]:
        """The columns of ``predictions.parquet``, by name."""
        replies = said.asked.reshape(len(said.asked), -1)
        columns: dict[str, Any] = dict(zip(self.asked.names, np.ascontiguousarray(replies.T), strict=True))
        columns |= {name: np.ascontiguousarray(said.own[:, g, kind]) for name, kind, g in self._of_own}
        for name, kind, i in self._of_signals:
            why = np.ascontiguousarray(said.why[:, i])
            of_kind = {"anomaly": np.ascontiguousarray(said.anomaly[:, i]), "alarm": why > 0}
            columns[name] = write_reasons(why) if kind == "why" else of_kind[kind]
        return columns

    def summary(self) -> list[dict[str, Any]]:
        """The scores of all questions, and of the user's own."""
        return [*self.asked.summary(), *self.returns.scores()]

    def state(self) -> dict[str, Any]:
        """What is saved with the horde."""
        alarms = {f"alarms.{name}": array for name, array in self.alarms.arrays().items()}
        return {**alarms, **self.returns.state(), **self.asked.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what was saved with the horde, with its questions as ``asked``; ValueError if it does not fit.

        Args:
            state: As ``state`` returns it, among other entries.
        """
        arrays = {name.removeprefix("alarms."): state[name] for name in state if name.startswith("alarms.")}
        self.alarms.restore(arrays)
        self.returns.restore(state)
