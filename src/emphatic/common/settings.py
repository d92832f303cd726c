"""Settings: each is declared once, as a field of a dataclass, and everything else follows from the declaration.

A declaration holds the name, the type and the default (as every field does), what a value must be, the help text, how
a flag's text becomes a value, and the commands it applies to. From it follow the flags of the command line
(``emphatic.nexting.cli.terminal.with_settings``), the keys of a TOML file, the checks, their messages, and the page
``docs/settings.md``.

The command line imports declarations whenever it starts, so this module and theirs import nothing that takes long.

Durations are written as people do: 90s, 2min, 1.5h, 1d, 1mo, 1y.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

__all__ = [
    "MONTH",
    "YEAR",
    "Setting",
    "as_step_count",
    "check_settings",
    "declared_settings",
    "format_duration",
    "is_list",
    "is_share",
    "merge_keywords",
    "parse_toml",
    "read_toml",
    "seconds",
    "setting",
    "split_list",
]


@dataclass(frozen=True)
class Setting:
    """What is declared of a setting besides its name, type and default.

    Args:
        help: What it means: the help of its flag, and its line on the reference page.
        must: What a value must be, as it stands in a message: "'coverage' must be a number between 0 and 1."
        is_valid: Whether a value is one. None, where that is the default, is always valid.
        commands: The commands that have it as a flag.
        flag_type: The type of the flag; ``bool`` is a switch, without a value.
        panel: The heading of the flag in the help, if it has one of its own.
        from_text: How the flag's text becomes a value.
        from_keyword: How a keyword of a Python function becomes a value; also given the name of that function.
        flag: The flag, where it is not the name with dashes.
        needs_items: Whether an empty list is refused.
    """

    help: str
    must: str = ""
    is_valid: Callable[[Any], bool] = lambda value: True
    commands: tuple[str, ...] = ()
    flag_type: type = str
    panel: str | None = None
    from_text: Callable[[Any], Any] = lambda text: text
    from_keyword: Callable[[Any, str], Any] = lambda value, function: value
    flag: str | None = None
    needs_items: bool = False


def setting(default: Any = None, *, default_factory: Callable[[], Any] | None = None, **declaration: Any) -> Any:
    """Declare a field of a dataclass as a setting; the keywords are those of ``Setting``."""
    metadata = {"setting": Setting(**declaration)}
    if default_factory is not None:
        return field(default_factory=default_factory, metadata=metadata)
    return field(default=default, metadata=metadata)


def declared_settings(kind: type) -> dict[str, tuple[Field[Any], Setting]]:
    """The settings that a dataclass declares, by name."""
    return {entry.name: (entry, entry.metadata["setting"]) for entry in fields(kind) if "setting" in entry.metadata}


def check_settings(settings: object, where: str) -> None:
    """Raise ValueError for the first value that is not what its declaration says it must be.

    Args:
        settings: An instance of a dataclass that declares settings.
        where: The file or function that the values come from, for the message.
    """
    for name, (entry, declaration) in declared_settings(type(settings)).items():
        value = getattr(settings, name)
        if value is None and entry.default is None:
            continue
        if not declaration.is_valid(value):
            raise ValueError(f"{where}: {name!r} must be {declaration.must}. Got {value!r} instead.")
        if declaration.needs_items and len(value) == 0:
            raise ValueError(f"{where}: {name!r} must not be empty; leave it out for the default.")


def read_toml(path: str | Path, refused: str = "this is not TOML") -> dict[str, Any]:
    """The settings in a TOML file; ValueError, with the path, if it cannot be read as one."""
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: the settings cannot be read: {error.strerror}.") from None
    return parse_toml(text, str(path), refused)


def parse_toml(text: bytes, where: str, refused: str = "this is not TOML") -> dict[str, Any]:
    """The settings in a TOML text; ValueError, which says where it comes from, if it is none."""
    import tomllib  # late: a run without a file of settings does not need it

    try:
        return tomllib.loads(text.decode("utf-8"))
    except ValueError as error:
        raise ValueError(f"{where}: {refused}: {error}.") from None
    except RecursionError:
        raise ValueError(f"{where}: the settings are nested too deeply.") from None


def is_list(value: object) -> bool:
    """Whether a value is a list, which settings hold as a tuple."""
    return isinstance(value, tuple)


def is_share(value: object) -> bool:
    """Whether a value is a number between 0 and 1, both excluded."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1


def split_list(text: str) -> tuple[str, ...]:
    """The items of a comma-separated list; an item that has a comma in it is written in double quotes.

    >>> split_list('a, "b, c"')
    ('a', 'b, c')
    """
    return tuple(item.strip() for item in next(csv.reader([text], skipinitialspace=True), [""]))


def as_step_count(text: str) -> float | str:
    """A horizon as it is written: a number of steps as a number, a duration as text.

    >>> as_step_count("9"), as_step_count("2.5"), as_step_count("15min")
    (9, 2.5, '15min')
    """
    try:
        steps = float(text)
    except ValueError:
        return text
    return int(steps) if steps.is_integer() else steps


def merge_keywords(kind: type, keywords: Mapping[str, Any], function: str) -> dict[str, Any]:
    """The keywords of a Python function that are not None, as values of the settings that they name."""
    declared = declared_settings(kind)
    return {
        name: declared[name][1].from_keyword(value, function) for name, value in keywords.items() if value is not None
    }


# ---------------------------------------------------------------------- durations


#: The mean year and month of the calendar, in seconds.
YEAR = 365.2425 * 86400.0
MONTH = YEAR / 12.0
_UNITS = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "day": 86400.0, "w": 604800.0}
_UNITS |= {"mo": MONTH, "month": MONTH, "y": YEAR, "year": YEAR}
_WRITTEN = re.compile(rf"\s*([0-9]*\.?[0-9]+(?:e-?[0-9]+)?)\s*({'|'.join(sorted(_UNITS, key=len, reverse=True))})\s*")


def seconds(text: str) -> float:
    """The seconds of a duration, above 0.

    >>> seconds("2min"), seconds("1.5 h"), seconds("250ms")
    (120.0, 5400.0, 0.25)
    >>> seconds("12mo") == seconds("1y") == 365.2425 * 86400.0
    True
    """
    match = _WRITTEN.fullmatch(text) if isinstance(text, str) else None
    duration = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if not 0.0 < duration < math.inf:
        raise ValueError(f"{text!r} is not a duration such as 90s, 2min, 1.5h or 1d")
    return duration


def format_duration(duration: float) -> str:
    """A duration in the largest unit that suits it.

    >>> format_duration(60.0), format_duration(5400.0), format_duration(0.11)
    ('1 min', '1.5 h', '0.11 s')
    >>> format_duration(3.0 * MONTH)
    '3 mo'
    """
    for unit, size in (("y", YEAR), ("mo", MONTH)):
        if duration >= size and (duration / size) % 1.0 < 1e-9:
            return f"{duration / size:g} {unit}"
    for unit in ("d", "h", "min"):
        if duration >= _UNITS[unit]:
            return f"{duration / _UNITS[unit]:.3g} {unit}"
    return f"{duration:.3g} s"
