"""Scores of answers, from sums over blocks of rows: against labels, and beside the simple answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from emphatic.answers.records import SIMPLE, Memory
from emphatic.asking.language import Question
from emphatic.scores.measures import finite, judge_errors

__all__ = ["scores_of"]

#: The names of the simple answers, before those of periods.
_NAMES = ("persistence", "past_mean", "moving_average", "drift")


def baseline_names(periods: Sequence[str]) -> list[str | None]:
    """The names of the simple answers, None for one that there is not.

    Args:
        periods: What repeats one period ago is called, of each period there is.
    """
    names: list[str | None] = [*_NAMES]
    for name in periods:
        names += [name, name.replace("last", "usual")]
    return [*names, *[None] * (SIMPLE - len(names))]


def scores_of(
    question: Question, target: int, scale: float, memory: Memory, row: int, periods: Sequence[str]
) -> dict[str, Any]:
    """The scores of a question over the second half of the rows.

    Args:
        question: The question.
        target: Its target.
        scale: What its answers are multiplied by.
        memory: What was learned.
        row: The rows so far.
        periods: The names of the periods.
    """
    stream, group = memory.stream[0], memory.groups[np.searchsorted(memory.groups["target"], target, "right") - 1]
    blocks, block, half = memory.scores[target], int(stream["block"]), int(stream["half"])
    # What a stream has scored before the middle is to it what the first half is to a log.
    middle = 1 + max(0, row // 2 - half) // block if half == 0 else 1
    early, scored = blocks[:middle], blocks[middle:]
    count, stride = scored["rows"].sum(), int(group["stride"])
    names = baseline_names(periods)
    baselines = {name: scored["baseline_square"][:, a] for a, name in enumerate(names) if name is not None}
    if early["rows"].sum():
        mean = early["label"].sum() / early["rows"].sum()
        squares = scored["label_square"] - 2.0 * mean * scored["label"] + scored["rows"] * mean**2
        baselines["rate" if question.is_event else "mean"] = np.maximum(squares, 0.0)
    verdict = judge_errors(scored["rows"], scored["square"], baselines, group["h"] / stride, block / stride)
    square, absolute = scored["square"].sum(), scored["absolute"].sum()
    spread = scored["label_square"].sum() - scored["label"].sum() ** 2 / max(count, 1.0)
    inside = {
        "coverage": _mean(scored["inside"].sum(), scored["intervals"].sum()),
        "interval_score": _mean(scale * scored["interval_score"].sum(), scored["intervals"].sum()),
    }
    return {
        "text": question.text,
        "kind": question.kind,
        "horizon": question.length,
        "known": int(blocks["rows"].sum()) * stride,
        "scored": int(count) * stride,
        "dropped_windows": int(memory.targets["dropped"][target]) * stride,
        **verdict._asdict(),
        "mae": _mean(scale * absolute, count),
        "rmse": _mean(scale**2 * square, count, root=True),
        "variance_explained": finite(1.0 - square / spread) if spread > 0.0 else None,
        "baselines": {
            name: {
                "rmse": _mean(scale**2 * squares.sum(), count, root=True),
                "variance_explained": finite(1.0 - squares.sum() / spread) if spread > 0.0 else None,
            }
            for name, squares in baselines.items()
        },
        **({"brier": _mean(square, count)} if question.is_event else inside),
    }


def _mean(total: float, count: float, root: bool = False) -> float | None:
    mean = float(total / count) if count > 0.0 else math.nan
    return finite(math.sqrt(max(mean, 0.0)) if root else mean)
