"""The settings of a sweep as given on the command line, or in a TOML file."""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from emphatic import problems, rules
from emphatic.common.names import check_names
from emphatic.studies.grid import find_rule, parameters
from emphatic.studies.least_squares_rule import LEAST_SQUARES
from emphatic.studies.recorded import Recorded

__all__ = ["Order", "resolve"]

#: The default grid.
_USUAL = {"rule": "td, true_online_td, etd, true_online_etd", "alpha": "2^-12..2^-1", "lambda": "0, .5, .9, 1"}
#: The types of these settings in a file; the others are checked where they are used.
_KINDS: dict[str, tuple[Any, str]] = {
    "problem": (str, "a name or a path"),
    "options": (dict, "a table, [options]"),
    "predict": (str, "the name of a column"),
    "horizon": (int | float | str, "steps or a duration"),
    "time": (str | bool, "the name of a column, or false"),
    "delimiter": (str, "text"),
}


@dataclass(frozen=True)
class Order:
    """What to sweep. ``problem`` is a name, with ``options`` of its function, or the path of a log.

    ``grid`` is a list of grids, as in ``[[grid]]`` of a file. A log needs ``predict``, a column, and ``horizon``.
    """

    problem: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    grid: tuple[Mapping[str, Any], ...] = ()
    runs: int | None = None
    steps: int | None = None
    every: int | None = None
    points: int | list[int] | None = None
    seed: int | None = None
    theta: list[float] | str | None = None
    rerun: int | None = None
    predict: str | None = None
    horizon: float | str | None = None
    time: str | bool | None = None
    delimiter: str | None = None

    @staticmethod
    def read(path: Path) -> dict[str, Any]:
        """The settings in a TOML file."""
        try:
            found = tomllib.loads(path.read_text("utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path}: not a TOML file: {error}.") from None
        except RecursionError:
            raise ValueError(f"{path}: the settings are nested too deeply.") from None
        check_names(found, [one.name for one in fields(Order)], str(path))
        grids = found.get("grid", [])
        if not isinstance(grids, list) or not all(isinstance(one, dict) for one in grids):
            raise ValueError(f"{path}: grids are written as [[grid]].")
        for key, (kind, wanted) in _KINDS.items():
            if key in found and not isinstance(found[key], kind):
                raise ValueError(f"{path}: {key!r} must be {wanted}. Got {found[key]!r}.")
        return found

    @staticmethod
    def usual(rule: str | None) -> dict[str, Any]:
        """The default grid of these rules; without λ if none of them uses it."""
        found = [resolve(one) for one in _listed(rule or _USUAL["rule"])]
        known = {name for one in found if not isinstance(one, str) for name in parameters(one)}
        return {name: value for name, value in _USUAL.items() if name in ("rule", *known) or not known}

    @property
    def is_log(self) -> bool:
        """Whether the problem is a file."""
        known = self.problem.replace("-", "_") in problems.names()
        return not known and (Path(self.problem).suffix != "" or Path(self.problem).is_file())

    @property
    def grids(self) -> list[dict[str, Any]]:
        """The grids, rules as lists; those that are written MODULE:NAME are imported."""
        grids = [dict(one) | {"rule": _listed(one.get("rule"))} for one in self.grid or (_USUAL,)]
        return [one | {"rule": resolve(one["rule"])} for one in grids]

    def source(self) -> Callable[..., Any] | Recorded:
        """The problem or log to learn from."""
        if not self.is_log:
            for name in ("predict", "horizon", "time", "delimiter"):
                if getattr(self, name) is not None:
                    raise ValueError(f"--{name} goes with a log, and {self.problem!r} is a problem.")
            made = problems.get(self.problem)
            there = inspect.signature(made).parameters
            for name in self.options:
                if name not in there or name == "seed":
                    known = ", ".join(one for one in there if one != "seed") or "none"
                    raise ValueError(f"problem {self.problem!r} has no option {name!r}; it has {known}.")
            return functools.partial(made, **self.options) if self.options else made
        for name, value in (("steps", self.steps), ("seed", self.seed), ("with", self.options or None)):
            if value is not None:
                raise ValueError(f"--{name} goes with a problem, and {self.problem!r} is a log, used as it is.")
        if self.predict is None or self.horizon is None:
            raise ValueError("a log needs the column to predict and how far ahead: --predict COLUMN --horizon STEPS.")
        return Recorded.table(self.problem, self.predict, self.horizon, time=self.time, delimiter=self.delimiter)

    @property
    def arguments(self) -> dict[str, Any]:
        """The other arguments of ``sweep``."""
        names = ("runs", "steps", "every", "points", "seed", "theta", "rerun")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    @property
    def name(self) -> str:
        """The name of the output folder: the problem with its options, or the log with its column and horizon."""
        words = [Path(self.problem).name.split(".")[0].replace("-", "_") or "sweep"]
        words += [f"{name}={value}" for name, value in self.options.items()]
        words += [str(part) for part in (self.predict, self.horizon) if part is not None]
        return re.sub(r"[^\w.=+-]+", "_", "-".join(words))


def _listed(rule: Any) -> Any:
    return [part.strip() for part in rule.split(",")] if isinstance(rule, str) else rule


def resolve(rule: Any) -> Any:
    """Rules by their names; MODULE:NAME is imported, from the current folder or Python's path. Other words are kept."""
    if isinstance(rule, list):
        return [resolve(one) for one in rule]
    if not isinstance(rule, str) or ":" not in rule:
        return find_rule(rule) if isinstance(rule, str) and rule in (*rules.names(), *LEAST_SQUARES) else rule
    module, _, name = rule.partition(":")
    if not (module and name):
        raise ValueError(f"--rule {rule}: a rule of your own is given as MODULE:NAME.")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise ValueError(f"--rule {rule}: the module {module!r} cannot be imported: {error}.") from error
    except AttributeError:
        raise ValueError(f"--rule {rule}: the module {module!r} has no {name!r}.") from None
    if not isinstance(found, rules.AnyRule):
        raise ValueError(f"--rule {rule}: must be an emphatic.Rule or ElementwiseRule. Got {found!r:.100} instead.")
    return found
