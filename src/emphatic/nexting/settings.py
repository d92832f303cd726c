"""The settings of ``emphatic nexting``: from flags, keywords or a TOML file."""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from emphatic import features as f
from emphatic import stepsizes
from emphatic.common.names import check_names, suggestion
from emphatic.hordes.horde import RATES, warm_up_rows
from emphatic.learning.inputs import refusal
from emphatic.nexting.alarms import FALSE_ALARM_RATE, LEAST_RATE
from emphatic.nexting.related import choose_related, is_large
from emphatic.questions import durations
from emphatic.questions.gvf import GVF, Policy
from emphatic.tables import Table
from emphatic.tables.table import pivot_columns, topic_names

__all__ = ["Settings", "default_features", "default_horizons", "warm_up_rows"]

#: The engine whose bits do not depend on how many rows are learned from at once.
ENGINE = "sparse"
#: The share of returns that are to fall inside their prediction's interval.
COVERAGE = 0.8
#: With a ``stepsize``: rates as factors of what the method says.
FACTORS = (0.3, 1.0, 3.0)

#: Round durations in seconds: 1 to 500 µs and ms, 1 to 30 s, 1 to 30 min, 1 to 48 h, 3 d to 2 years.
_ROUND = [
    *(s / unit for unit in (1e6, 1e3) for s in (1, 2, 5, 10, 20, 50, 100, 200, 500)),
    *(s * unit for unit in (1.0, 60.0) for s in (1, 2, 5, 10, 15, 30)),
    *(3600.0 * h for h in (1, 2, 3, 6, 12, 24, 48)),
    *(86400.0 * d for d in (3, 7, 14, 30, 60, 90, 180, 365, 730)),
]
#: The largest γ: beyond it, 1 − γ has few digits left.
_MOST = 1.0 - 1e-12
#: A column of text with more different words than this is not used for features: it holds names, not states.
WORDS = 50


