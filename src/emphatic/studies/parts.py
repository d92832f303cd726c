"""The finished tasks of a sweep: their scores, in a folder from which a stopped sweep resumes."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from zipfile import BadZipFile

import numpy as np

from emphatic.common.files import atomic_file
from emphatic.common.locks import UNFINISHED, hold_folder
from emphatic.studies.scores import Scores

__all__ = ["Parts", "one_at_a_time"]

P = ParamSpec("P")
R = TypeVar("R")


def one_at_a_time(function: Callable[P, R]) -> Callable[P, R]:
    """Lock the folder ``out`` of this function, if there is one, against other runs."""

    @functools.wraps(function)
    def alone(*args: P.args, **given: P.kwargs) -> R:
        out: Any = given.get("out")
        if out is None:
            return function(*args, **given)
        with hold_folder(Path(out)):
            return function(*args, **given)

    return alone


class Parts:
    """Scores by the number of their task; with a folder, also on the disk.

    Each plan has its own subfolder, named after it: parts of another plan are neither counted nor touched. Incomplete
    files do not count.
    """

    def __init__(self, out: Path | None, identity: str, resume: bool) -> None:
        self._scores: dict[int, Scores] = {}
        #: What was spent on them, in all.
        self.seconds = 0.0
        self.folder = None if out is None else out / UNFINISHED / identity[:16]
        if out is None or self.folder is None:
            return
        if not resume:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in self.folder.glob("*.npz"):
            if not self._read(path):
                path.unlink()

    def _read(self, path: Path) -> bool:
        """Read a file; whether it is complete, and so counts."""
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
                seconds, scores = float(found["seconds"]), Scores(*(found[name] for name in Scores._fields))
        except (OSError, ValueError, KeyError, EOFError, BadZipFile):
            return False
        self._scores[int(path.stem)] = scores
        self.seconds += seconds
        return True

    def __contains__(self, number: int) -> bool:
        return number in self._scores

    def put(self, number: int, scores: Scores, seconds: float) -> None:
        """Store the scores of a task, which took ``seconds``."""
        self._scores[number] = scores
        self.seconds += seconds
        if self.folder is not None:
            with atomic_file(self.folder / f"{number:06d}.npz") as file:
                np.savez(file, **scores._asdict(), seconds=seconds)

    def __iter__(self) -> Iterator[Scores]:
        """The scores in the order of the tasks."""
        return (self._scores[number] for number in sorted(self._scores))

    def remove(self) -> None:
        """Remove the folder: the plan is finished."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            with suppress(OSError):  # another's parts are there
                self.folder.parent.rmdir()
