"""A pipe's first readings, before there is a model: answered by persistence, and saved for the next run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emphatic.common.files import atomic_file
from emphatic.nexting.settings import Settings
from emphatic.questions.gvf import GVF
from emphatic.tables.notation import RowParser
from emphatic.tables.pipe import Reading, TextForm, collect

__all__ = ["FirstGuesses", "Guess", "load_warm_up", "save_warm_up"]

#: Readings from which on their columns are known well enough.
_LEAST = 3
#: So many later readings are read as those before them.
_AGAIN = 10
#: What a file of such readings says of itself.
_FORMAT = "emphatic warm-up 1"

Waiting = Sequence[tuple[int, Reading]]


class Guess(NamedTuple):
    """The present reading of each signal as the answer at every horizon: the questions, when, and the values."""

    questions: list[GVF]
    time: float
    time_text: Any
    values: NDArray[np.float64]


class FirstGuesses:
    """Persistence: the answer to a question is the present reading, or the last one where that is missing.

    A name that has come only once may be that of a stray record, and is no signal yet.
    """

    def __init__(self, settings: Settings, horizons: Sequence[float | str]) -> None:
        self._predict, self._horizons, self._time = settings.predict, settings.horizons or horizons, settings.time
        self._words = settings.words()
        self._parser: RowParser | None = None
        self._form: tuple[Any, ...] = ()  # what the parser was made for
        self._held = 0  # readings whose values are in _last
        self._last: dict[str, float] = {}

    def __call__(self, waiting: Waiting, form: TextForm) -> Guess | None:
        """The answers at the last of the readings so far; None if they do not tell yet what they are."""
        if len(waiting) < _LEAST:
            return None
        if self._parser is None or len(waiting) % _AGAIN == 0:
            counts = Counter(name for _, reading in waiting for name in reading)
            rows = [{name: value for name, value in row.items() if counts[name] > 1} for _, row in waiting]
            try:
                table = collect(rows, *form, self._time, self._words)
            except ValueError:  # it is said when the warm-up is complete
                return None
            found = (table.names, table.categories, table.notation)
            if self._parser is None or self._form != found:
                self._parser, self._form, self._held = RowParser(*found), found, 0
            for row in map(self._parser.parse, rows[self._held : -1]):
                self._hold(row.values)
        row = self._parser.parse(waiting[-1][1])
        if not row.readable:
            return None
        self._hold(row.values)
        self._held = len(waiting)
        names = self._predict or self._parser.names
        questions = [GVF(name, horizon=horizon) for name in names for horizon in self._horizons]
        values = np.repeat([self._last.get(name, np.nan) for name in names], len(self._horizons))
        return Guess(questions, row.time, row.time_text, values)

    def _hold(self, values: Any) -> None:
        assert self._parser is not None
        for name, value in zip(self._parser.names, values, strict=True):
            if np.isfinite(value):
                self._last[name] = float(value)


def save_warm_up(
    path: Path, waiting: Waiting, delimiter: str | None, settings: Settings, more: Mapping[str, Any]
) -> None:
    """Write the readings of a warm-up that is not complete, the settings that it began with, and ``more``."""
    kept = {
        "format": _FORMAT,
        "delimiter": delimiter,
        "settings": settings.table(),
        "readings": [[line, reading] for line, reading in waiting],
        "more": dict(more),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        file.write(json.dumps(kept).encode())


def load_warm_up(path: Path) -> tuple[list[tuple[int, Reading]], str | None, Settings, dict[str, Any]]:
    """The readings, delimiter, settings and more that ``save_warm_up`` wrote; ValueError if it is no such file."""
    try:
        kept = json.loads(path.read_text("utf-8"))
        if kept["format"] != _FORMAT:
            raise ValueError
        settings = Settings.of(kept["settings"])
        readings = [(int(line), dict(reading)) for line, reading in kept["readings"]]
        return readings, kept["delimiter"], settings, dict(kept.get("more", {}))
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path}: this is not the saved warm-up of a pipe. Remove it to begin anew.") from None
