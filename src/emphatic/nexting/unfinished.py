"""What a run keeps until it is finished: predictions and readings in parts, and a checkpoint that says how many count.

All of it lies in one folder inside the output folder, so that the output is never half there, and what a killed run
leaves is gone when the next one is done.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from emphatic.common.files import atomic_file
from emphatic.hordes.horde import Horde

__all__ = ["Unfinished"]


class Unfinished:
    """The folder of a run that is not finished."""

    def __init__(self, out: Path) -> None:
        if out.exists() and not out.is_dir():
            raise ValueError(f"{out}: there is a file of this name, where a folder is to be written.")
        self.out, self.folder = out, out / ".unfinished"
        self.checkpoint = self.folder / "model.safetensors"
        #: The folders that were not there before, the innermost first.
        self._new = [folder for folder in (out, *out.parents) if not folder.exists()]

    def begin(self) -> None:
        """An empty folder, whatever was there."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)

    def write(self, kind: str, begin: int, columns: Mapping[str, Any]) -> None:
        """A part of the predictions or readings, from row ``begin`` on. The checkpoint after it must not outlive it."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        with atomic_file(self._path(kind, begin)) as file:
            pq.write_table(pa.table(dict(columns)), file, compression="zstd")

    def _path(self, kind: str, begin: int) -> Path:
        return self.folder / f"{kind}-{begin:012d}.parquet"

    def save(self, horde: Horde, more: Mapping[str, Any]) -> None:
        """The checkpoint: all parts so far count."""
        horde.save(self.checkpoint, **more)

    def load(self) -> tuple[Horde, dict[str, Any]]:
        """The checkpoint, and what more was saved with it."""
        return Horde.load_with(self.checkpoint)

    def begins(self, kind: str) -> list[int]:
        """The rows at which the parts begin, in order."""
        return sorted(int(path.stem.rpartition("-")[2]) for path in self.folder.glob(f"{kind}-*.parquet"))

    def drop(self, rows: int) -> None:
        """Remove the parts from row ``rows`` on, which were written after the checkpoint."""
        for kind in ("predictions", "readings"):
            for begin in self.begins(kind):
                if begin >= rows:
                    self._path(kind, begin).unlink()

    def read(self, kind: str, begin: int) -> Any:
        """A part, as an Arrow table."""
        import pyarrow.parquet as pq

        with pq.ParquetFile(self._path(kind, begin)) as file:
            return file.read(use_threads=False)

    def finish(self, names: Mapping[str, str]) -> None:
        """Put files in their places, the checkpoint last, and leave nothing else."""
        for own, name in names.items():
            os.replace(self.folder / own, self.out / name)
        os.replace(self.checkpoint, self.out / self.checkpoint.name)
        shutil.rmtree(self.folder, ignore_errors=True)

    def give_up(self) -> None:
        """Leave everything as it was before ``begin``."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for folder in self._new:
            with suppress(OSError):  # it was not made, or someone else has put something there
                folder.rmdir()