@dataclass(frozen=True)
class Settings:
    """What to predict and how; the default of a setting that is None is found from the table."""

    predict: tuple[str, ...] | None = None
    horizons: tuple[float | str, ...] | None = None
    time: str | bool | None = None
    delimiter: str | None = None
    sort: bool | None = None
    pivot: tuple[str, ...] | bool | None = None
    topics: tuple[str, ...] | None = None
    rates: tuple[float, ...] = RATES
    rule: str = "true_online_etd"
    stepsize: str | Mapping[str, Any] | None = None
    features: tuple[Mapping[str, Any], ...] | None = None
    related: Mapping[str, Sequence[str]] | None = None
    questions: tuple[Mapping[str, Any], ...] = field(default=())
    coverage: float = COVERAGE
    false_alarm_rate: float = FALSE_ALARM_RATE

    @classmethod
    def read(cls, path: str | Path) -> Settings:
        """From a TOML file; ValueError if it is not TOML or has unknown settings."""
        try:
            table = tomllib.loads(Path(path).read_text("utf-8"))
        except OSError as error:
            raise ValueError(f"{path}: the settings cannot be read: {error.strerror}.") from None
        except ValueError as error:
            raise ValueError(f"{path}: this is not TOML: {error}.") from None
        except RecursionError:
            raise ValueError(f"{path}: the settings are nested too deeply.") from None
        return cls.of(table, str(path))

    @classmethod
    def of(cls, table: Mapping[str, Any], name: str = "settings") -> Settings:
        """From a mapping of settings."""
        check_names(table, [one.name for one in fields(cls)], name)
        given: dict[str, Any] = {
            key: tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
            for key, value in table.items()
        }
        settings = cls(**given)._with_rates("rates" in given)
        try:
            settings.check(name)
        except RecursionError:
            raise ValueError(f"{name}: the settings are nested too deeply.") from None
        return settings

    @classmethod
    def combine(cls, config: Any = None, name: str = "nexting", **given: Any) -> Settings:
        """Settings from a TOML file, a mapping or ``Settings``, overridden by those given that are not None."""
        if config is None or isinstance(config, Mapping):
            settings = cls.of(config or {}, name)
        elif isinstance(config, cls):
            settings = config
        elif isinstance(config, str | os.PathLike):
            settings = cls.read(Path(config))
        else:
            raise refusal("config", name, "be the path of a TOML file, a mapping or Settings", repr(config))
        for key in ("predict", "horizons"):
            if isinstance(given.get(key), str | int | float):
                given[key] = (given[key],)
            elif given.get(key) is not None:
                given[key] = tuple(given[key])
        if isinstance(given.get("pivot"), str | list):
            given["pivot"] = pivot_columns(given["pivot"], name)
        if given.get("topics") is not None:
            given["topics"] = topic_names(given["topics"], name)
        settings = replace(settings, **{key: value for key, value in given.items() if value is not None})
        settings = settings._with_rates(settings.rates is not RATES)
        settings.check(name)
        return settings

    def _with_rates(self, given: bool) -> Settings:
        """With a ``stepsize`` rates are factors of what the method says; ``FACTORS`` unless rates are given."""
        return self if given or self.stepsize is None else replace(self, rates=FACTORS)

    def check(self, name: str = "settings") -> None:
        """ValueError if a setting is not valid."""
        for key in ("predict", "horizons", "rates", "features", "questions", "topics"):
            if not isinstance(getattr(self, key), tuple | None):
                raise ValueError(f"{name}: {key!r} must be a list. Got {getattr(self, key)!r} instead.")
        for key in ("delimiter", "rule"):
            if not isinstance(getattr(self, key), str | None):
                raise ValueError(f"{name}: {key!r} must be text. Got {getattr(self, key)!r} instead.")
        if self.stepsize is not None:
            stepsizes.get(self.stepsize)
        if self.time is True or not isinstance(self.time, str | bool | None):
            raise ValueError(f"{name}: 'time' must be the name of a column, or false. Got {self.time!r} instead.")
        if not isinstance(self.sort, bool | None):
            raise ValueError(f"{name}: 'sort' must be true or false. Got {self.sort!r} instead.")
        if self.pivot is True or not isinstance(self.pivot, tuple | bool | None):
            raise ValueError(f"{name}: 'pivot' must be a list of two columns, or false. Got {self.pivot!r} instead.")
        if isinstance(self.coverage, bool) or not isinstance(self.coverage, int | float) or not 0 < self.coverage < 1:
            raise ValueError(f"{name}: 'coverage' must be a share between 0 and 1. Got {self.coverage!r} instead.")
        rate = self.false_alarm_rate
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not LEAST_RATE <= rate < 1:
            raise ValueError(
                f"{name}: 'false_alarm_rate' must be a number of alarms per row from {LEAST_RATE:g} to below 1. "
                f"Got {rate!r} instead."
            )
        for horizon in self.horizons or ():
            if isinstance(horizon, bool):
                raise ValueError(f"{name}: 'horizons' must be steps or durations. Got {horizon!r} instead.")
            try:
                GVF("signal", horizon=horizon)
            except ValueError as error:
                raise ValueError(str(error).replace("The 'horizon' parameter of GVF", f"{name}: 'horizons'")) from None
        for key in ("predict", "horizons"):
            if getattr(self, key) == ():
                raise ValueError(f"{name}: {key!r} must not be empty; leave it out for the default.")
        for table in self.questions:
            question = GVF.from_config(table)
            if not isinstance(question.name, str) or question.name in ("row", "time"):
                raise ValueError(f"{name}: a question's name must be text other than 'row' and 'time'. Got {table!r}.")
            if not isinstance(question.policy, Policy | None):
                raise ValueError(f"{name}: a question's 'policy' must be a table. Got {question.policy!r} instead.")
        if self.features is not None:
            f.Features.from_config(self.features)
        if self.related is not None and not (
            isinstance(self.related, Mapping)
            and all(isinstance(others, Sequence) and not isinstance(others, str) for others in self.related.values())
        ):
            raise ValueError(f"{name}: 'related' must be a table of lists of signals. Got {self.related!r} instead.")

    def filled(self, table: Table, rows: int) -> Settings:
        """With the defaults in the place of what is None."""
        predict = self.predict if self.predict is not None else table.names
        for signal in predict:
            if signal not in table.names:
                known = ", ".join(table.names)
                raise ValueError(
                    f"{table.name}: there is no numeric column {signal!r} to predict."
                    f"{suggestion(signal, table.names)} Numeric columns: {known}."
                )
        if len(set(predict)) < len(predict):
            raise ValueError(f"'predict' names a column twice: {', '.join(predict)}.")
        clock = table.clock()
        step = clock.step if clock is not None and clock.step > 0 else None  # no time has passed: NaN, 0
        horizons = self.horizons or default_horizons(rows, step if table.dated else None)
        if len(set(horizons)) < len(horizons):
            raise ValueError(f"'horizons' names a horizon twice: {', '.join(map(str, horizons))}.")
        for horizon in horizons:
            _check_horizon(horizon, step)
        longest = _longest([GVF("signal", horizon=horizon).constant_gamma(step) or 0.0 for horizon in horizons])
        warm = _warm_up_rows(rows, longest)
        settings = replace(
            self, predict=tuple(predict), horizons=tuple(horizons), related=self._related(table),
            features=self.features or tuple(default_features(table, longest, warm, every=self.related is not None)),
            time=False if self.time is False else table.time,
        )  # fmt: skip
        if self.features is None and self.related is None and is_large(settings, len(table.names)):
            every = tuple(default_features(table, longest, warm, every=True))
            settings = replace(settings, features=every, related=choose_related(table, warm))
        for question in settings.gvfs():
            _check(question, table, step)
        return settings

    def rows_to_warm_up(self, table: Table, rows: int) -> int:
        """The rows of the table, of ``rows`` in all, that ranges, categories and means are found from."""
        return _warm_up_rows(rows, _longest(self.gammas(table)))

    def _related(self, table: Table) -> dict[str, Sequence[str]] | None:
        """The related signals of every signal of the table."""
        if self.related is None:
            return None
        for name in (*self.related, *(other for others in self.related.values() for other in others)):
            if name not in table.names:
                raise ValueError(
                    f"{table.name}: 'related' names {name!r}, and there is no such numeric column."
                    f"{suggestion(name, table.names)}"
                )
        return {name: self.related.get(name, ()) for name in table.names}

    def gammas(self, table: Table) -> list[float]:
        """γ at each horizon."""
        clock = table.clock()
        step = None if clock is None else clock.step
        return [GVF("signal", horizon=horizon).constant_gamma(step) or 0.0 for horizon in self.horizons or ()]

    @property
    def least_squares(self) -> bool:
        """Whether ridges stand beside the learners; with a single rate, its learner's prediction is the answer."""
        return len(self.rates) > 1

    def words(self) -> set[str]:
        """The columns whose words features or questions name: ON and OFF stay words there."""
        policies = [GVF.from_config(table).policy for table in self.questions]
        one_hot = [part["of"] for part in self.features or () if part["kind"] == "one_hot"]
        return {*one_hot, *(policy.column for policy in policies if policy is not None and policy.column is not None)}

    def gvfs(self) -> list[GVF]:
        """Every signal at every horizon, and the questions of the settings."""
        plain = [GVF(signal, horizon=h) for signal in self.predict or () for h in self.horizons or ()]
        return plain + [GVF.from_config(table) for table in self.questions]

    def differences(self, other: Settings) -> list[str]:
        """The names of what is set here and is another there; what is left to its default does not count.

        >>> Settings(horizons=(2, 9), time="t").differences(Settings(horizons=(2,), time="t", rule="td"))
        ['horizons']
        """
        defaults, there = Settings().table(), other.table()
        return [name for name, value in self.table().items() if value not in (defaults.get(name), there.get(name))]

    def over(self, other: Settings) -> Settings:
        """What is set here, and for what is left to its default that of the other.

        >>> both = Settings(time="t").over(Settings(horizons=(2, 9), time="s"))
        >>> both.horizons, both.time
        ((2, 9), 't')
        """
        defaults = Settings().table()
        own = {name: value for name, value in self.table().items() if value != defaults.get(name)}
        return Settings.of(other.table() | own)

    def table(self) -> dict[str, Any]:
        """As a mapping that TOML and JSON can hold."""
        return {key: _plain(value) for key, value in asdict(self).items() if value is not None and value != ()}

    def toml(self) -> str:
        """The text of a TOML file."""
        import tomli_w

        return tomli_w.dumps(self.table())


