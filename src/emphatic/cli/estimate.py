"""How long a run still takes, compilation included.

What is expected of the phases of a run, and of the kernels that must be compiled first, says how they compare. How fast
this machine is at present is measured: by the kernels that were compiled so far, then by the rows. Which kernels are
compiled already, the cache folder shows. A file there remembers how long compiling and the last run took beside what
was expected of them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from emphatic.common.files import atomic_file

__all__ = ["KERNELS", "Estimate", "is_compiled"]

#: The modules of kernels that a run on a table needs, and the seconds that each took to compile when this was written,
#: by two processes on two cores.
KERNELS = {
    "tables/guard_kernels": 4.9,
    "features/kernels": 4.1,
    "asking/headline_kernels": 15.8,
    "asking/kernels": 22.5,
    "hordes/ridge_kernels": 4.5,
    "engines/sparse/sparse_many_kernels": 12.0,
    "hordes/season_kernels": 4.9,
    "hordes/blend_kernels": 8.9,
    "nexting/interval_kernels": 6.3,
    "nexting/alarm_kernels": 1.5,
    "scores/kernels": 2.6,
}
#: Seconds, and the share of a phase, that count as measured as they were expected: the first moments decide little, and
#: the first rows take longer than those that follow.
_PRIOR, _PRIOR_SHARE = 1.0, 0.15
#: How long phases take beside what is expected of them, on a machine on which no run has ended yet.
_PACE = 0.75
#: The share of the time of a phase that lies before the part by which its pace is judged.
_EARLIER = 0.5
_FILE = "times.json"
#: The kernels that a second process compiles meanwhile (``emphatic.nexting.warm``).
_LATE = {
    *("asking/headline_kernels", "hordes/blend_kernels", "hordes/season_kernels"),
    *("nexting/interval_kernels", "nexting/alarm_kernels", "scores/kernels"),
}


class Estimate:
    """The time that a run still takes.

    Args:
        folder: The cache folder, in which measured times are remembered; None for nowhere.
        without: The kernels that this run does not need.
        clock: The present time in seconds.
    """

    def __init__(
        self,
        folder: Path | None,
        without: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock, self._path = clock, None if folder is None else folder / _FILE
        self._memory = _read(self._path)
        before = float(self._memory["compiling"])
        #: The kernels that are missing, with the seconds that each is expected to take.
        self.missing: dict[str, float] = {
            name: before * KERNELS[name] for name in KERNELS if name not in without and not is_compiled(name, folder)
        }
        self._compiled: dict[str, float] = {}
        self._first: float | None = None
        self._begun = 0.0
        self._depth = 0
        self._phases: dict[str, float] = {}
        self._phase = ""
        self._seen: dict[str, list[tuple[float, float]]] = {}

    # ------------------------------------------------------------------ kernels

    @property
    def compilation(self) -> float:
        """The seconds in which the missing kernels are expected to be compiled: on two cores, in two processes."""
        late = sum(seconds for name, seconds in self.missing.items() if name in _LATE)
        early = sum(self.missing.values()) - late
        return max(early, late) if _count_cores() > 1 else early + late

    def begin_kernel(self) -> None:
        """A kernel begins to be compiled, perhaps within another."""
        self._depth += 1
        if self._depth == 1:
            self._begun = self._clock()
            self._first = self._begun if self._first is None else self._first

    def end_kernel(self, module: str) -> None:
        """A kernel of a generated module was compiled."""
        self._depth -= 1
        name = _kernel_of(module)
        if self._depth == 0 and name in KERNELS:
            self._compiled[name] = self._compiled.get(name, 0.0) + self._clock() - self._begun

    def _compiling(self) -> float:
        """The seconds until all kernels are compiled. When the first rows have passed, they are."""
        if len(self._seen.get("learning", ())) > 1:
            return 0.0
        passed = 0.0 if self._first is None else self._clock() - self._first
        return max(self._pace_of_compiling() * self.compilation - passed, 0.0)

    def _pace_of_compiling(self) -> float:
        """Measured beside expected seconds of the modules that this process has compiled."""
        order = list(self._compiled)[:-1]  # (the last one may have further kernels)
        expected = sum(self.missing.get(name, 0.0) for name in order)
        return (sum(self._compiled[name] for name in order) + _PRIOR) / (expected + _PRIOR)

    # ------------------------------------------------------------------ phases

    def expect(self, phases: Mapping[str, float]) -> float:
        """What is expected of the phases that follow, in seconds, in their order; what all take on this machine."""
        self._phases, self._phase = dict(phases), next(iter(phases))
        self._seen = {self._phase: [(self._clock(), 0.0)]}
        return self._compiling() + self._first_pace() * sum(phases.values())

    def _first_pace(self) -> float:
        """How long phases take beside what is expected, before anything was measured in this run."""
        pace = self._memory["pace"]
        return _PACE * self._pace_of_compiling() if pace is None else float(pace)

    def left(self, phase: str, done: int, total: int) -> float | None:
        """The seconds that are left; None where that is not known.

        Args:
            phase: The present phase.
            done: How much of it is done.
            total: Of how much.
        """
        if phase in self._phases and total:
            seen = self._seen.setdefault(phase, [(self._seen[self._phase][-1][0], 0.0)])
            if len(seen) == 1 and phase == next(iter(self._phases)):
                seen[0] = (
                    self._clock(),
                    done / total,
                )  # the first rows wait for kernels, or were learned before a stop
            seen.append((self._clock(), done / total))
            self._phase = phase
        elif phase != "compiling" or not self._phases:
            return None
        names, share = list(self._phases), self._seen[self._phase][-1][1]
        later = sum(self._phases[name] for name in names[names.index(self._phase) + 1 :])
        return self._compiling() + self._pace(self._phase) * (self._phases[self._phase] * (1.0 - share) + later)

    def _pace(self, phase: str) -> float:
        """How long a phase takes beside what is expected of it, by the later part of what is done."""
        seen = self._seen[phase]
        (begin, _), (now, share) = seen[0], seen[-1]
        middle = begin + _EARLIER * (now - begin)
        then, share_then = max((point for point in seen if point[0] <= middle), default=seen[0])
        expected, names = self._phases[phase] * (share - share_then), list(self._seen)
        before = names.index(phase) - 1
        prior = self._first_pace() if before < 0 else self._pace(names[before])
        was_measured = before >= 0 or self._memory["pace"] is not None or bool(self._compiled)
        weight = max(_PRIOR, _PRIOR_SHARE * self._phases[phase] if was_measured else 0.0)
        return (now - then + weight * prior) / (expected + weight)

    # ------------------------------------------------------------------ what is remembered

    def finish(self) -> None:
        """Remember what was measured, after a run that has ended well."""
        if self._path is None:
            return
        compiling = min(max(self._memory["compiling"] * self._pace_of_compiling(), 0.1), 10.0)
        pace, phases = self._first_pace(), self._phases
        if phases:
            begin, share = self._seen[next(iter(phases))][0]
            expected = sum(phases.values()) - share * next(iter(phases.values()))
            pace = min(max((self._clock() - begin + _PRIOR) / (expected + _PRIOR), 0.1), 10.0)
        memory = {"compiling": round(compiling, 3), "pace": round(pace, 3)}
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(self._path) as file:
                file.write(json.dumps(memory).encode())


def _kernel_of(module: str) -> str:
    """The entry of ``KERNELS`` for the name of a generated module; the name itself if there is none.

    >>> [_kernel_of(f"emphatic_{name}_46f1388856306784") for name in ("scores_kernels", "sparse_many_td_float64")]
    ['scores/kernels', 'engines/sparse/sparse_many_kernels']
    """
    return next((name for name in KERNELS if module.startswith(f"emphatic_{_generated_name(name)}_")), module)


def _generated_name(name: str) -> str:
    """How the generated modules of a kernel are called."""
    return "sparse_many" if name.endswith("sparse_many_kernels") else name.replace("/", "_")


def is_compiled(name: str, folder: Path | None) -> bool:
    """Whether the cache folder has a kernel's machine code, of its present source.

    Args:
        name: A key of ``KERNELS``.
        folder: The cache folder.
    """
    path = Path(__file__).parents[1] / f"{name}.py"
    if folder is None or not path.exists():
        return not path.exists()
    source = path.read_text("utf-8").replace("from __future__ import annotations\n", "", 1).strip()
    body = source[source.find("\nimport") :]  # (a kernel that is composed with a rule begins with the rule)
    for file in folder.glob(f"emphatic_{_generated_name(name)}_*.py"):
        with suppress(OSError, UnicodeDecodeError):
            if body in file.read_text("utf-8") and any((folder / "__pycache__").glob(f"{file.stem}.*.nbi")):
                return True
    return False


def _count_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _read(path: Path | None) -> dict[str, Any]:
    """What is remembered; nothing where there is no such file, or it is damaged."""
    memory: dict[str, Any] = {"compiling": 1.0, "pace": None}
    if path is None:
        return memory
    with suppress(OSError, ValueError, TypeError, AttributeError, KeyError):
        saved = json.loads(path.read_text("utf-8"))
        memory = {name: min(max(float(saved[name]), 0.1), 10.0) for name in memory}
    return memory
