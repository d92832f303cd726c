"""What all commands share: flags from declared settings, how a command ends, its log, and its progress.

How long a run still takes, compilation included, is an ``Estimate``. What is expected of the phases of a run, and of
the kernels that must be compiled first, says how they compare. How fast this machine is at present is measured: by the
kernels that were compiled so far, then by the rows. Which kernels are compiled already, the cache folder shows. A file
there remembers how long compiling and the last run took beside what was expected of them.
"""

from __future__ import annotations

import ast
import functools
import inspect
import json
import logging
import re
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from emphatic.common.files import atomic_file
from emphatic.common.locks import count_cores
from emphatic.common.settings import Setting, declared_settings
from emphatic.nexting.settings import Settings

if TYPE_CHECKING:
    from rich.progress import TaskID


__all__ = ["KERNELS", "Estimate", "Estimating", "GroupedCommand", "JsonFormatter", "LogFormat", "LogLevel", "bars"]
__all__ += [
    "carry_out",
    "compile_notice",
    "compiled_kernels",
    "flag_values",
    "log_to_stderr",
    "report_error",
    "with_settings",
]


class LogLevel(StrEnum):
    """The levels of ``logging``."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


class LogFormat(StrEnum):
    """How messages are written."""

    text = "text"
    json = "json"


#: What may go wrong that is no fault of the program: reported in one line.
FAILURES = (ValueError, OSError, ArithmeticError, MemoryError, RecursionError)
#: Seconds between two plain lines of one phase.
EVERY = 5.0

Report = Callable[[str, int, int], None]
"""Called with the phase, how much of it is done, and of how much: 0 while that is not known."""

# ---------------------------------------------------------------------- flags


def with_settings(kind: type, command: str, **places: Sequence[str]) -> Callable[[Callable[..., None]], Any]:
    """Give a command the flags of the settings that a dataclass declares for it; it takes them as ``**flags``.

    Args:
        kind: The dataclass, whose fields are made by ``emphatic.common.settings.setting``.
        command: The name of the command, as in ``Setting.commands``.
        places: A parameter of the command: the settings whose flags stand before it in the help. Those of the
            command that are not named stand before the last of these parameters.
    """
    declared = {name: entry for name, entry in declared_settings(kind).items() if command in entry[1].commands}
    named = {name for names in places.values() for name in names}
    ends = {**places, list(places)[-1]: [*places[list(places)[-1]], *(name for name in declared if name not in named)]}

    def decorate(function: Callable[..., None]) -> Any:
        @functools.wraps(function)
        def run(**arguments: Any) -> None:
            function(**arguments)

        parameters = []
        for parameter in inspect.signature(function, eval_str=True).parameters.values():
            parameters += [_flag(name, declared[name][1]) for name in ends.get(parameter.name, ())]
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
                parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        # Typer reads the flags from the signature.
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def _flag(name: str, declaration: Setting) -> inspect.Parameter:
    flag = declaration.flag or f"--{name.replace('_', '-')}"
    # A switch is named, or Typer would add --no-NAME to it.
    option = typer.Option(*([flag] if declaration.flag_type is bool or declaration.flag else []), help=declaration.help)
    option.rich_help_panel = declaration.panel
    is_switch = declaration.flag_type is bool
    type_ = bool if is_switch else declaration.flag_type | None
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=False if is_switch else None, annotation=Annotated[type_, option]
    )


def flag_values(kind: type, flags: Mapping[str, Any]) -> dict[str, Any]:
    """The values that flags give to settings; None for a flag that was not given."""
    declared = declared_settings(kind)
    return {name: None if text is None else declared[name][1].from_text(text) for name, text in flags.items()}


class GroupedCommand(TyperCommand):
    """A command whose help has its options in groups: those without a heading first, the others by their panel."""

    def format_options(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """Write arguments and options."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                is_option = parameter.param_type_name == "option"
                panel = (getattr(parameter, "rich_help_panel", None) or "Options") if is_option else "Arguments"
                groups.setdefault(panel, []).append(record)
        for heading, records in groups.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


# ---------------------------------------------------------------------- the end of a command


def carry_out(command: Callable[[], int], stopped: Callable[[], str]) -> int:
    """Run a command; its exit code: 2 after an error, which is reported in one line, 128 and more if interrupted.

    SIGTERM is handled like Ctrl-C, and what ``stopped`` says then is printed.
    """
    try:
        with _stopping():
            return command()
    except FAILURES as error:
        return report_error(error)
    except KeyboardInterrupt as stop:
        print(stopped(), file=sys.stderr)
        return 128 + int(stop.args[0] if stop.args else signal.SIGINT)


def report_error(error: BaseException) -> int:
    """Print an error in one line on standard error; the exit code."""
    print(f"Error: {_message(error)}", file=sys.stderr)
    return 2


class JsonFormatter(logging.Formatter):
    """A line of JSON for each message: "time" in ISO 8601, "level", "logger", "message", and "exception" if any."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": when, "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def log_to_stderr(level: str) -> Callable[[], None]:
    """Write what the library logs, from this level on, to standard error, until what is returned is called."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("emphatic")
    logger.addHandler(handler)
    logger.setLevel(level.upper())

    def stop() -> None:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)

    return stop


