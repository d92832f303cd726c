"""What all commands share: how they end, and their log."""

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

__all__ = ["FAILURES", "as_horizon", "carry_out", "log_to_stderr", "report_error"]

#: What may go wrong that is no fault of the program: reported in one line.
FAILURES = (ValueError, OSError, ArithmeticError, MemoryError, RecursionError)


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
    if isinstance(error, RecursionError):
        return "the settings or the table are nested too deeply."
    message = str(error)
    if isinstance(error, OSError) and error.strerror:
        message = f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}."
    for option, flag in (
        ("time=False", "--time ''"),
        ("time=…", "--time …"),
        ("delimiter=…", "--delimiter …"),
        ("sort=True", "--sort"),
        ("pivot=False", "--pivot ''"),
        ("resume=True", "--resume"),
        ("overwrite=True", "--overwrite"),
    ):
        message = message.replace(option, flag)
    message = re.sub(r'pivot="([^"]*)"', lambda found: f"--pivot {shlex.quote(found[1])}", message)
    return " ".join(message.split())


def as_horizon(text: str) -> float | str:
    """Steps as a number, a duration as it is."""
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() else number
