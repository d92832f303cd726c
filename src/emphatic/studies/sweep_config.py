"""The settings of a sweep, as the command line or a TOML file gives them: declared here once.

The command line imports this module to know its flags; what takes long to import is imported where it is used.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emphatic.common.names import check_names
from emphatic.common.settings import as_step_count, declared_settings, is_share, read_toml, setting

if TYPE_CHECKING:
    from emphatic.problems import MDP, Tasks
    from emphatic.studies.acting import Acting
    from emphatic.studies.sources import Recorded

__all__ = ["SweepConfig"]

#: The default grid.
_DEFAULT_GRID = {"rule": "td, true_online_td, etd, true_online_etd", "alpha": "2^-12..2^-1", "lambda": "0, .5, .9, 1"}
#: The default grid where the error is that at the ends of episodes: the figure of the random walk in the literature.
_EPISODE_GRID = {"rule": "td, true_online_td", "alpha": ".05..1:+.05", "lambda": "0, .4, .8, .9, .95, .975, .99, 1"}
#: The default grid of a control problem.
_CONTROL_GRID = {"rule": "sarsa, expected_sarsa, watkins_q", "alpha": "2^-6..2^0", "lambda": "0, .5, .9"}
#: The rules where nothing ends.
_CONTINUING = {"access_control": "differential_sarsa, differential_q"}
#: A setting that is a flag of ``emphatic sweep`` too; one that only a log has is listed under a heading of its own.
_flag = functools.partial(setting, commands=("sweep",))
_log_flag = functools.partial(_flag, panel="For a log")


def _is_text(value: object) -> bool:
    return isinstance(value, str)


@dataclass(frozen=True)
class SweepConfig:
    """What to sweep.

    Args:
        problem: The name of a problem, or the path of a log.
        options: Options of the problem's function.
        grid: Grids of rules and parameters, as in ``[[grid]]`` of a file.
        runs: The seeded runs of each setting.
        steps: The steps of a run.
        episodes: The episodes of a run, in place of steps.
        every: The steps between two errors.
        points: The points of a learning curve, or the steps that have one.
        seed: The seed of all runs.
        theta: The initial weights.
        rerun: The fresh runs on which the best setting of each rule is reported.
        tolerance: The share of all runs of a tolerance interval.
        distribution: Whether the page shows the errors of all runs of the best settings.
        predict: The column of a log to predict.
        horizon: The horizon of that prediction, in steps or as a duration.
        time: The time column of a log; False for none.
        delimiter: The column separator of a log in CSV.
    """

    problem: str = setting("", help="", must="a name or a path", is_valid=_is_text)
    options: Mapping[str, Any] = setting(
        default_factory=dict, help="", must="a table, [options]", is_valid=lambda value: isinstance(value, dict)
    )
    grid: tuple[Mapping[str, Any], ...] = setting((), help="")
    runs: int | None = _flag(help="Seeded runs of each setting; default: 10.", flag_type=int)
    steps: int | None = _flag(help="Steps per run; default: 10,000.", flag_type=int)
    episodes: int | None = _flag(
        help="Episodes per run, in place of steps; default on a control problem: 50.", flag_type=int
    )
    every: int | None = _flag(help="Compute the error every N steps; default: 1.", flag_type=int)
    points: int | list[int] | None = setting(
        help="The points of a learning curve, or the steps that have one; default: 50."
    )
    seed: int | None = _flag(help="Seed of all runs; default: 0.", flag_type=int)
    theta: list[float] | str | None = setting(help="Initial weights; default: 0.")
    rerun: int | None = _flag(
        help="Report the best setting of each rule on this many fresh runs; default: 0.", flag_type=int
    )
    tolerance: float | None = setting(
        help="Tolerance intervals, which contain this fraction of all runs, such as .9.",
        must="a number between 0 and 1",
        is_valid=is_share,
    )
    distribution: bool | None = setting(
        help="Show the errors of all runs of the best settings in the report.",
        must="true or false",
        is_valid=lambda value: isinstance(value, bool),
    )
    predict: str | None = _log_flag(help="The column to predict.", must="the name of a column", is_valid=_is_text)
    horizon: float | str | None = _log_flag(
        help="Horizon: steps, or a duration such as 15min.",
        must="steps or a duration",
        is_valid=lambda value: isinstance(value, int | float | str),
        from_text=as_step_count,
    )
    time: str | bool | None = setting(
        help="The column of time stamps, false for none.",
        must="the name of a column, or false",
        is_valid=lambda value: isinstance(value, str | bool),
    )
    delimiter: str | None = setting(help="Column separator of CSV.", must="text", is_valid=_is_text)

    @staticmethod
    def read(path: Path) -> dict[str, Any]:
        """The settings in a TOML file."""
        config = read_toml(path, refused="not a TOML file")
        declared = declared_settings(SweepConfig)
        check_names(config, declared, str(path))
        grids = config.get("grid", [])
        if not isinstance(grids, list) or not all(isinstance(grid, dict) for grid in grids):
            raise ValueError(f"{path}: grids are written as [[grid]].")
        for name, value in config.items():
            if not declared[name][1].is_valid(value):
                raise ValueError(f"{path}: {name!r} must be {declared[name][1].must}. Got {value!r}.")
        return config

    @staticmethod
    def usual(rule: str | None, problem: str = "", by_episode: bool = False) -> dict[str, Any]:
        """The default grid of these rules on a problem; without λ if none of them uses it.

        Args:
            rule: Rules, in text form; None for the default ones.
            problem: The problem's name, or "".
            by_episode: Whether a run has a number of episodes.
        """
        from emphatic.studies.acting import is_world
        from emphatic.studies.grid import parameters, resolve

        if is_world(problem):
            name = problem.replace("-", "_")
            return dict(_CONTROL_GRID) | ({"rule": _CONTINUING[name]} if name in _CONTINUING else {})

        grid = _EPISODE_GRID if by_episode else _DEFAULT_GRID
        resolved = resolve(_split(rule or grid["rule"]))
        known = {name for rule in resolved if not isinstance(rule, str) for name in parameters(rule)}
        return {name: value for name, value in grid.items() if name in ("rule", *known) or not known}

    @property
    def is_log(self) -> bool:
        """Whether the problem is a file."""
        from emphatic import problems
        from emphatic.studies.acting import is_world

        known = self.problem.replace("-", "_") in problems.names() or is_world(self.problem)
        return not known and (Path(self.problem).suffix != "" or Path(self.problem).is_file())

    @property
    def grids(self) -> list[dict[str, Any]]:
        """The grids, rules as lists; those that are written MODULE:NAME are imported."""
        from emphatic.studies.acting import is_world
        from emphatic.studies.grid import resolve

        grids = self.grid or (self.usual(None, self.problem, self.episodes is not None),)
        if is_world(self.problem):
            return [dict(grid) for grid in grids]
        return [dict(grid) | {"rule": resolve(_split(grid.get("rule")))} for grid in grids]

    def source(self) -> Callable[..., MDP | Tasks] | Recorded | Acting:
        """The problem or log to learn from."""
        from emphatic.studies.acting import acting, is_world
        from emphatic.studies.sources import Recorded

        if is_world(self.problem):
            return acting(self.problem, self.episodes, self.seed or 0, self.options)
        if not self.is_log:
            return self._make_problem()
        for name, value in (("steps", self.steps), ("seed", self.seed), ("options", self.options or None)):
            if value is not None:
                raise ValueError(f"{name!r} goes with a problem, and {self.problem!r} is a log, used as it is.")
        if self.predict is None or self.horizon is None:
            raise ValueError("a log needs the column to predict and a horizon: --predict COLUMN --horizon STEPS.")
        return Recorded.table(self.problem, self.predict, self.horizon, time=self.time, delimiter=self.delimiter)

    def _make_problem(self) -> Callable[..., MDP | Tasks]:
        from emphatic.studies.acting import maker_of

        for name in ("predict", "horizon", "time", "delimiter"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name!r} goes with a log, and {self.problem!r} is a problem.")
        function = maker_of(self.problem)
        known = [name for name in inspect.signature(function).parameters if name != "seed"]
        for name in self.options:
            if name not in known:
                options = ", ".join(known) or "none"
                raise ValueError(f"problem {self.problem!r} has no option {name!r}; it has {options}.")
        return functools.partial(function, **self.options) if self.options else function

    @property
    def arguments(self) -> dict[str, Any]:
        """The other arguments of ``sweep``."""
        names = ("runs", "steps", "episodes", "every", "points", "seed", "theta", "rerun", "tolerance", "distribution")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    @property
    def name(self) -> str:
        """The name of the output folder: the problem with its options, or the log with its column and horizon."""
        words = [Path(self.problem).name.split(".")[0].replace("-", "_") or "sweep"]
        words += [f"{name}={value}" for name, value in self.options.items()]
        words += [str(value) for value in (self.predict, self.horizon) if value is not None]
        return re.sub(r"[^\w.=+-]+", "_", "-".join(words))


def _split(rule: Any) -> Any:
    """The names of a list in text form; anything else unchanged."""
    return [name.strip() for name in rule.split(",")] if isinstance(rule, str) else rule