@contextmanager
def _stopping() -> Iterator[None]:
    def stop(number: int, _: FrameType | None) -> None:
        raise KeyboardInterrupt(number)

    if threading.current_thread() is not threading.main_thread():  # signals can be handled only there
        yield
        return
    handler = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)


def _message(error: BaseException) -> str:
    """An error in one line, with flags in place of keywords."""
    if isinstance(error, MemoryError):
        return "out of memory."
    if isinstance(error, RecursionError):
        return "the settings or the table are nested too deeply."
    message = str(error)
    if isinstance(error, OSError) and error.strerror:
        message = f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}."
    for name in (*declared_settings(Settings), "resume", "overwrite"):
        flag = f"--{name.replace('_', '-')}"
        for keyword, written in ((f"{name}=False", f"{flag} ''"), (f"{name}=…", f"{flag} …"), (f"{name}=True", flag)):
            message = message.replace(keyword, written)
    message = re.sub(r"\bskip_lines=(\d+),?", r"--skip-lines \1", message)
    quoted = r'\b(pivot|by|predict|header)="([^"]*)"'
    message = re.sub(quoted, lambda match: f"--{match[1]} {shlex.quote(match[2])}", message)
    message = re.sub(r"query=('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")", _query_flag, message)
    return " ".join(message.split())


def _query_flag(match: re.Match[str]) -> str:
    """A query of Python as a flag that a shell takes."""
    return f"--query {shlex.quote(ast.literal_eval(match[1]))}"


# ---------------------------------------------------------------------- progress


