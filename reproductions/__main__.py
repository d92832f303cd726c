"""Run published studies again, and compare each number with the published one: ``python -m reproductions chain``.

Each study writes ``report.html`` and ``results.json``. The exit code is 1 if a number disagrees.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import reproductions
from emphatic.nexting.cli.terminal import Report, bars, carry_out
from emphatic.nexting.report import seconds
from reproductions import ORIGINS, Outcome, biases
from reproductions.pages import verdict

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Run the studies that are named; the exit code.

    Args:
        arguments: Those of the command line by default.
    """
    summary = (__doc__ or "").split("\n\n")
    parser = argparse.ArgumentParser("python -m reproductions", description=summary[0], epilog=summary[1])
    parser.add_argument("names", nargs="*", metavar="NAME", help="studies by name")
    parser.add_argument("--all", action="store_true", help="all studies, and a page with links to each")
    parser.add_argument("--quick", action="store_true", help="fewer runs, with wider tolerances")
    parser.add_argument("--out", type=Path, default=Path("reproduce"), help="the folder to write to (%(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="processes; -1: one per core (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="random seed, 0 or more (%(default)s)")
    given = parser.parse_args(arguments)
    return carry_out(lambda: _run(given), lambda: "Stopped.")


def _run(given: argparse.Namespace) -> int:
    if given.all == bool(given.names):
        raise ValueError(f"Name one study or more, or give --all. There are: {', '.join(reproductions.names())}.")
    for name in given.names:
        reproductions.find(name)  # a slip in the last name should not cost the studies before it
    outcomes = []
    for name in reproductions.names() if given.all else dict.fromkeys(given.names):
        with bars() as progress:
            outcome = reproductions.reproduce(
                name, given.quick, given.out, seed=given.seed, jobs=given.jobs, progress=_named(name, progress)
            )
        _show_outcome(outcome, given.out)
        outcomes.append(outcome)
    if given.all:
        reproductions.write_index(outcomes, given.out)
        print(f"All studies: {given.out / 'index.html'}")
    return 0 if all(outcome.agree for outcome in outcomes) else 1


def _named(name: str, progress: Report) -> Report:
    return lambda phase, done, total: progress(f"{name}: {phase}", done, total)


def _show_outcome(outcome: Outcome, out: Path) -> None:
    """Each number, published and ours, with its tolerance and the verdict, by origin; and where the page is."""
    origins = [origin for origin in (*ORIGINS, "") if any(check.origin == origin for check in outcome.checks)]
    table = Table(title=outcome.title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("number", min_width=20, overflow="fold")
    for column in (origins[0] or "published" if len(origins) == 1 else "published", "ours"):
        table.add_column(column, justify="right")
    table.add_column("difference", justify="right", no_wrap=True)
    table.add_column("tolerance", justify="right", min_width=9)
    table.add_column("", no_wrap=True)
    verdicts = {True: "agree", False: "[bold red]disagree[/]", None: ""}
    for origin in origins:
        if len(origins) > 1:
            table.add_section()
            table.add_row(f"[italic]{origin or 'not published'}[/]")
        for check in (check for check in outcome.checks if check.origin == origin):
            numbers = (_format(check.published), _format(check.ours), _format(check.difference, 2))
            table.add_row(check.name, *numbers, _format(check.tolerance, 2), verdicts[check.agree])
    Console().print(table)
    for bias in biases(outcome.checks):
        print(bias)
    print(f"{verdict([vars(check) for check in outcome.checks])} {seconds(outcome.seconds)}. ", end="")
    print(f"Page: {out / outcome.name / 'report.html'}\n", flush=True)


def _format(value: float | str | None, digits: int = 5) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else f"{value:.{digits}g}"


if __name__ == "__main__":
    sys.exit(main())
