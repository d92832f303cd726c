"""What ``emphatic reproduce`` shows in a terminal: progress, a table a study, and errors in a line."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emphatic.terminal import said, stopping

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emphatic.studies.agreement import Check, Outcome

__all__ = ["reproduce"]


def reproduce(studies: Sequence[str], every: bool, quick: bool, out: Path, jobs: int, seed: int) -> int:
    """The command; its exit code: 1 where a number disagrees, 2 where it cannot be done."""
    from emphatic.studies import reproductions

    try:
        if every == bool(studies):
            known = ", ".join(reproductions.names())
            raise ValueError(f"Name one study or more, or give --all. There are: {known}.")
        for name in studies:
            reproductions.find(name)  # a slip in the last name should not cost the studies before it
        outcomes = []
        for name in reproductions.names() if every else dict.fromkeys(studies):
            with stopping(), _bar(name) as progress:
                outcome = reproductions.reproduce(name, quick, out, seed=seed, jobs=jobs, progress=progress)
            _show(outcome, out)
            outcomes.append(outcome)
        if every:
            from emphatic.studies.reproductions.files import write_index

            write_index(outcomes, out)
            print(f"All studies: {out / 'index.html'}")
        return 0 if all(outcome.agree for outcome in outcomes) else 1
    except (ValueError, OSError, ArithmeticError, MemoryError) as error:
        print(f"Error: {said(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stopped:
        print("Stopped.", file=sys.stderr)
        return 128 + int(stopped.args[0] if stopped.args else signal.SIGINT)


@contextmanager
def _bar(name: str) -> Iterator[Callable[[str, int, int], None]]:
    """Progress on standard error with the time left; none where no one is looking."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda phase, done, total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        tasks: dict[str, Any] = {}

        def progress(phase: str, done: int, total: int) -> None:
            if phase not in tasks:
                tasks[phase] = bars.add_task(f"{name}: {phase}", total=total)
            bars.update(tasks[phase], completed=done, total=total)

        yield progress


def _show(outcome: Outcome, out: Path) -> None:
    """Each number, published and ours, with its tolerance and the verdict; and where the page is."""
    from rich.console import Console
    from rich.table import Table

    from emphatic.report import seconds, verdict

    table = Table(title=outcome.title, title_justify="left")
    table.add_column("number")
    for column in ("published", "ours", "tolerance"):
        table.add_column(column, justify="right")
    table.add_column("")
    for check in outcome.checks:
        tolerance = _number(check.tolerance, 2)
        table.add_row(check.name, _number(check.published), _number(check.ours), tolerance, _verdict(check))
    Console().print(table)
    print(f"{verdict([vars(check) for check in outcome.checks])} {seconds(outcome.seconds)}. ", end="")
    print(f"Page: {out / outcome.name / 'report.html'}\n", flush=True)


def _number(value: float | str | None, digits: int = 5) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else f"{value:.{digits}g}"


def _verdict(check: Check) -> str:
    return {True: "agree", False: "[bold red]disagree[/]", None: ""}[check.agree]
