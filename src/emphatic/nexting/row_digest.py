"""What tells the rows that a run has read from any others."""

from __future__ import annotations

import json
from typing import Any

import xxhash

__all__ = ["RowDigest"]


class RowDigest:
    """A digest of all rows so far: readings, times and labels. It does not depend on the blocks they come in."""

    def __init__(self) -> None:
        self.rows = 0
        self._columns: dict[str, Any] = {}

    def add(self, block: Any, rows: int | None = None) -> None:
        """The next rows of the table: a block of it, or the first ``rows`` of a block."""
        rows = len(block) if rows is None else min(rows, len(block))
        self._update("values", block.values[:rows].tobytes())
        if block.time is not None:
            self._update("time", block.time[:rows].tobytes())
        for name, labels in block.labels.items():
            self._update(f"label {name}", json.dumps(labels[:rows].tolist())[1:-1].encode() + b", ")
        self.rows += rows

    def hexdigest(self) -> str:
        """As text."""
        found = {name: digest.hexdigest() for name, digest in sorted(self._columns.items())}
        return xxhash.xxh3_128_hexdigest(json.dumps([self.rows, found]).encode())

    def _update(self, column: str, data: bytes) -> None:
        if column not in self._columns:
            self._columns[column] = xxhash.xxh3_128()
        self._columns[column].update(data)
