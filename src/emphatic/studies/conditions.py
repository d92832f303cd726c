"""The conditions of a study: how thorough it is, its seed, its processes, and its progress report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from emphatic.rules import AnyRule

__all__ = ["Conditions", "Progress", "on_one_thread", "silent"]

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def silent(phase: str, done: int, total: int) -> None:
    """A progress callback that does nothing."""


def on_one_thread(function: Callable[..., Result], *arguments: Any) -> Result:
    """``function(*arguments)`` with matrix products on one thread: the last bits depend on how many there are."""
    from emphatic.engines.compiled import blas_threads  # late: numba is imported on first use

    with blas_threads(1):
        return function(*arguments)


@dataclass(frozen=True)
class Conditions:
    """``quick`` means the same questions with fewer runs; ``jobs`` is the number of processes (-1: one per core).

    In ``folder`` a long study stores finished work, to resume from there if it is stopped. ``rules`` are tried in
    addition to the study's own, over its step sizes and λ.
    """

    quick: bool = False
    seed: int = 0
    jobs: int = 1
    progress: Progress = silent
    folder: Path | None = None
    rules: tuple[AnyRule, ...] = ()

    def each(self, function: Callable[[Item], Result], items: Sequence[Item], phase: str) -> list[Result]:
        """``[function(item) for item in items]`` on these processes, in the order of the items."""
        results: Iterable[Any]
        if self.jobs == 1:
            results = (on_one_thread(function, item) for item in items)
        else:
            from joblib import Parallel, delayed

            tasks = (delayed(on_one_thread)(function, item) for item in items)
            results = Parallel(n_jobs=self.jobs, return_as="generator")(tasks)
        gathered: list[Result] = []
        for result in results:
            gathered.append(result)
            self.progress(phase, len(gathered), len(items))
        return gathered
