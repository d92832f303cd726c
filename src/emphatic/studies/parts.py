"""What a sweep has done so far: the scores of each task, in a folder from which a stopped sweep goes on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from emphatic.studies.scores import Scores

__all__ = ["Parts"]


class Parts:
    """Scores by the number of their task; with a folder, also on the disk.

    The folder says of which plan its parts are. Parts of another plan, and files that are not whole, do not count.
    """

    def __init__(self, out: Path | None, identity: str, resume: bool) -> None:
        self._scores: dict[int, Scores] = {}
        #: What was spent on them, in all.
        self.seconds = 0.0
        self.folder = None if out is None else out / ".unfinished"
        if out is None or self.folder is None:
            return
        if out.exists() and not out.is_dir():
            raise ValueError(f"{out}: there is a file of this name, where a folder is to be written.")
        told = self.folder / "plan"
        if resume and told.exists() and told.read_text("utf-8") == identity:
            for path in self.folder.glob("*.npz"):
                try:
                    with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
                        self._scores[int(path.stem)] = Scores(*(found[name] for name in Scores._fields))
                        self.seconds += float(found["seconds"])
                except (OSError, ValueError, KeyError, EOFError, BadZipFile):
                    path.unlink()
        else:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            told.write_text(identity, "utf-8")

    def __contains__(self, number: int) -> bool:
        return number in self._scores

    def __len__(self) -> int:
        return len(self._scores)

    def put(self, number: int, scores: Scores, seconds: float) -> None:
        """Keep what a task has found, ``seconds`` after the one before."""
        self._scores[number] = scores
        self.seconds += seconds
        if self.folder is not None:
            partial, path = self.folder / f"{number:06d}.partial", self.folder / f"{number:06d}.npz"
            with partial.open("wb") as file:
                np.savez(file, **scores._asdict(), seconds=seconds)
            os.replace(partial, path)

    def __iter__(self) -> Iterator[Scores]:
        """The scores in the order of the tasks."""
        return (self._scores[number] for number in sorted(self._scores))

    def remove(self) -> None:
        """Nothing is unfinished any more."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