def _check_horizon(horizon: Any, step: float | None) -> None:
    """ValueError if a duration is shorter than the usual step: nothing happens within it."""
    if isinstance(horizon, str) and step is None:
        raise ValueError(f"The horizon {horizon!r} is a duration, and the stream has no time: give it in steps.")
    if isinstance(horizon, str) and step is not None and durations.seconds(horizon) < 0.99 * step:
        usual = durations.format_duration(step)
        raise ValueError(
            f"The horizon {horizon!r} is shorter than the usual step of the log, {usual}. "
            f"Use {usual.replace(' ', '')} or more, or a number of steps."
        )


def _check(question: GVF, table: Table, step: float | None) -> None:
    """ValueError if a question cannot be asked of a table."""
    _check_horizon(question.horizon, step)
    gamma, policy = question.constant_gamma(step), question.policy
    if gamma is not None and gamma > _MOST:
        raise ValueError(f"question {question.name!r}: γ must be below 1, and a horizon below 1e12 steps.")
    if policy is not None and policy.column is None:
        raise ValueError(f"question {question.name!r}: its policy must name the column of actions, column = …")
    if policy is not None and policy.behaviour in table.categories and policy.behaviour != "count":
        raise ValueError(f"question {question.name!r}: column {policy.behaviour!r} holds text, not probabilities.")


