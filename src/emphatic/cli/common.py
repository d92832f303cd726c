"""What all commands share: how they end, and how they show that they are not idle."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["FAILURES", "as_horizon", "bars", "carried_out", "told"]

#: What may go wrong that is not ours: told in one line.
FAILURES = (ValueError, OSError, ArithmeticError, MemoryError)


def carried_out(command: Callable[[], int], stopped: str) -> int:
    """The exit code of a command: 2 after an error, which is told in one line; 128 and more where it was stopped.

    A polite request to end is taken like Ctrl-C.
    """
    try:
        with _stopping():
            return command()
    except FAILURES as error:
        return told(error)
    except KeyboardInterrupt as stop:
        print(stopped, file=sys.stderr)
        return 128 + int(stop.args[0] if stop.args else signal.SIGINT)


def told(error: BaseException) -> int:
    """An error in one line on standard error; the exit code."""
    print(f"Error: {_said(error)}", file=sys.stderr)
    return 2


@contextmanager
def _stopping() -> Iterator[None]:
    def stop(number: int, _: Any) -> None:
        raise KeyboardInterrupt(number)

    if threading.current_thread() is not threading.main_thread():  # only there can it be asked for
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _said(error: BaseException) -> str:
    """An error in one line, with flags in place of keywords."""
    if isinstance(error, MemoryError):
        return "the memory is not enough."
    said = str(error)
    if isinstance(error, OSError) and error.strerror:
        said = f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}."
    for option, flag in (("time=False", "--time ''"), ("delimiter=…", "--delimiter …")):
        said = said.replace(option, flag)
    return " ".join(said.split())


@contextmanager
def bars(rate: Callable[[str, float], str] = lambda phase, speed: "") -> Iterator[Callable[[str, int, int], None]]:
    """Progress on standard error, a bar a phase, with the time left; none where no one is looking.

    ``rate`` puts a phase's speed in words.
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
