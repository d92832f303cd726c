"""Where K learners, or Q questions, are cut into shards, and when the cut changes no bit."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from emphatic import engines, rules
from emphatic.learning.inputs import refusal

__all__ = ["Cut", "cut", "grain"]


class Cut(list[slice]):
    """The part of each shard, in order; ``exact`` says whether one process would learn the same bits uncut."""

    exact: bool = False


def grain(rule: Any, n: int, dtype: str, engine: str) -> tuple[int, int]:
    """(steps, learners) at whose multiples an engine can be cut without another bit; 0 where it cannot."""
    if engine.startswith("cuda"):  # need not be installed where the driver runs
        return 0, 0
    return engines.make(engine, rules.get(rule) if isinstance(rule, str) else rule, n, 2, dtype).grain


def cut(count: int, shards: int, block: int, grain: tuple[int, int]) -> Cut:
    """``count`` learners in ``shards`` parts of about the same size, at multiples of the grain where that is possible.

    >>> cut(1000, 3, 1016, (127, 256))
    [slice(0, 256, None), slice(256, 768, None), slice(768, 1000, None)]
    """
    if shards > count:
        raise refusal("shards", "a cluster", f"be at most what there is to cut, {count}", str(shards))
    steps, learners = grain
    fits = learners > 0 and count >= learners * shards
    unit = learners if fits else 1
    edges = [unit * int(i * count / shards / unit + 0.5) for i in range(shards)] + [count]
    parts = Cut(slice(a, b) for a, b in pairwise(edges))
    parts.exact = shards == 1 or (fits and steps > 0 and block % steps == 0)
    return parts
