"""What all commands share: flags from declared settings, how a command ends, its log, and its progress."""

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
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from emphatic.common.settings import Setting, declared_settings
from emphatic.nexting.runs.settings import Settings

if TYPE_CHECKING:
    from rich.progress import TaskID


__all__ = ["GroupedCommand", "JsonFormatter", "LogFormat", "LogLevel", "bars", "carry_out", "compile_notice"]
__all__ += ["flag_values", "log_to_stderr", "report_error", "with_settings"]


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


def carry_out(command: Callable[[], int], stopped: Callable[[], str], settings: type = Settings) -> int:
    """Run a command; its exit code: 2 after an error, which is reported in one line, 128 and more if interrupted.

    SIGTERM is handled like Ctrl-C, and what ``stopped`` says then is printed. Errors name the flags that the
    ``settings`` of the command declare.
    """
    try:
        with _stopping():
            return command()
    except (*FAILURES, ImportError) as error:  # of an extra: the message has the pip command
        return report_error(error, settings)
    except KeyboardInterrupt as stop:
        print(stopped(), file=sys.stderr)
        return 128 + int(stop.args[0] if stop.args else signal.SIGINT)


def report_error(error: BaseException, settings: type = Settings) -> int:
    """Print an error in one line on standard error; the exit code."""
    print(f"Error: {_message(error, settings)}", file=sys.stderr)
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


def _message(error: BaseException, settings: type) -> str:
    """An error in one line, with flags in place of keywords, or lines of a file for settings without a flag."""
    if isinstance(error, MemoryError):
        return "out of memory."
    if isinstance(error, RecursionError):
        return "the settings or the table are nested too deeply."
    message = str(error)
    if isinstance(error, OSError) and error.strerror:
        message = f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}."
    declared = declared_settings(settings)
    if "sort" not in declared:
        message = message.replace(", with sort=True if they fit in memory", "")
    for name in (*declared, "resume", "overwrite"):
        has_flag = name not in declared or declared[name][1].commands
        for value, text in (("False", " ''"), ("…", " …"), ("True", "")):
            line = f"{name} = {value.lower()} in a --config file"
            written = f"--{name.replace('_', '-')}{text}" if has_flag else line
            message = message.replace(f"{name}={value}", written)
    message = re.sub(r"\bskip_lines=(\d+),?", r"--skip-lines \1", message)
    quoted = r'\b(pivot|by|predict|header)="([^"]*)"'
    message = re.sub(quoted, lambda match: f"--{match[1]} {shlex.quote(match[2])}", message)
    message = re.sub(r"query=('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")", _query_flag, message)
    return " ".join(message.split())


def _query_flag(match: re.Match[str]) -> str:
    """A query of Python as a flag that a shell takes."""
    return f"--query {shlex.quote(ast.literal_eval(match[1]))}"


# ---------------------------------------------------------------------- progress

_COMPILING = "compiling (once)"


@contextmanager
def bars(
    rate: Callable[[str, float], str] = lambda phase, speed: "", plain: str = "", quiet: bool = False
) -> Iterator[Report]:
    """Progress bars on standard error, one a phase, with the time left.

    Args:
        rate: Formats the speed of a phase.
        plain: The unit of the work: where standard error is not a terminal there are plain lines with it, and nothing
            without.
        quiet: Whether to show nothing.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield PlainLines(plain) if plain and not quiet else lambda phase, done, total: None
        return
    description, rate_text = TextColumn("{task.description:9}"), TextColumn("{task.fields[rate]}")
    columns = (description, BarColumn(), TaskProgressColumn(), rate_text, TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as shown:
        tasks: dict[str, TaskID] = {}

        def progress(phase: str, done: int, total: int) -> None:
            if phase not in tasks:
                tasks[phase] = shown.add_task(phase, total=total or None, rate="")
            if _COMPILING in tasks:
                shown.update(tasks[_COMPILING], visible=phase == _COMPILING)
            speed = shown.tasks[tasks[phase]].speed
            shown.update(tasks[phase], completed=done, total=total or None, rate=rate(phase, speed) if speed else "")

        yield progress


class PlainLines:
    """A line on standard error when a phase begins, and every few seconds while it lasts.

    Args:
        unit: The unit of the work.
    """

    def __init__(self, unit: str) -> None:
        self._unit, self._phases, self._last = unit, set[str](), 0.0

    def __call__(self, phase: str, done: int, total: int) -> None:
        clock = time.monotonic()
        if phase in self._phases and clock - self._last < EVERY:
            return
        self._phases.add(phase)
        self._last = clock
        line = f"emphatic: {phase}"
        if total:
            line += f" {100 * done // total}%"
        if done and phase != "scoring":
            line += f", {done:,} of {total:,} {self._unit}" if total else f", {done:,} {self._unit}"
        print(line, file=sys.stderr, flush=True)


@contextmanager
def compile_notice(progress: Report) -> Iterator[None]:
    """While kernels are compiled, which a first run does, show that as a phase of its own."""
    from numba.core import event

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            progress(_COMPILING, 0, 0)

        def on_end(self, event: Any) -> None:
            pass

    with event.install_listener("numba:compile", Listener()):
        yield
