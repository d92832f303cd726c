"""What a run keeps until it is finished: predictions and readings in parts, and a checkpoint that says how many count.

All of it lies in one folder inside the output folder, so that the output is never half there, and what a killed run
leaves is gone when the next one is done. The folder is locked as long as a run goes on, and every part carries the id
of its run: two runs never share it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from emphatic.common.files import atomic_file
from emphatic.common.locks import LOCK, UNFINISHED
from emphatic.hordes.horde import Horde

__all__ = ["Unfinished"]

#: The entry of a part's metadata that holds the id of its run.
_RUN = b"emphatic.run"


class Unfinished:
    """The folder of a run that is not finished."""

    def __init__(self, out: Path) -> None:
        self.out, self.folder = out, out / UNFINISHED
        self.checkpoint = self.folder / "model.safetensors"
        #: What every part of this run is marked with.
        self.run_id = ""
        #: Whether the folder was there before: of a run that was interrupted.
        self.begun = self.folder.exists()

    def begin(self) -> None:
        """An empty folder, whatever was there."""
        for path in self.folder.iterdir():
            if path.name == LOCK:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()

    def write(self, kind: str, begin: int, columns: Mapping[str, Any]) -> None:
        """A part of the predictions, readings or answers, from row ``begin`` on. The checkpoint must not outlive it."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        part = pa.table(dict(columns)).replace_schema_metadata({_RUN: self.run_id})
        with atomic_file(self._path(kind, begin)) as file:
            pq.write_table(part, file, compression="zstd", write_page_checksum=True)

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
        for kind in ("predictions", "readings", "answers"):
            for begin in self.begins(kind):
                if begin >= rows:
                    self._path(kind, begin).unlink()

    def read(self, kind: str, begin: int) -> Any:
        """A part, as an Arrow table; ValueError if it is of another run."""
        import pyarrow.parquet as pq

        with pq.ParquetFile(self._path(kind, begin), page_checksum_verification=True) as file:
            if (file.schema_arrow.metadata or {}).get(_RUN, b"").decode() != self.run_id:
                raise ValueError(f"{self._path(kind, begin)}: this part was written by another run. Start again.")
            return file.read(use_threads=False).replace_schema_metadata(None)

    def finish(self, names: Mapping[str, str]) -> None:
        """Put files in their places, the checkpoint last, and leave nothing else."""
        for own, name in names.items():
            os.replace(self.folder / own, self.out / name)
        os.replace(self.checkpoint, self.out / self.checkpoint.name)
        self.begin()

    def give_up(self) -> None:
        """Leave everything as it was before ``begin``."""
        with suppress(OSError):
            self.begin()
