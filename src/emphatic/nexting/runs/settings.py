"""The settings of ``emphatic nexting``: declared here once, for flags, keywords, TOML files, checks and the docs.

The command line imports this module to know its flags. What takes long to import (NumPy, features, questions) is
therefore imported inside the functions that need it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emphatic.common.names import check_names, refusal, suggestion
from emphatic.common.settings import (
    MONTH,
    as_step_count,
    check_settings,
    declared_settings,
    is_list,
    is_share,
    merge_keywords,
    read_toml,
    setting,
    split_list,
)

if TYPE_CHECKING:
    from emphatic.features import Part
    from emphatic.gvfs.gvf import GVF
    from emphatic.nexting.tables import Table
    from emphatic.nexting.tables.stores import Request
    from emphatic.nexting.tables.table import ReadingOptions

__all__ = ["Settings", "default_features", "default_horizons"]

#: The engine whose bits do not depend on how many rows are learned from at once.
ENGINE = "sparse"
#: The false alarms per row and signal, by default, and the fewest: beyond that a score has no digits left.
FALSE_ALARM_RATE, LEAST_RATE = 2.5e-4, 1e-15

#: Round durations in seconds: 1 to 500 µs and ms, 1 to 30 s, 1 to 30 min, 1 to 48 h, 3 d to 2 years.
_ROUND = [
    *(s / unit for unit in (1e6, 1e3) for s in (1, 2, 5, 10, 20, 50, 100, 200, 500)),
    *(s * unit for unit in (1.0, 60.0) for s in (1, 2, 5, 10, 15, 30)),
    *(3600.0 * h for h in (1, 2, 3, 6, 12, 24, 48)),
    *(86400.0 * d for d in (3, 7, 14, 30, 60, 90, 180, 365, 730)),
]
#: The same in months, for rows of a month or longer.
_ROUND_MONTHS = (1, 2, 3, 6, 12, 24, 36, 60, 120, 240, 600, 1200)
#: The largest γ: beyond it, 1 − γ has few digits left.
_MOST = 1.0 - 1e-12
#: A column of text with more different words than this is not used for features: it holds names, not states.
WORDS = 50

#: The headings of flags in the help, after those that matter most, which have none.
_READ, _PREDICT = "What to read", "What to predict"
#: The commands that take a setting: on a file, on a pipe, and as a service.
_FILE, _FILE_AND_PIPE, _EVERYWHERE = ("nexting",), ("nexting", "pipe"), ("nexting", "pipe", "serve")


def _one_or_several(value: Any, function: str) -> tuple[Any, ...]:
    return (value,) if isinstance(value, str | int | float) else tuple(value)


def _pivot_columns(value: Any, function: str) -> Any:
    from emphatic.nexting.tables.table import pivot_columns

    return pivot_columns(value, function) if isinstance(value, str | list) else value


def _is_duration(value: Any, *words: str) -> bool:
    """Whether a value is a duration, a number above 0, or one of these words."""
    from emphatic.common.settings import seconds

    if isinstance(value, int | float) and not isinstance(value, bool):
        return 0.0 < value < math.inf
    try:
        return value in words or seconds(value) > 0.0
    except ValueError:
        return False


def _topic_names(value: Any, function: str) -> Any:
    from emphatic.nexting.tables.table import topic_names

    return topic_names(value, function)


def _duration(text: str) -> float | None:
    from emphatic.gvfs import durations

    try:
        return durations.seconds(text)
    except ValueError:
        return None


def _time_range(text: str, now: float) -> tuple[float, float] | None:
    """The first moment of a range and the one after the last, in seconds since 1970; None if it is no range."""
    from emphatic.nexting.tables.fields import parse_time

    begin, slash, end = text.partition("/")
    if not slash:
        duration = _duration(text)
        return None if duration is None else (now - duration, now)
    moments = (parse_time(begin.strip(), "iso"), parse_time(end.strip(), "iso") if end.strip() else now)
    return moments if moments[0] < moments[1] else None


def _is_rate(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0.0 < value < math.inf


def _is_alarm_rate(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and LEAST_RATE <= value < 1


def _is_table_of_lists(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(signals, Sequence) and not isinstance(signals, str) for signals in value.values()
    )


@dataclass(frozen=True)
class Settings:
    """What to predict and how. The default of a setting that is None is found from the table.

    Args:
        predict: The columns to predict.
        horizons: The averaging horizons, in steps or as durations.
        time: The column of time stamps; False for none.
        delimiter: The column separator of CSV.
        skip_lines: The lines of CSV above the header that are no part of the table.
        header: The line of the header of CSV after those, 0 for none; or the names of the columns.
        sort: Whether the rows are sorted by time.
        pivot: The sensor and value columns of a table in long format; False to read it as it is.
        topics: The topics of a robot log to read.
        resample: The regular step of time that rows are put on: "auto", a duration, or "none".
        max_age: How long a value of a sensor is held where rows are put on a step.
        missing: Values that stand for a missing one.
        keep_sentinels: Whether readings that are far from all others are learned from as they are.
        by: The column that tells machines apart; each is learned from by itself.
        share: Whether all machines are learned from with one set of weights.
        sections: The machines that have a section of their own in the report.
        increments: The counters that are learned as their increments; False for none.
        query: The query of a database or a time series store.
        range: What to read of a time series store: a duration up to now, or START/END.
        step: The time between two rows of a time series store.
        rate: α of the learners, as a factor of 1 / mean φ·φ.
        rule: The rule that learns.
        stepsize: The step-size method.
        features: The features, as a list of configurations.
        related: For each signal, the signals that its questions see.
        questions: Questions besides every signal at every horizon.
        ask: Questions in one line of text, such as "P(power > 5 within 1h)".
        weighted: Whether the weighted mean of what follows is asked for too, of each signal at each horizon.
        coverage: The target coverage of the intervals.
        false_alarm_rate: The target number of false alarms per row and signal.
    """

    predict: tuple[str, ...] | None = setting(
        help="Columns to predict, comma-separated; default: every numeric column that is a signal.",
        must="a list",
        is_valid=is_list,
        needs_items=True,
        from_text=split_list,
        from_keyword=_one_or_several,
        commands=_EVERYWHERE,
    )
    horizons: tuple[float | str, ...] | None = setting(
        help="Horizons, comma-separated: steps (2,9,36) or durations (2min,1h,1d,1mo,1y).",
        must="a list",
        is_valid=is_list,
        needs_items=True,
        from_text=lambda text: tuple(map(as_step_count, split_list(text))),
        from_keyword=_one_or_several,
        commands=_EVERYWHERE,
    )
    time: str | bool | None = setting(
        help="Column of time stamps, '' for none; default: detected.",
        must="the name of a column, or false",
        is_valid=lambda value: value is False or isinstance(value, str),
        from_text=lambda text: text or False,
        commands=_FILE_AND_PIPE,
    )
    delimiter: str | None = setting(
        help="Column separator of CSV; default: detected.",
        must="text",
        is_valid=lambda value: isinstance(value, str),
        from_text=lambda text: "\t" if text == "\\t" else text,
        panel=_READ,
        commands=_FILE_AND_PIPE,
    )
    skip_lines: int | None = setting(
        help="Lines above the header of CSV to skip; default: detected.",
        must="a number of lines",
        is_valid=lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 0,
        flag_type=int,
        panel=_READ,
        commands=_FILE,
    )
    header: int | str | tuple[str, ...] | None = setting(
        help="Line of the header of CSV (1 is the first after --skip-lines, 0 for none), or the names of the columns, "
        "comma-separated; default: detected.",
        must="the number of a line, or names of columns",
        is_valid=lambda value: isinstance(value, int | str | tuple) and not isinstance(value, bool),
        panel=_READ,
        commands=_FILE,
    )
    sort: bool | None = setting(
        help="Sort the rows by time, in memory.",
        must="true or false",
        is_valid=lambda value: isinstance(value, bool),
        flag_type=bool,
        from_text=lambda is_given: is_given or None,
        panel=_READ,
        commands=_FILE,
    )
    pivot: tuple[str, ...] | bool | None = setting(
        help="Sensor and value columns of a table in long format: sensor,value; '' for none; default: detected.",
        must="a list of two columns, or false",
        is_valid=lambda value: value is False or isinstance(value, tuple),
        from_text=lambda text: text or False,
        from_keyword=_pivot_columns,
        panel=_READ,
        commands=_FILE_AND_PIPE,
    )
    topics: tuple[str, ...] | None = setting(
        help="Topics of a robot log (MCAP, ROS 2 bag) to read, comma-separated; default: all.",
        must="a list",
        is_valid=is_list,
        from_keyword=_topic_names,
        panel=_READ,
        commands=_FILE,
    )
    resample: str | float | None = setting(
        help="Resample to a regular time step: auto (if sensors report at different times), a duration "
        "(5min), or none; default: auto.",
        must="auto, none or a duration such as 5min",
        is_valid=lambda value: _is_duration(value, "auto", "none"),
        commands=_FILE_AND_PIPE,
    )
    max_age: str | float | None = setting(
        help="After resampling, how long a last value is used (1h); default: by how often the sensor reports.",
        must="a duration such as 1h",
        is_valid=_is_duration,
    )
    missing: tuple[str | float, ...] | None = setting(
        help="Codes for a missing value, comma-separated: -999,9999,err; default: none.",
        must="a list of numbers and words",
        is_valid=is_list,
        from_text=split_list,
        from_keyword=_one_or_several,
        panel=_READ,
        commands=_FILE_AND_PIPE,
    )
    keep_sentinels: bool | None = setting(
        help="Learn from -999, 65535 and other outliers as they are; default: no.",
        must="true or false",
        is_valid=lambda value: isinstance(value, bool),
    )
    by: str | None = setting(
        help="Column with the name of the machine: each machine is learned separately; default: none.",
        must="the name of a column",
        is_valid=lambda value: isinstance(value, str) and value != "",
        commands=_FILE,
    )
    share: bool | None = setting(
        help="With 'by': learn one set of weights from all machines; default: no.",
        must="true or false",
        is_valid=lambda value: isinstance(value, bool),
    )
    sections: tuple[str, ...] | None = setting(
        help="With 'by': machines with their own section in the report, or all; default: all of up to four.",
        must="a list",
        is_valid=is_list,
        from_keyword=_one_or_several,
    )
    increments: tuple[str, ...] | bool | None = setting(
        help="Counters to learn as their increments, false for none; default: detected.",
        must="a list of columns, or false",
        is_valid=lambda value: value is False or isinstance(value, tuple),
        from_keyword=lambda value, function: value if value is False else _one_or_several(value, function),
    )
    query: str | None = setting(
        help="Query of a database or time series store, in its own language; default: its only table.",
        must="text",
        is_valid=lambda value: isinstance(value, str) and bool(value.strip()),
        panel=_READ,
        commands=_FILE,
    )
    range: str | None = setting(
        help="Time range of a time series store: 30d (the last), or START/END; default: 7d for Prometheus, else all.",
        must="a duration such as 30d, or START/END such as 2026-01-01/2026-02-01",
        is_valid=lambda value: isinstance(value, str) and _time_range(value, math.inf) is not None,
        panel=_READ,
        commands=_FILE,
    )
    step: str | None = setting(
        help="Time between rows from Prometheus or VictoriaMetrics, such as 5min; default: 1min.",
        must="a duration such as 1min",
        is_valid=lambda value: isinstance(value, str) and _duration(value) is not None,
        panel=_READ,
        commands=_FILE,
    )
    rate: float | None = setting(
        help="Step size of the learners as a multiple of 1 / mean φ·φ, or with a stepsize, of the method's step size; "
        "default: 0.1, for questions with a policy 0.3, with a stepsize 1.",
        must="a number above 0",
        is_valid=_is_rate,
    )
    rule: str | None = setting(
        help="Name of the learning rule; default: bounded_etd for questions with a policy, else true_online_etd.",
        must="text",
        is_valid=lambda value: isinstance(value, str),
    )
    stepsize: str | Mapping[str, Any] | None = setting(
        help="Step-size method (auto, autostep, …); default: a fixed step size.",
    )
    features: tuple[Mapping[str, Any], ...] | None = setting(
        help="Features, each a table with its kind and options; default: chosen for the table.",
        must="a list",
        is_valid=is_list,
    )
    related: Mapping[str, Sequence[str]] | None = setting(
        help="For each signal, the others that its questions use; default: all, or of very many the most correlated.",
        must="a table of lists of signals",
        is_valid=_is_table_of_lists,
    )
    questions: tuple[Mapping[str, Any], ...] = setting(
        (), help="Questions (GVFs) in addition to every signal at every horizon.", must="a list", is_valid=is_list
    )
    ask: tuple[str, ...] = setting(
        (),
        help="A question in one line, such as 'P(power > 5 within 1h)' or 'power at +6h'; repeatable.",
        must='a list of questions, such as ["power at +6h"]',
        is_valid=lambda value: is_list(value) and all(isinstance(text, str) for text in value),
        flag_type=list[str],
        from_text=lambda texts: tuple(texts) or None,
        from_keyword=_one_or_several,
        commands=_EVERYWHERE,
    )
    weighted: bool | None = setting(
        help="Ask for the weighted mean of what follows too, of each signal at each horizon.",
        must="true or false",
        is_valid=lambda value: isinstance(value, bool),
        flag_type=bool,
        from_text=lambda is_given: is_given or None,
        commands=_FILE_AND_PIPE,
    )
    coverage: float = setting(
        0.8,
        help="Target coverage of the intervals, between 0 and 1; default: 0.8.",
        must="a number between 0 and 1",
        is_valid=is_share,
        flag_type=float,
        panel=_PREDICT,
        commands=_FILE_AND_PIPE,
    )
    false_alarm_rate: float = setting(
        FALSE_ALARM_RATE,
        help="Target rate of false alarms, per row and signal; default: 0.00025.",
        must=f"a number of alarms per row from {LEAST_RATE:g} to below 1",
        is_valid=_is_alarm_rate,
        flag_type=float,
        panel=_PREDICT,
        commands=_FILE_AND_PIPE,
    )

    @classmethod
    def read(cls, path: str | Path) -> Settings:
        """From a TOML file; ValueError if it is not TOML or has unknown settings."""
        return cls.of(read_toml(path), str(path))

    @classmethod
    def of(cls, table: Mapping[str, Any], name: str = "settings") -> Settings:
        """From a mapping of settings; ``name`` says where it comes from, in messages."""
        check_names(table, declared_settings(cls), name)
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
            for key, value in table.items()
        }
        settings = cls(**values)
        try:
            settings.check(name)
        except RecursionError:
            raise ValueError(f"{name}: the settings are nested too deeply.") from None
        return settings

    @classmethod
    def combine(cls, config: Any = None, name: str = "nexting", **keywords: Any) -> Settings:
        """Settings from a TOML file, a mapping or ``Settings``, overridden by the keywords that are not None."""
        if config is None or isinstance(config, Mapping):
            settings = cls.of(config or {}, name)
        elif isinstance(config, cls):
            settings = config
        elif isinstance(config, str | os.PathLike):
            settings = cls.read(Path(config))
        else:
            raise refusal("config", name, "be the path of a TOML file, a mapping or Settings", repr(config))
        settings = replace(settings, **merge_keywords(cls, keywords, name))
        settings.check(name)
        if settings.by is None and (settings.share or settings.sections):
            raise ValueError(f"{name}: 'share' and 'sections' need the column with the machines: by=…")
        return settings

    def check(self, name: str = "settings") -> None:
        """Raise ValueError if a setting is not valid; ``name`` says where the settings come from."""
        from emphatic import stepsizes
        from emphatic.features import Features

        check_settings(self, name)
        if self.stepsize is not None:
            stepsizes.get(self.stepsize)
        for horizon in self.horizons or ():
            _check_form_of_horizon(horizon, name)
        for table in self.questions:
            _check_question_table(table, name)
        _check_asked(self.ask, name)
        if self.features is not None:
            Features.from_config(self.features)

    def filled(self, table: Table, rows: int) -> Settings:
        """With the defaults for this table in the place of what is None.

        Args:
            table: The table to learn from.
            rows: Its number of rows.
        """
        from emphatic.nexting.runs.learning import MANY, choose_related, is_large

        predict = self.predict if self.predict is not None else table.names
        for signal in predict:
            if signal not in table.names:
                known = ", ".join(table.names)
                if signal in table.categories:
                    raise ValueError(
                        f"{table.name}: the column {signal!r} is text, and only numeric columns can be predicted. "
                        f"Text columns with 2 to {WORDS} distinct values in the first rows are used as features. "
                        f"Numeric columns: {known}."
                    )
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
        longest = _longest(_gammas(horizons, step))
        warm = replace(self, horizons=tuple(horizons)).warm_up_rows(step)
        settings = replace(
            self,
            predict=tuple(predict),
            horizons=tuple(horizons),
            related=self._related(table),
            features=self.features
            or tuple(default_features(table, longest, warm, rows, self.related is not None, len(predict) > MANY)),
            time=False if self.time is False else table.time,
        )
        if self.features is None and self.related is None and is_large(settings, len(table.names)):
            every = tuple(default_features(table, longest, warm, rows, True, len(predict) > MANY))
            settings = replace(settings, features=every, related=choose_related(table, warm, predict))
        for question in settings.gvfs():
            _check(question, table, step)
        if settings.ask:
            from emphatic.nexting.answers.language import parse_all

            for asked in parse_all(settings.ask):
                asked.check(table.names)
                asked.span(step)
        return settings

    def rows_to_warm_up(self, table: Table, rows: int) -> int:
        """The rows of the table, of ``rows`` in all, that ranges, categories and means are found from."""
        clock = table.clock()
        return min(rows, self.warm_up_rows(None if clock is None else clock.step))

    def warm_up_rows(self, step: float | None) -> int:
        """The rows to warm up on: ``emphatic.hordes.horde.warm_up_rows`` of all questions.

        Args:
            step: The usual step of the times, in seconds; None if it is not known. Horizons as durations then do not
                count.
        """
        from emphatic.gvfs.gvf import GVF
        from emphatic.hordes.horde import warm_up_rows

        known = step is not None and 0.0 < step < math.inf
        questions = [GVF("signal", horizon=horizon) for horizon in self.horizons or ()]
        questions += [GVF.from_config(table) for table in self.questions]
        return warm_up_rows(
            question.constant_gamma(step) for question in questions if known or not isinstance(question.horizon, str)
        )

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
        return _gammas(self.horizons or (), step)

    def reading_options(self) -> ReadingOptions:
        """What the settings say about the readings of a live stream."""
        from emphatic.nexting.tables.table import ReadingOptions, arrange

        pivot: Any = self.pivot
        arrangement = arrange(pivot, self.resample, self.max_age, "nexting")
        return ReadingOptions(self.time, self.words(), *arrangement, tuple(map(str, self.missing or ())))

    def names_columns(self, columns: Sequence[str]) -> set[str]:
        """Those of these columns that the settings name: to predict, or in features and questions."""
        named = {*(self.predict or ()), *(self.increments if isinstance(self.increments, tuple) else ())}
        text = repr((self.features, self.questions, self.related))
        return {column for column in columns if column in named or column in text}

    def words(self) -> set[str]:
        """The columns whose words features or questions name: ON and OFF stay words there."""
        from emphatic.gvfs.gvf import GVF

        policies = [GVF.from_config(table).policy for table in self.questions]
        one_hot = [feature["of"] for feature in self.features or () if feature["kind"] == "one_hot"]
        return {*one_hot, *(policy.column for policy in policies if policy is not None and policy.column is not None)}

    def request(self, now: float) -> Request:
        """Which rows of a database or a time series store are read.

        Args:
            now: The present moment, in seconds since 1970.
        """
        from emphatic.nexting.tables.stores import Request

        time_range = None if self.range is None else _time_range(self.range, now)
        return Request(self.query, time_range, None if self.step is None else _duration(self.step))

    def learned(self) -> list[tuple[str, float | str]]:
        """The signals and horizons of which TD learns weighted means: all that is predicted, then those asked for."""
        pairs: list[tuple[str, float | str]] = [(name, h) for name in self.predict or () for h in self.horizons or ()]
        if any("@" in text for text in self.ask):
            from emphatic.nexting.answers.language import parse_all

            asked = [question for question in parse_all(self.ask) if question.kind == "weighted"]
            pairs += [(q.signal, q.length) for q in asked if q.signal is not None and q.signal in (self.predict or ())]
        return list(dict.fromkeys(pairs))

    def gvfs(self) -> list[GVF]:
        """The weighted means that TD learns, and the questions of the settings."""
        from emphatic.gvfs.gvf import GVF

        learned = [GVF(signal, horizon=horizon) for signal, horizon in self.learned()]
        return learned + [GVF.from_config(table) for table in self.questions]

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
        changed = {name: value for name, value in self.table().items() if value != defaults.get(name)}
        return Settings.of(other.table() | changed)

    def table(self) -> dict[str, Any]:
        """As a mapping that TOML and JSON can hold."""
        return {key: _plain(value) for key, value in asdict(self).items() if value is not None and value != ()}

    def toml(self) -> str:
        """The text of a TOML file."""
        import tomli_w

        return tomli_w.dumps(self.table())


def _check_form_of_horizon(horizon: Any, name: str) -> None:
    """ValueError if a horizon is neither a number of steps nor a duration."""
    from emphatic.gvfs.gvf import GVF

    if isinstance(horizon, bool):
        raise ValueError(f"{name}: 'horizons' must be steps or durations. Got {horizon!r} instead.")
    try:
        GVF("signal", horizon=horizon)
    except ValueError as error:
        raise ValueError(str(error).replace("The 'horizon' parameter of GVF", f"{name}: 'horizons'")) from None


def _check_question_table(table: Any, name: str) -> None:
    """ValueError if an entry of ``questions`` is not the configuration of a GVF that can be asked of a table."""
    from emphatic.gvfs.gvf import GVF, Policy

    question = GVF.from_config(table)
    if not isinstance(question.name, str) or question.name in ("row", "time"):
        raise ValueError(f"{name}: a question's name must be text other than 'row' and 'time'. Got {table!r}.")
    if not isinstance(question.policy, Policy | None):
        raise ValueError(f"{name}: a question's 'policy' must be a table. Got {question.policy!r} instead.")


def _check_asked(texts: Sequence[str], name: str) -> None:
    """ValueError for the first text that is not a question."""
    if not texts:
        return
    from emphatic.nexting.answers.language import parse_all

    try:
        parse_all(texts)
    except ValueError as error:
        where = f"{name}: " if name.endswith(".toml") else ""
        raise ValueError(f"{where}{error}") from None


def _check_horizon(horizon: Any, step: float | None) -> None:
    """ValueError if a duration is shorter than the usual step: nothing happens within it."""
    from emphatic.gvfs import durations

    if isinstance(horizon, str) and step is None:
        raise ValueError(f"The horizon {horizon!r} is a duration, and the stream has no time: give it in steps.")
    if isinstance(horizon, str) and step is not None and durations.seconds(horizon) < 0.99 * step:
        usual = durations.format_duration(step)
        raise ValueError(
            f"The horizon {horizon!r} is shorter than a typical step of the log, {usual}. "
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


def _gammas(horizons: Sequence[float | str], step: float | None) -> list[float]:
    """γ at each horizon; 0 at a horizon of one step."""
    from emphatic.gvfs.gvf import GVF

    return [GVF("signal", horizon=horizon).constant_gamma(step) or 0.0 for horizon in horizons]


def _longest(gammas: Sequence[float]) -> float:
    """The longest horizon of these γ, in steps."""
    return 1.0 / (1.0 - min(max(gammas, default=0.0), _MOST))


def default_horizons(rows: int, step: float | None) -> tuple[float | str, ...]:
    """Four, from two steps to a hundredth of the log; as round durations, if the length of a step is known in seconds.

    If the log is so short that fewer than four round durations fit, they are in steps.

    >>> default_horizons(5456, None)
    (2, 6, 18, 54)
    >>> default_horizons(4800, 365.2425 * 86400.0 / 12.0)
    ('2mo', '6mo', '1y', '5y')
    >>> default_horizons(129600, 60.0)
    ('2min', '15min', '3h', '24h')
    >>> default_horizons(100000, 0.01)
    ('20ms', '200ms', '1s', '10s')
    """
    longest = max(8.0, rows / 100)
    spread = [2.0 * (longest / 2.0) ** (i / 3) for i in range(4)]
    if step is not None and step >= 0.99 * MONTH:
        months = step / MONTH
        counts = sorted({min(_ROUND_MONTHS, key=lambda m: abs(math.log(m / (h * months)))) for h in spread})
        if len(counts) == len(spread) and counts[0] >= 1.5 * months:
            return tuple(f"{count // 12}y" if count % 12 == 0 else f"{count}mo" for count in counts)
        return tuple(sorted({int(h) for h in spread}))
    rounded = () if step is None else {min(_ROUND, key=lambda s: abs(math.log(s / (h * step)))) for h in spread}
    if step is None or len(rounded) < len(spread) or min(rounded) < 1.5 * step:
        return tuple(sorted({int(h) for h in spread}))
    return tuple(_written(s) for s in sorted(rounded))


def _written(s: float) -> str:
    for unit, size, least in (("d", 86400.0, 3), ("h", 3600.0, 1), ("min", 60.0, 1), ("s", 1.0, 1)):
        if s >= least * size:
            return f"{s / size:g}{unit}"
    return f"{s * 1e3:g}ms"


def default_features(
    table: Table, longest: float, warm: int = 500, rows: int = 0, every: bool = False, many: bool = False
) -> list[dict[str, Any]]:
    """Soft bins of every signal and of its traces up to twice the longest horizon, the calendar, categories, missing.

    A signal that does not vary in the first ``warm`` rows is left out: it carries no information and would only take a
    share of the step size (unless ``every`` one is wanted). The same holds for text, and for text with more than 50
    different words in those rows. The time of year is used where the ``rows`` of the table span two years or more. The
    calendar is coarser where ``many`` signals are predicted: each group of them has features of its own.
    """
    import numpy as np

    from emphatic import features as f
    from emphatic.nexting.tables import ReadingGuard

    block = next(table.blocks(warm))
    values, _ = ReadingGuard(len(table.names)).warm_up(block.values).judge(block.values)
    lowest, highest = np.nanmin(values, 0, initial=np.inf), np.nanmax(values, 0, initial=-np.inf)
    varying = [name for name, varies in zip(table.names, lowest < highest, strict=True) if varies]
    signals: str | list[str] = varying if 0 < len(varying) < len(table.names) and not every else "*"
    steps = [4**k for k in range(1, 20) if 4**k <= 2.0 * longest] or [4]
    features: list[f.Part] = [f.Bias(), f.SoftBins(signals, bins=10)]
    features.append(f.SoftBins(f.Trace(signals, steps=steps), bins=10))
    if table.dated:
        features += _calendar(table, rows, many)
    words = {name: set(block.labels[name].tolist()) - {None} for name in table.categories}
    features += [f.OneHot(name) for name, values in words.items() if 2 <= len(values) <= WORDS]
    features.append(f.Missing("*"))
    return [feature.config() for feature in features]


def _calendar(table: Table, rows: int, many: bool) -> list[Part]:
    """Time of day and of week where rows are finer than these, and of year where they are and span two or more."""
    from emphatic import features as f
    from emphatic.features.parts import DAY, YEAR

    clock = table.clock()
    step = clock.step if clock is not None and clock.step > 0 else DAY  # no time has passed: NaN, 0
    parts: list[Part] = []
    if step < 0.75 * DAY and many:
        parts += [f.TimeOfDay(bins=12), f.TimeOfWeek(bins=7)]
    elif step < 0.75 * DAY:
        parts += [f.TimeOfDay(bins=bins) for bins in (6, 12, 24)]
        parts.append(f.TimeOfWeek(bins=28))
    elif step < 1.5 * DAY:
        parts.append(f.TimeOfWeek(bins=7))
    if step < 8.0 * DAY and rows * step >= 2.0 * YEAR:
        parts.append(f.TimeOfYear(bins=12))
    return parts


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, tuple | list) else value
