"""Progress of a command on standard error: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Report", "bars", "compile_notice"]

Report = Callable[[str, int, int], None]
"""Called with the phase, how much of it is done, and of how much: 0 while that is not known."""

#: Seconds between two plain lines of one phase.
EVERY = 5.0


@contextmanager
def bars(
    rate: Callable[[str, float], str] = lambda phase, speed: "", plain: str = "", quiet: bool = False
) -> Iterator[Report]:
    """Progress bars on standard error, one a phase, with the time left.

    ``rate`` formats the speed of a phase. Where standard error is not a terminal there are plain lines, if ``plain``
    names the unit of the work, and nothing otherwise.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield PlainLines(plain) if plain and not quiet else lambda phase, done, total: None
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


class PlainLines:
    """A line on standard error when a phase begins, and every few seconds while it lasts."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._began: dict[str, tuple[float, int]] = {}
        self._last = 0.0

    def __call__(self, phase: str, done: int, total: int) -> None:
        now = time.monotonic()
        new = phase not in self._began
        if not new and now - self._last < EVERY:
            return
        began, first = self._began.setdefault(phase, (now, done))
        self._last = now
        line = f"emphatic: {phase}"
        if total:
            line += f" {100 * done // total}%"
        if done and phase != "scoring":
            line += f", {done:,} of {total:,} {self._unit}" if total else f", {done:,} {self._unit}"
        if done > first and 0 < done < total:
            line += f", about {(now - began) * (total - done) / (done - first):.0f} s left"
        print(line, file=sys.stderr, flush=True)


@contextmanager
def compile_notice(progress: Report) -> Iterator[None]:
    """While kernels are compiled, which a first run does, show that as a phase of its own."""
    from numba.core import event

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            progress("compiling", 0, 0)

        def on_end(self, event: Any) -> None:
            pass

    with event.install_listener("numba:compile", Listener()):
        yield
