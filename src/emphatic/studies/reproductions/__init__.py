"""Published results run again: each study is a module with a ``TITLE``, a ``SOURCE`` and a function ``run``.

    run(conditions) -> Outcome

Every published number becomes a ``Check`` with a tolerance and a verdict, and the published figure is drawn with the
printed numbers as marks beside our lines. ``quick`` means the same questions with fewer runs, and states how much wider
its tolerances are.
"""

from __future__ import annotations

import importlib
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from emphatic.common.locks import hold_folder
from emphatic.common.names import suggestion
from emphatic.learning.inputs import refusal
from emphatic.studies.agreement import Outcome
from emphatic.studies.conditions import Conditions, Progress, silent
from emphatic.studies.grid import find_rule

__all__ = ["find", "names", "reproduce"]

_NAMES = (
    "random-walk",
    "collision",
    "four-rooms",
    "four-rooms-high-variance",
    "chain",
    "two-theta",
    "baird",
    "followon-variance",
    "true-online-vs-accumulating",
    "step-sizes",
    "alarms",
)


#: The studies that sweep a grid.
SWEPT = ("collision", "four-rooms", "four-rooms-high-variance")


def names() -> tuple[str, ...]:
    """The studies.

    >>> "random-walk" in names()
    True
    """
    return _NAMES


def reproduce(
    name: str,
    quick: bool = False,
    out: str | Path | None = None,
    *,
    seed: int = 0,
    jobs: int = 1,
    progress: Progress = silent,
    rule: Any = None,
) -> Outcome:
    """Run a published study; given ``out``, also write ``<out>/<name>/report.html`` and ``results.json``.

    That folder is locked meanwhile: another run into it is refused.

    ``jobs`` is the number of processes (-1: one per core); the results do not depend on it. ``rule`` is a rule of your
    own, or several: studies that sweep a grid try it in addition to theirs, and report it.
    """
    study = find(name)
    own = () if rule is None else tuple(map(find_rule, rule if isinstance(rule, list | tuple) else [rule]))
    if own and name not in SWEPT:
        wanted = f"be left out of {name!r}; it can be given to {', '.join(SWEPT)}"
        raise refusal("rule", "reproduce", wanted, repr([one.name for one in own]))
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise refusal("seed", "reproduce", "be a whole number of 0 or more", repr(seed))
    if isinstance(jobs, bool) or not isinstance(jobs, int) or (jobs < 1 and jobs != -1):
        raise refusal("jobs", "reproduce", "be a whole number of 1 or more, or -1", repr(jobs))
    folder = None if out is None else Path(out) / name
    # The folder is made, and locked against other runs, before anything is computed.
    with nullcontext() if folder is None else hold_folder(folder):
        begin = time.perf_counter()
        found: Outcome = study.run(Conditions(quick, seed, jobs, progress, folder, own))
        outcome = replace(
            found,
            name=name,
            title=study.TITLE,
            source=study.SOURCE,
            seconds=time.perf_counter() - begin,
            settings={**found.settings, "seed": seed, "quick": quick},
        )
        if folder is not None:
            from emphatic.studies.reproductions.files import write

            write(outcome, folder)
    return outcome


def find(name: str) -> Any:
    """The module of a study, by the name that the command takes."""
    if name not in _NAMES:
        hint = suggestion(str(name).replace("_", "-"), _NAMES)
        wanted = f"be one of {', '.join(_NAMES)}"
        raise ValueError(f"{refusal('name', 'reproduce', wanted, repr(name))}{hint}")
    return importlib.import_module(f"emphatic.studies.reproductions.{name.replace('-', '_')}")
