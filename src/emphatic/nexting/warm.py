"""Kernels compiled ahead, by a service before it is ready.

A kernel is compiled when it is first called, which takes seconds, and is then read from the cache folder. What needs
which kernels is known to the code that calls them alone. So the code is run, on a few readings of every kind.
"""

from __future__ import annotations

import logging
import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from emphatic.nexting.settings import Settings

__all__ = ["compile_for_live", "compile_for_questions"]

#: Readings of the warm-up, and after it: a block, and single ones.
_WARM_UP, _MORE = 98, (30, 1, 1)
_HORIZONS = (2, 9)
#: A question of one line: all of them need the same kernels.
_ASKED = ("level at +3 rows",)


def compile_for_live(settings: Settings | None = None) -> None:
    """Compile or load what ``emphatic serve`` and ``emphatic nexting -`` need.

    Args:
        settings: What will be predicted, and how; the rule and its step sizes decide which kernels there are.
    """
    from emphatic.nexting.predictor import Predictor

    settings = settings or Settings()
    asked = _ASKED if settings.ask else ()
    plain = Settings(
        rule=settings.rule,
        stepsize=settings.stepsize,
        rates=settings.rates,
        horizons=_HORIZONS,
        ask=asked,
        exponential_only=settings.exponential_only,
    )
    with _silence(), tempfile.TemporaryDirectory() as folder:
        predictor = Predictor(plain, warm_up=_WARM_UP)
        readings = list(enumerate(_readings(_WARM_UP + sum(_MORE)), start=1))
        predictor.take(readings[:_WARM_UP])
        at = _WARM_UP
        for count in _MORE:
            predictor.take(readings[at : at + count])
            at += count
        assert predictor.horde is not None
        path = Path(folder) / "model"
        predictor.horde.save(path, **predictor.state())
        Predictor.load(path)


def compile_for_questions() -> None:
    """Compile or load what questions of one line need, which may be asked at any time."""
    from emphatic.asking.answers import Asked, Timing

    rows = np.zeros((10, 1))
    Asked(_ASKED, ("level",), Timing(None))(rows, rows, np.zeros(len(rows), bool))


def _readings(count: int) -> Iterator[dict[str, Any]]:
    """Readings of two signals and a label, ten minutes apart; some are missing and some are far off."""
    begin = datetime(2024, 1, 1)
    for t in range(count):
        level = 1e9 if t % 50 == 40 else round(math.sin(t / 7) + 0.1 * math.cos(t * t), 6)
        yield {
            "time": (begin + timedelta(minutes=10 * t)).isoformat(),
            "level": level,
            "flow": None if t % 20 == 15 else round(math.cos(t / 11), 6),
            "state": ("on", "off", "idle")[t % 3],
        }


@contextmanager
def _silence() -> Iterator[None]:
    """Keep what is said of these readings out of the log."""
    loggers = [logging.getLogger(name) for name in ("emphatic.nexting", "emphatic.tables")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
