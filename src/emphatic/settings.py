"""The settings of ``emphatic nexting``: by flags, or in one TOML file."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from emphatic import features as f
from emphatic.horde import RATES
from emphatic.questions import GVF
from emphatic.streams import Table

__all__ = ["Settings", "default_features", "default_horizons"]

#: What a person would say, in seconds: 1 to 30 s, 1 to 30 min, 1 to 12 h, 1, 2, 7 and 30 d.
_ROUND = [
    *(s * unit for unit in (1.0, 60.0) for s in (1, 2, 5, 10, 15, 30)),
    *(3600.0 * h for h in (1, 2, 3, 6, 12, 24, 48, 168, 720)),
]


@dataclass(frozen=True)
class Settings:
    """What to predict and how; what is left out is found from the table."""

    predict: tuple[str, ...] | None = None
    horizons: tuple[float | str, ...] | None = None
    time: str | None = None
    delimiter: str | None = None
    rates: tuple[float, ...] = RATES
    rule: str = "true_online_etd"
    features: tuple[Mapping[str, Any], ...] | None = None
    questions: tuple[Mapping[str, Any], ...] = field(default=())

    @classmethod
    def read(cls, path: str | Path) -> Settings:
        """From a TOML file; ValueError if it is not one or has other settings."""
        try:
            table = tomllib.loads(Path(path).read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise ValueError(f"{path}: not a settings file: {error}") from None
        return cls.of(table, str(path))

    @classmethod
    def of(cls, table: Mapping[str, Any], name: str = "settings") -> Settings:
        """From a table of settings."""
        known = [one.name for one in fields(cls)]
        for key in table:
            if key not in known:
                raise ValueError(f"{name}: there is no setting {key!r}; there are {', '.join(known)}.")
        given: dict[str, Any] = {
            key: tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
            for key, value in table.items()
        }
        made = cls(**given)
        made.check(name)
        return made

    def check(self, name: str = "settings") -> None:
        """ValueError where something cannot be."""
        for key in ("predict", "horizons", "rates", "features", "questions"):
            if not isinstance(getattr(self, key), tuple | None):
                raise ValueError(f"{name}: {key!r} must be a list. Got {getattr(self, key)!r} instead.")
        for key in ("time", "delimiter", "rule"):
            if not isinstance(getattr(self, key), str | None):
                raise ValueError(f"{name}: {key!r} must be text. Got {getattr(self, key)!r} instead.")
        for horizon in self.horizons or ():
            GVF("signal", horizon=horizon)
        for table in self.questions:
            GVF.from_config(table)
        if self.features is not None:
            f.Features.from_config(self.features)

    def filled(self, table: Table, rows: int) -> Settings:
        """With everything that was left out."""
        predict = self.predict if self.predict is not None else table.names
        for signal in predict:
            if signal not in table.names:
                there = ", ".join(table.names)
                raise ValueError(
                    f"{table.name}: there is no column of numbers {signal!r} to predict; there are {there}."
                )
        if len(set(predict)) < len(predict):
            raise ValueError(f"'predict' names a column twice: {', '.join(predict)}.")
        clock = table.clock()
        step = clock.step if clock is not None and table.dated else None
        horizons = self.horizons or default_horizons(rows, step)
        if len(set(map(str, horizons))) < len(horizons):
            raise ValueError(f"'horizons' has one twice: {', '.join(map(str, horizons))}.")
        longest = max(GVF("signal", horizon=h).constant_gamma(clock.step if clock else None) or 0.0 for h in horizons)
        parts = self.features or tuple(default_features(table, 1.0 / (1.0 - longest)))
        return replace(self, predict=tuple(predict), horizons=tuple(horizons), time=table.time, features=tuple(parts))

    def asked(self) -> list[GVF]:
        """Every signal at every horizon, and the questions of the file."""
        plain = [GVF(signal, horizon=h) for signal in self.predict or () for h in self.horizons or ()]
        return plain + [GVF.from_config(table) for table in self.questions]

    def table(self) -> dict[str, Any]:
        """As a TOML file or a checkpoint holds it."""
        return {key: _plain(value) for key, value in asdict(self).items() if value is not None and value != ()}

    def toml(self) -> str:
        """The text of a TOML file."""
        import tomli_w

        return tomli_w.dumps(self.table())


def default_horizons(rows: int, step: float | None) -> tuple[float | str, ...]:
    """Four, from two steps to a hundredth of the log; as durations people would say, where a step has seconds.

    >>> default_horizons(5456, None)
    (2, 6, 18, 54)
    >>> default_horizons(129600, 60.0)
    ('2min', '15min', '2h', '24h')
    """
    longest = max(8.0, rows / 100)
    spread = [2.0 * (longest / 2.0) ** (i / 3) for i in range(4)]
    if step is None:
        return tuple(sorted({int(h) for h in spread}))
    said = sorted({min(_ROUND, key=lambda s: abs(math.log(s / (h * step)))) for h in spread})
    fitting = [s for s in said if s >= 1.5 * step] or [2.0 * step]
    return tuple(_written(s) for s in fitting)


def _written(s: float) -> str:
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if s >= size and s % size == 0:
            return f"{s / size:g}{unit}"
    return f"{s:g}s"


def default_features(table: Table, longest: float) -> list[dict[str, Any]]:
    """Soft bins of every signal and of its traces up to twice the longest horizon, time of day, categories, missing.

    A signal that does not vary in the first rows tells nothing, and would only take a share of the step size.
    """
    first = next(table.blocks(10_000)).values
    varies = np.nanmin(first, axis=0, initial=np.inf) < np.nanmax(first, axis=0, initial=-np.inf)
    chosen = [name for name, does in zip(table.names, varies, strict=True) if does]
    some: str | list[str] = chosen if 0 < len(chosen) < len(table.names) else "*"
    steps = [4**k for k in range(1, 20) if 4**k <= 2.0 * longest] or [4]
    parts: list[f.Part] = [f.Bias(), f.SoftBins(some, bins=10), f.SoftBins(f.Trace(some, steps=steps), bins=10)]
    if table.dated:
        parts += [f.TimeOfDay(bins=bins) for bins in (6, 12, 24)]
    parts += [f.OneHot(name) for name in table.categories]
    parts.append(f.Missing("*"))
    return [part.config() for part in parts]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, tuple | list) else value