@contextmanager
def bars(
    rate: Callable[[str, float], str] = lambda phase, speed: "",
    plain: str = "",
    quiet: bool = False,
    estimate: Estimate | None = None,
) -> Iterator[Report]:
    """Progress bars on standard error, one a phase, with the time left.

    Args:
        rate: Formats the speed of a phase.
        plain: The unit of the work: where standard error is not a terminal there are plain lines with it, and nothing
            without.
        quiet: Whether to show nothing.
        estimate: How long the whole takes; without, the time left is that of the phase.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        lines = PlainLines(plain, estimate) if plain and not quiet else lambda phase, done, total: None
        yield lines if estimate is None else Estimating(lines, estimate)
        return
    description, rate_text = TextColumn("{task.description:9}"), TextColumn("{task.fields[rate]}")
    remaining = TimeRemainingColumn() if estimate is None else TextColumn("{task.fields[left]}")
    columns = (description, BarColumn(), TaskProgressColumn(), rate_text, remaining)
    with Progress(*columns, console=console, transient=True) as shown:
        tasks: dict[str, TaskID] = {}

        def progress(phase: str, done: int, total: int) -> None:
            if phase not in tasks:
                tasks[phase] = shown.add_task(phase, total=total or None, rate="", left="")
            speed = shown.tasks[tasks[phase]].speed
            left = None if estimate is None else estimate.left(phase, done, total)
            left = shown.tasks[tasks[phase]].time_remaining if left is None else left
            words = "" if left is None else f"about {_in_words(left)} left"
            shown.update(
                tasks[phase],
                completed=done,
                total=total or None,
                rate=rate(phase, speed) if speed else "",
                left=words,
            )

        yield progress if estimate is None else Estimating(progress, estimate)


class Estimating:
    """Progress of a run whose phases are estimated.

    Args:
        show: Shows it.
        estimate: How long the run takes.
    """

    def __init__(self, show: Report, estimate: Estimate) -> None:
        self._show, self.estimate = show, estimate

    def __call__(self, phase: str, done: int, total: int) -> None:
        self._show(phase, done, total)

    def expect(self, phases: Mapping[str, float]) -> float:
        """The seconds that are expected of each phase; how long the run takes in all."""
        return self.estimate.expect(phases)


class PlainLines:
    """A line on standard error when a phase begins, and every few seconds while it lasts.

    The time that is left is that of the ``estimate``. Without one it is found from the speed of late: since the last
    tenth of the phase's rows at least, and since the last compilation, whose time says nothing of what follows.

    Args:
        unit: The unit of the work.
        estimate: How long the whole takes.
    """

    def __init__(self, unit: str, estimate: Estimate | None = None) -> None:
        self._unit, self._estimate = unit, estimate
        #: When how much was done, of each phase, since something was compiled last.
        self._seen: dict[str, list[tuple[float, int]]] = {}
        self._phase, self._last = "", 0.0

    def __call__(self, phase: str, done: int, total: int) -> None:
        clock = time.monotonic()
        is_new = phase not in self._seen
        if phase == "compiling":
            self._seen[self._phase] = []
        else:
            self._phase = phase
        seen = self._seen.setdefault(phase, [])
        seen.append((clock, done))
        left = None if self._estimate is None else self._estimate.left(phase, done, total)
        left = _time_left(seen, total) if left is None else left
        if not is_new and clock - self._last < EVERY:
            return
        self._last = clock
        line = f"emphatic: {phase}"
        if total:
            line += f" {100 * done // total}%"
        if done and phase != "scoring":
            line += f", {done:,} of {total:,} {self._unit}" if total else f", {done:,} {self._unit}"
        if left is not None and (done < total or not total):
            line += f", about {_in_words(left)} left"
        print(line, file=sys.stderr, flush=True)


def _in_words(seconds: float) -> str:
    return f"{max(1.0, seconds):.0f} s" if seconds < 120.0 else f"{seconds / 60.0:.0f} min"


def _time_left(seen: Sequence[tuple[float, int]], total: int) -> float | None:
    """The seconds that are left, by the speed of late; None where that is not known."""
    clock, done = seen[-1]
    late = [(then, count) for then, count in seen[:-1] if clock - then >= EVERY and done - count >= 0.1 * done]
    began, count_then = late[-1] if late else seen[0]
    if not count_then < done < total or clock <= began:
        return None
    return (clock - began) * (total - done) / (done - count_then)


@contextmanager
def compile_notice(progress: Report) -> Iterator[None]:
    """While kernels are compiled, which a first run does, show that as a phase of its own."""
    from numba.core import event

    estimate: Estimate | None = getattr(progress, "estimate", None)

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            if estimate is not None:
                estimate.begin_kernel()
            progress("compiling", 0, 0)

        def on_end(self, event: Any) -> None:
            if estimate is not None:
                estimate.end_kernel(event.data["dispatcher"].py_func.__module__)

    with event.install_listener("numba:compile", Listener()):
        yield


# ---------------------------------------------------------------------- how long a run still takes


#: The modules of kernels that a run on a table needs, and the seconds that each took to compile when this was written,
#: by two processes on two cores.
KERNELS = {
    "tables/guard_kernels": 3.7,
    "features/kernels": 3.5,
    "asking/headline_kernels": 9.8,
    "asking/kernels": 22.5,
    "hordes/ridge_kernels": 3.7,
    "engines/sparse/sparse_many_kernels": 12.0,
    "hordes/season_kernels": 4.2,
    "hordes/blend_kernels": 4.7,
    "nexting/interval_kernels": 3.4,
    "nexting/alarm_kernels": 1.5,
    "scores/kernels": 2.6,
}
#: Seconds, and the share of a phase, that count as measured as they were expected: the first moments decide little, and
#: the first rows take longer than those that follow.
_PRIOR, _PRIOR_SHARE = 1.0, 0.15
#: How long phases take beside what is expected of them, on a machine on which no run has ended yet.
_PACE = 0.9
#: The share of the time of a phase that lies before the part by which its pace is judged.
_EARLIER = 0.5
_FILE = "times.json"
#: The kernels that a second process compiles meanwhile (``emphatic.engines.generated``).
_LATE = {
    *("asking/headline_kernels", "hordes/blend_kernels", "hordes/ridge_kernels", "hordes/season_kernels"),
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
        before, unneeded = float(self._memory["compiling"]), {*without, *compiled_kernels(folder)}
        #: The kernels that are missing, with the seconds that each is expected to take.
        self.missing: dict[str, float] = {name: before * KERNELS[name] for name in KERNELS if name not in unneeded}
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
        return max(early, late) if count_cores() > 1 else early + late

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


def compiled_kernels(folder: Path | None) -> set[str]:
    """Those of ``KERNELS`` whose machine code, of their present source, the package or the cache folder has.

    Args:
        folder: The cache folder; None if there is none.
    """
    from emphatic.engines.generated import machine_code, packaged_kernels

    modules = [
        place / name.partition(".")[0]
        for place in (packaged_kernels(), folder)
        if place is not None
        for name in machine_code(place)
        if name.endswith(".nbi")
    ]
    return {name for name in KERNELS if _is_compiled(name, modules)}


def _is_compiled(name: str, modules: Sequence[Path]) -> bool:
    """Whether one of these generated modules, which are compiled, has a kernel's present source."""
    path = Path(__file__).parents[1] / f"{name}.py"
    if not path.exists():
        return True
    source = path.read_text("utf-8").replace("from __future__ import annotations\n", "", 1).strip()
    body = source[source.find("\nimport") :]  # (a kernel that is composed with a rule begins with the rule)
    for module in modules:
        if module.name.startswith(f"emphatic_{_generated_name(name)}_"):
            with suppress(OSError, UnicodeDecodeError):
                if body in module.with_suffix(".py").read_text("utf-8"):
                    return True
    return False


def _read(path: Path | None) -> dict[str, Any]:
    """What is remembered; nothing where there is no such file, or it is damaged."""
    memory: dict[str, Any] = {"compiling": 1.0, "pace": None}
    if path is None:
        return memory
    with suppress(OSError, ValueError, TypeError, AttributeError, KeyError):
        saved = json.loads(path.read_text("utf-8"))
        memory = {name: min(max(float(saved[name]), 0.1), 10.0) for name in memory}
    return memory
