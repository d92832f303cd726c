"""What all commands share: how they end, their log, and their progress."""

from __future__ import annotations

import logging
import re
import shlex
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["FAILURES", "as_horizon", "bars", "carry_out", "log_to_stderr", "report_error"]

#: What may go wrong that is no fault of the program: reported in one line.
FAILURES = (ValueError, OSError, ArithmeticError, MemoryError)


def carry_out(command: Callable[[], int], stopped: str) -> int:
    """Run a command; its exit code: 2 after an error, which is reported in one line, 128 and more if interrupted.

    SIGTERM is handled like Ctrl-C, and ``stopped`` is printed.
    """
    try:
        with _stopping():
            return command()
    except FAILURES as error:
        return report_error(error)
    except KeyboardInterrupt as stop:
        print(stopped, file=sys.stderr)
        return 128 + int(stop.args[0] if stop.args else signal.SIGINT)


def report_error(error: BaseException) -> int:
    """Print an error in one line on standard error; the exit code."""
    print(f"Error: {_message(error)}", file=sys.stderr)
    return 2


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
    def stop(number: int, _: Any) -> None:
        raise KeyboardInterrupt(number)

    if threading.current_thread() is not threading.main_thread():  # signals can be handled only there
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _message(error: BaseException) -> str:
    """An error in one line, with flags in place of keywords."""
    if isinstance(error, MemoryError):
        return "out of memory."
    message = str(error)
    if isinstance(error, OSError) and error.strerror:
        message = f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}."
    for option, flag in (
        ("time=False", "--time ''"),
        ("time=…", "--time …"),
        ("delimiter=…", "--delimiter …"),
        ("sort=True", "--sort"),
        ("pivot=False", "--pivot ''"),
    ):
        message = message.replace(option, flag)
    message = re.sub(r'pivot="([^"]*)"', lambda found: f"--pivot {shlex.quote(found[1])}", message)
    return " ".join(message.split())


@contextmanager
def bars(rate: Callable[[str, float], str] = lambda phase, speed: "") -> Iterator[Callable[[str, int, int], None]]:
    """Progress bars on standard error, one a phase, with the time left; none if it is not a terminal.

    ``rate`` formats the speed of a phase.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda phase, done, total: None
        return
    columns = (
        TextColumn("{task.description:9}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as shown:
        tasks: dict[str, Any] = {}

        def progress(phase: str, done: int, total: int) -> None:
            if phase not in tasks:
                tasks[phase] = shown.add_task(phase, total=total or None, rate="")
            speed = shown.tasks[tasks[phase]].speed
            shown.update(tasks[phase], completed=done, total=total or None, rate=rate(phase, speed) if speed else "")

        yield progress


def as_horizon(text: str) -> float | str:
    """Steps as a number, a duration as it is."""
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() else number
