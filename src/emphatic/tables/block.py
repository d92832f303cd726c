"""Blocks: consecutive rows of a stream, with everything that is true of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emphatic.tables.clock import Clock

if TYPE_CHECKING:
    from emphatic.tables.notation import ParsedRow

__all__ = ["Block"]

_NO_COUNTS = np.zeros(0, np.int64)
_NO_FLAGS = np.zeros(0, np.bool_)


@dataclass(eq=False, slots=True, init=False)  # (an initialiser by hand is quicker, where a block has one row)
class Block:
    """Consecutive rows of a stream, the first of them row number ``row``.

    A source decides once which rows do not follow the row before and says so in ``gap``. Whoever learns from a block,
    scores it or writes it reads ``gap`` and never looks at times itself.

    Args:
        row: The number of the first row in the stream, counted from 0.
        values: The signals (B, C), NaN where a value is missing.
        time: The time of each row (B,), in seconds since the epoch or in the time column's own unit, NaN where it is
            missing; None without a time column.
        labels: Each text column by name, None where a label is missing.
        unreadable: For each signal, the number of values that could not be parsed; they are missing in ``values``.
        infinite: For each signal, the number of infinite values; they are missing in ``values``.
        numbers: The number of each row in its file (B,), counted from 0 and including rows that were dropped.
        after_drop: The rows (B,) before which a row of the file was dropped.
        gap: The rows (B,) that do not follow the row before: time jumped, a row was dropped, or a sequence was cut. An
            empty array means that every row follows.
        actions: The action chosen in each row (B,), None where it is unknown; None without actions.
        mu: The probability (or density) with which the behaviour chose each of ``actions``, (B,), or None.
        terminated: The rows (B,) in which an episode terminated; None for rows of a log, which has no episodes. Where
            it is not None the rows are those of an agent, and a row in ``gap`` is the first of an episode.
        truncated: Whether the episode ends with the last row without having terminated.
        action_before: The action that led to the first row; the row before came without it.
        mu_before: The probability (or density) with which ``action_before`` was chosen, as a list of one, or None.
        originals: The observations (B,) of which an agent's rows were made, for functions that are given them.
    """

    row: int
    values: NDArray[np.float64]
    time: NDArray[np.float64] | None
    labels: dict[str, Any]
    unreadable: NDArray[np.int64] = field(repr=False)
    infinite: NDArray[np.int64] = field(repr=False)
    numbers: NDArray[np.int64] | None = field(repr=False)
    after_drop: NDArray[np.bool_] | None = field(repr=False)
    gap: NDArray[np.bool_]
    actions: Sequence[Any] | None = field(repr=False)
    mu: Sequence[float | None] | None = field(repr=False)
    terminated: NDArray[np.bool_] | None = field(repr=False)
    truncated: bool = field(repr=False)
    action_before: Any = field(repr=False)
    mu_before: Sequence[float] | None = field(repr=False)
    originals: Sequence[Any] | None = field(repr=False)

    def __init__(
        self,
        row: int,
        values: NDArray[np.float64],
        time: NDArray[Any] | None,
        labels: dict[str, Any],
        unreadable: NDArray[np.int64] = _NO_COUNTS,
        infinite: NDArray[np.int64] = _NO_COUNTS,
        numbers: NDArray[np.int64] | None = None,
        after_drop: NDArray[np.bool_] | None = None,
        gap: NDArray[np.bool_] = _NO_FLAGS,
        actions: Sequence[Any] | None = None,
        mu: Sequence[float | None] | None = None,
        terminated: NDArray[np.bool_] | None = None,
        truncated: bool = False,
        action_before: Any = None,
        mu_before: Sequence[float] | None = None,
        originals: Sequence[Any] | None = None,
    ) -> None:
        self.row, self.values, self.time, self.labels = row, values, time, labels
        self.unreadable, self.infinite, self.numbers, self.after_drop = unreadable, infinite, numbers, after_drop
        self.gap, self.actions, self.mu, self.terminated, self.truncated = gap, actions, mu, terminated, truncated
        self.action_before, self.mu_before, self.originals = action_before, mu_before, originals

    def __len__(self) -> int:
        return len(self.values)

    @classmethod
    def from_rows(
        cls,
        rows: Sequence[ParsedRow],
        names: Sequence[str],
        categories: Sequence[str] = (),
        clock: Clock | None = None,
        row: int = 0,
    ) -> Block:
        """The block of the next readings of a live stream.

        Args:
            rows: The readings, as ``RowParser.parse`` gives them.
            names: The signals, in the order of ``ParsedRow.values``.
            categories: The text columns.
            clock: Finds the gaps, and is advanced by these rows; None for a stream without times. Pass ``clock.copy()``
                if the block may be rejected.
            row: The number of the first row in the stream.
        """
        count, C = len(rows), len(names)
        unreadable, infinite = np.zeros(C, np.int64), np.zeros(C, np.int64)
        if count == 1:  # a reading at a time: a few microseconds
            (reading,) = rows
            values = np.array([reading.values])
            labels = {name: np.array([reading.labels[name]], object) for name in categories}
            troubled: Sequence[ParsedRow] = rows if reading.problems else ()
        else:
            values = np.array([reading.values for reading in rows]).reshape(count, C)
            labels = {name: np.array([reading.labels[name] for reading in rows], object) for name in categories}
            troubled = [reading for reading in rows if reading.problems]
        for reading in troubled:
            for j, name in enumerate(names):
                unreadable[j] += f"{name!r} is not a number" in reading.problems
                infinite[j] += f"{name!r} is not finite" in reading.problems
        if clock is None:
            return cls(row, values, None, labels, unreadable, infinite, gap=np.zeros(count, np.bool_))
        time = np.array([reading.time for reading in rows])
        gap = np.array([clock.find_gap(rows[0].time)]) if count == 1 else clock.find_gaps(time)
        return cls(row, values, time, labels, unreadable, infinite, gap=gap)

    def agent_row(self, t: int) -> Block:
        """Row t of an agent's block as a block of its own, with the action that led to it."""
        row, labels = slice(t, t + 1), {name: column[t : t + 1] for name, column in self.labels.items()}
        assert self.terminated is not None
        block = Block(self.row + t, self.values[row], None if self.time is None else self.time[row], labels)
        block.gap, block.terminated = self.gap[row], self.terminated[row]
        block.truncated = self.truncated and t == len(self) - 1
        block.originals = None if self.originals is None else self.originals[row]
        if t == 0:
            block.action_before, block.mu_before = self.action_before, self.mu_before
        else:
            block.action_before = None if self.actions is None else self.actions[t - 1]
            mu = None if self.mu is None else self.mu[t - 1]
            block.mu_before = None if mu is None else [mu]
        return block

    def find_gaps(self, clock: Clock | None) -> NDArray[np.bool_]:
        """The rows that do not follow the row before by this clock, or because a row between the two was dropped."""
        after_drop = np.zeros(len(self), np.bool_) if self.after_drop is None else self.after_drop
        return after_drop if clock is None or self.time is None else clock.find_gaps(self.time, after_drop)
