"""Scores of answers, from sums over blocks of rows: against labels, and beside the simple answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from emphatic.answers.language import Question
from emphatic.answers.records import SIMPLE, Memory
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
    names = {a: name for a, name in enumerate(baseline_names(periods)) if name is not None}
    squares = {name: scored["baseline_square"][:, a] for a, name in names.items()}
    sizes = {name: scored["baseline_absolute"][:, a].sum() for a, name in names.items()}
    if early["rows"].sum():
        mean = early["label"].sum() / early["rows"].sum()
        of_mean = scored["label_square"] - 2.0 * mean * scored["label"] + scored["rows"] * mean**2
        squares["rate" if question.is_event else "mean"] = np.maximum(of_mean, 0.0)
    verdict = judge_errors(scored["rows"], scored["square"], squares, group["h"] / stride, block / stride)
    square = float(scored["square"].sum())
    spread = float(scored["label_square"].sum() - scored["label"].sum() ** 2 / max(count, 1.0))
    score: dict[str, Any] = {
        "text": question.text,
        "kind": question.kind,
        "horizon": question.length,
        "known": int(blocks["rows"].sum()) * stride,
        "scored": int(count) * stride,
        "dropped_windows": int(memory.targets["dropped"][target]) * stride,
        **verdict._asdict(),
        "mae": _mean(scale * scored["absolute"].sum(), count),
        "rmse": _mean(scale**2 * square, count, root=True),
        "variance_explained": _share(square, spread),
        "skill": {name: _share(square, float(of_one.sum())) for name, of_one in squares.items()},
        "baselines": {
            name: {
                "mae": _mean(scale * sizes[name], count) if name in sizes else None,
                "rmse": _mean(scale**2 * of_one.sum(), count, root=True),
                "variance_explained": _share(float(of_one.sum()), spread),
            }
            for name, of_one in squares.items()
        },
    }
    if question.is_event:
        return score | {"brier": _mean(square, count)}
    intervals = scored["intervals"].sum()
    return score | {
        "coverage": _mean(scored["inside"].sum(), intervals),
        "interval_score": _mean(scale * scored["interval_score"].sum(), intervals),
    }


def _mean(total: float, count: float, root: bool = False) -> float | None:
    """The mean, or its root; None where nothing was counted."""
    mean = float(total / count) if count > 0.0 else math.nan
    return finite(math.sqrt(max(mean, 0.0)) if root else mean)


def _share(errors: float, of_all: float) -> float | None:
    """1 − errors / of_all; None where there is nothing to explain."""
    return finite(1.0 - errors / of_all) if of_all > 0.0 else None
