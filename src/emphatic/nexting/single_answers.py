"""The single answers that a prediction is combined from, kept until they are scored: see ``Horde.answers``.

They are kept as their differences from the prediction, in float32: a row takes four bytes an answer and question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.nexting.unfinished import Unfinished

__all__ = ["KeptAnswers", "differences", "write_answers"]

Array = NDArray[np.float64]
Differences = NDArray[np.float32]


def differences(answers: Mapping[str, Array], predictions: Array) -> dict[str, Differences]:
    """What is kept of the answers (B, Q) by name."""
    with np.errstate(all="ignore"):
        return {name: (values - predictions).astype(np.float32) for name, values in answers.items()}


def write_answers(unfinished: Unfinished, end: int, parts: Sequence[Mapping[str, Differences]]) -> None:
    """Write the answers at the rows before ``end``, in order, as a part; nothing where there are none."""
    import pyarrow as pa

    if not parts or not parts[0]:
        return
    columns = {}
    for name in parts[0]:
        values = np.concatenate([part[name] for part in parts])
        columns[name] = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
    unfinished.write("answers", end - len(values), columns)


class KeptAnswers:
    """The parts that were written, read in order."""

    def __init__(self, unfinished: Unfinished) -> None:
        self._unfinished, self._begins = unfinished, unfinished.begins("answers")
        self._begin, self._part = 0, dict[str, Any]()

    def read(self, start: int, count: int, Q: int) -> dict[str, Differences]:
        """Those of the first Q questions at ``count`` rows from ``start`` on, which do not reach across two parts.

        Rows before the first part, which are in the first half of the log, have none.
        """
        while self._begins and start >= self._begins[0]:
            self._begin = self._begins.pop(0)
            table = self._unfinished.read("answers", self._begin)
            self._part = {}
            for name in table.column_names:
                column = table.column(name).combine_chunks()
                self._part[name] = column.flatten().to_numpy().reshape(table.num_rows, -1)
        rows = slice(start - self._begin, start - self._begin + count)
        return {name: values[rows, :Q] for name, values in self._part.items()}