def _longest(gammas: Sequence[float]) -> float:
    """The longest horizon of these γ, in steps."""
    return 1.0 / (1.0 - min(max(gammas, default=0.0), _MOST))


def _warm_up_rows(rows: int, longest: float) -> int:
    """Four of the longest horizon, 500 to 10,000; of a log of fewer rows, half of them, and 500 or all at least.

    How long a longer log is makes no difference, so that one which is cut short gives the same predictions.
    """
    wanted = max(500, min(10_000, round(4.0 * longest)))
    return wanted if rows >= wanted else min(rows, max(500, rows // 2))


def default_horizons(rows: int, step: float | None) -> tuple[float | str, ...]:
    """Four, from two steps to a hundredth of the log; as round durations, if the length of a step is known in seconds.

    If the log is so short that fewer than four round durations fit, they are in steps.

    >>> default_horizons(5456, None)
    (2, 6, 18, 54)
    >>> default_horizons(129600, 60.0)
    ('2min', '15min', '3h', '24h')
    >>> default_horizons(100000, 0.01)
    ('20ms', '200ms', '1s', '10s')
    """
    longest = max(8.0, rows / 100)
    spread = [2.0 * (longest / 2.0) ** (i / 3) for i in range(4)]
    rounded = () if step is None else {min(_ROUND, key=lambda s: abs(math.log(s / (h * step)))) for h in spread}
    if step is None or len(rounded) < len(spread) or min(rounded) < 1.5 * step:
        return tuple(sorted({int(h) for h in spread}))
    return tuple(_written(s) for s in sorted(rounded))


def _written(s: float) -> str:
    for unit, size, least in (("d", 86400.0, 3), ("h", 3600.0, 1), ("min", 60.0, 1), ("s", 1.0, 1)):
        if s >= least * size:
            return f"{s / size:g}{unit}"
    return f"{s * 1e3:g}ms"


def default_features(table: Table, longest: float, warm: int = 500, every: bool = False) -> list[dict[str, Any]]:
    """Soft bins of every signal and of its traces up to twice the longest horizon, time of day, categories, missing.

    A signal that does not vary in the first ``warm`` rows is left out: it carries no information and would only take a
    share of the step size (unless ``every`` one is wanted). The same holds for text, and for text with more than 50
    different words in those rows.
    """
    first = next(table.blocks(warm))
    lowest, highest = (np.nanmin(first.values, 0, initial=np.inf), np.nanmax(first.values, 0, initial=-np.inf))
    chosen = [name for name, varies in zip(table.names, lowest < highest, strict=True) if varies]
    some: str | list[str] = chosen if 0 < len(chosen) < len(table.names) and not every else "*"
    steps = [4**k for k in range(1, 20) if 4**k <= 2.0 * longest] or [4]
    parts: list[f.Part] = [f.Bias(), f.SoftBins(some, bins=10), f.SoftBins(f.Trace(some, steps=steps), bins=10)]
    if table.dated:
        parts += [f.TimeOfDay(bins=bins) for bins in (6, 12, 24)]
    words = {name: set(first.labels[name].tolist()) - {None} for name in table.categories}
    parts += [f.OneHot(name) for name, found in words.items() if 2 <= len(found) <= WORDS]
    parts.append(f.Missing("*"))
    return [part.config() for part in parts]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, tuple | list) else value
