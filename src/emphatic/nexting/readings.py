"""The readings that a run keeps beside its predictions, so that scoring need not read the table again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.features import Features

__all__ = ["KeptReadings", "ReadingCounts", "make_features"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class KeptReadings:
    """Some rows: values (B, C) with NaN where missing, times (B,) or None, rows after a gap (B,), and labels."""

    values: Array
    time: Array | None
    gap: NDArray[np.bool_]
    labels: dict[str, NDArray[np.object_]]

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice) -> KeptReadings:
        labels = {name: column[rows] for name, column in self.labels.items()}
        return KeptReadings(self.values[rows], None if self.time is None else self.time[rows], self.gap[rows], labels)

    @classmethod
    def join(cls, parts: Sequence[KeptReadings]) -> KeptReadings:
        """One after the other."""
        times = [part.time for part in parts if part.time is not None]
        return cls(
            np.concatenate([part.values for part in parts]),
            np.concatenate(times) if times else None,
            np.concatenate([part.gap for part in parts]),
            {name: np.concatenate([part.labels[name] for part in parts]) for name in parts[0].labels},
        )

    def columns(self) -> dict[str, Any]:
        """As columns of a table, by place: signals and categories may have any name."""
        import pyarrow as pa

        columns: dict[str, Any] = {f"value {j}": column for j, column in enumerate(self.values.T)}
        columns["gap"] = self.gap
        if self.time is not None:
            columns["time"] = self.time
        return columns | {f"label {j}": pa.array(c, pa.string()) for j, c in enumerate(self.labels.values())}

    @classmethod
    def from_table(cls, table: Any, categories: Sequence[str]) -> KeptReadings:
        """The rows of such a table."""
        columns = {name: table.column(name).to_numpy() for name in table.column_names}
        values = np.stack([column for name, column in columns.items() if name.startswith("value ")], axis=1)
        labels = {name: np.asarray(columns[f"label {j}"], object) for j, name in enumerate(categories)}
        return cls(values, columns.get("time"), columns["gap"], labels)


@dataclass
class ReadingCounts:
    """What was wrong with the readings of each signal; its first reading: the row, −1 for none, and the value; gaps."""

    unreadable: list[int]
    infinite: list[int]
    first: list[int]
    start: list[float]
    gaps: int = 0

    @classmethod
    def none(cls, C: int) -> ReadingCounts:
        """Before the first row."""
        return cls([0] * C, [0] * C, [-1] * C, [0.0] * C)

    def add(self, block: Any) -> None:
        """The next block of the table."""
        for counts, more in ((self.unreadable, block.unreadable), (self.infinite, block.infinite)):
            counts[:] = [a + int(b) for a, b in zip(counts, more, strict=True)]
        for c in [c for c, row in enumerate(self.first) if row < 0]:
            present = np.flatnonzero(~np.isnan(block.values[:, c]))
            if len(present):
                self.first[c] = block.row + int(present[0])
                self.start[c] = float(block.values[present[0], c])


def make_features(
    maker: Features, rows: KeptReadings, held: Array, missing: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], Array]:
    """Features of the next rows, (B, k) each: their indices and values.

    ``held`` are the readings, the last one held where one is ``missing``. A piece between two gaps at a time: after a
    gap traces start anew.
    """
    inner = np.flatnonzero(rows.gap[1:]) + 1
    made = []
    for begin, end in pairwise([0, *inner.tolist(), len(rows)]):
        some = slice(begin, end)
        if rows.gap[begin]:
            maker.cut()
        piece = rows[some]
        made.append(maker(held[some], time=piece.time, labels=piece.labels, missing=missing[some]))
    return np.concatenate([phi.indices for phi in made]), np.concatenate([phi.values for phi in made])
