"""Predictions that stay with their shard: a part for each time it is saved, and one Parquet file of them all.

A saved state lists the parts that count, so that those written after it by a process that was killed do not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from emphatic.common.files import atomic_file

__all__ = ["KeptPredictions"]

_ROWS = b"emphatic.rows"


class KeptPredictions:
    """What one shard keeps; ``target`` is the file of all."""

    def __init__(self, folder: Path, target: Path, session: str) -> None:
        self._folder, self._target, self._session = folder, target, session
        self.restore([])

    def restore(self, parts: list[str]) -> None:
        """These parts count, and nothing else does."""
        self.parts = list(parts)
        self._waiting: list[Any] = []

    def add(self, begin: int, rows: int, columns: dict[str, Any]) -> None:
        """The predictions at the rows from ``begin`` on."""
        import numpy as np
        import pyarrow as pa

        if rows:
            self._waiting.append(pa.table({"row": np.arange(begin, begin + rows)} | columns))

    def write(self) -> None:
        """Write down what waits, as a part."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not self._waiting:
            return
        table = pa.concat_tables(self._waiting)
        name = f"predictions-{table.column('row')[0].as_py():012d}-{self._session}.parquet"
        with atomic_file(self._folder / name) as file:
            pq.write_table(table, file, compression="zstd")
        self.parts.append(name)
        self._waiting = []

    def merge(self) -> None:
        """Put all parts at the end of the file of all, and remove them."""
        import pyarrow.parquet as pq

        done = 0
        sources = []
        if self._target.exists():
            sources.append(self._target)
            done = int(pq.read_schema(self._target).metadata[_ROWS])
        new = [name for name in self.parts if int(name.split("-")[1]) >= done]
        if new:
            sources += [self._folder / name for name in new]
            with pq.ParquetFile(sources[-1]) as last:
                end = last.read_row_group(last.num_row_groups - 1, ["row"]).column("row")[-1].as_py() + 1
                schema = last.schema_arrow
            with (
                atomic_file(self._target) as file,
                pq.ParquetWriter(file, schema.with_metadata({_ROWS: str(end)}), compression="zstd") as writer,
            ):
                for source in sources:
                    with pq.ParquetFile(source) as opened:
                        for group in range(opened.num_row_groups):
                            table = opened.read_row_group(group, use_threads=False)
                            writer.write_table(table.replace_schema_metadata({_ROWS: str(end)}))
        self.parts = []
        for path in self._folder.glob("predictions-*.parquet"):
            path.unlink(missing_ok=True)
