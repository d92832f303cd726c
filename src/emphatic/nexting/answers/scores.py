"""Scores of answers, from sums over blocks of rows: against labels, and beside the simple answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emphatic.nexting.answers.language import Question
from emphatic.nexting.answers.records import SIMPLE, Memory, Records
from emphatic.nexting.scores.verdicts import LEVEL, Verdict, finite, judge_errors, mean_of, share_of

__all__ = ["baseline_names", "judged", "scores_of"]

Array = NDArray[np.float64]

#: The names of the simple answers, before those of periods.
_NAMES = ("past_mean", "moving_average", "drift")


def baseline_names(question: Question, periods: Sequence[str]) -> list[str | None]:
    """The names of the simple answers to a question, None for one that there is not.

    Args:
        question: The question.
        periods: What repeats one period ago is called, of each period there is.
    """
    names: list[str | None] = ["so_now" if question.is_event else "persistence", *_NAMES]
    for name in periods:
        names += [name, name.replace("last", "usual")]
    return [*names, *[None] * (SIMPLE - len(names))]


class _Judged(NamedTuple):
    """The blocks of rows that are scored, the squared errors of each baseline there, and the mean label before."""

    scored: Records
    squares: dict[str, Array]
    windows: tuple[float, float]
    mean: float

    def verdict(self, level: float = LEVEL) -> Verdict:
        """Whether the answers are better than the best baseline; the interval of the skill misses it at ``level``."""
        return judge_errors(self.scored["rows"], self.scored["square"], self.squares, *self.windows, level)


def judged(question: Question, target: int, memory: Memory, row: int, periods: Sequence[str]) -> _Judged:
    """The errors by which a question is judged; arguments as for ``scores_of``."""
    stream, group = memory.stream[0], memory.groups[np.searchsorted(memory.groups["target"], target, "right") - 1]
    blocks, block, half = memory.scores[target], int(stream["block"]), int(stream["half"])
    # What a stream has scored before the middle is to it what the first half is to a log.
    middle = 1 + max(0, row // 2 - half) // block if half == 0 else 1
    early, scored, stride = blocks[:middle], blocks[middle:], int(group["stride"])
    names = {a: name for a, name in enumerate(baseline_names(question, periods)) if name is not None}
    squares = {name: scored["baseline_square"][:, a] for a, name in names.items()}
    mean = float(early["label"].sum() / early["rows"].sum()) if early["rows"].sum() else math.nan
    if mean == mean:
        of_mean = scored["label_square"] - 2.0 * mean * scored["label"] + scored["rows"] * mean**2
        squares["rate" if question.is_event else "mean"] = np.maximum(of_mean, 0.0)
    return _Judged(scored, squares, (group["h"] / stride, block / stride), mean)


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
    errors = judged(question, target, memory, row, periods)
    scored, squares, blocks = errors.scored, errors.squares, memory.scores[target]
    group = memory.groups[np.searchsorted(memory.groups["target"], target, "right") - 1]
    count, stride, verdict = scored["rows"].sum(), int(group["stride"]), errors.verdict()
    names = baseline_names(question, periods)
    sizes = {name: scored["baseline_absolute"][:, a].sum() for a, name in enumerate(names) if name is not None}
    square = float(scored["square"].sum())
    spread = float(scored["label_square"].sum() - scored["label"].sum() ** 2 / max(count, 1.0))
    score: dict[str, Any] = {
        "text": question.text,
        "kind": question.kind,
        "signal": question.signal,
        "horizon": question.length,
        "known": int(blocks["rows"].sum()) * stride,
        "scored": int(count) * stride,
        "dropped_windows": int(memory.targets["dropped"][target]) * stride,
        **verdict._asdict(),
        "mae": mean_of(scale * scored["absolute"].sum(), count),
        "rmse": mean_of(scale**2 * square, count, root=True),
        "variance_explained": share_of(square, spread),
        "skill": {name: share_of(square, float(of_one.sum())) for name, of_one in squares.items()},
        "baselines": {
            name: {
                **({"brier": mean_of(of_one.sum(), count)} if question.is_event else {}),
                "mae": mean_of(scale * sizes[name], count) if name in sizes else None,
                "rmse": mean_of(scale**2 * of_one.sum(), count, root=True),
                "variance_explained": share_of(float(of_one.sum()), spread),
                "answer": finite(scale * errors.mean),
            }
            for name, of_one in squares.items()
        },
    }
    of_target = memory.targets[target]
    if question.kind == "weighted":
        of_td = float(scored["td_square"].sum())
        score["td"] = {
            "rmse": mean_of(scale**2 * of_td, count, root=True),
            "variance_explained": share_of(of_td, spread),
        }
    if question.is_event:
        cuts = of_target["cuts"]
        reliability = [
            {"count": int(rows), "predicted": mean_of(p, rows), "observed": mean_of(so, rows)} for rows, p, so in cuts
        ]
        off = float(np.abs(cuts[:, 1] - cuts[:, 2]).sum())
        score |= {"brier": mean_of(square, count), "rate": mean_of(scored["label"].sum(), count)}
        return score | {"ece": mean_of(off, cuts[:, 0].sum()), "reliability": reliability}
    intervals = scored["intervals"].sum()
    by_hour = of_target["bands"] if of_target["bands"][1:, 0].any() else of_target["bands"][:0]
    return score | {
        "coverage": mean_of(scored["inside"].sum(), intervals),
        "coverage_by_hour": [mean_of(inside, rows) for rows, inside in by_hour],
        "interval_score": mean_of(scale * scored["interval_score"].sum(), intervals),
    }
