"""The same work for many seeds, on one process or several, with the same result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

__all__ = ["Progress", "each", "silent"]

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def silent(phase: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


def each(
    function: Callable[[Item], Result], items: Sequence[Item], jobs: int, progress: Progress, phase: str
) -> list[Result]:
    """``[function(item) for item in items]`` on ``jobs`` processes (-1: one a core), in the order of the items."""
    results: Iterable[Any]
    if jobs == 1:
        results = map(function, items)
    else:
        from joblib import Parallel, delayed

        results = Parallel(n_jobs=jobs, return_as="generator")(delayed(function)(item) for item in items)
    gathered: list[Result] = []
    for result in results:
        gathered.append(result)
        progress(phase, len(gathered), len(items))
    return gathered
