"""``emphatic reproduce``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from emphatic.cli.common import carry_out
from emphatic.cli.progress import bars

if TYPE_CHECKING:
    from emphatic.studies.agreement import Check, Outcome

__all__ = ["reproduce"]


def reproduce(
    studies: Sequence[str], every: bool, quick: bool, out: Path, jobs: int, seed: int, rule: str | None = None
) -> int:
    """The command; its exit code: 1 where a number disagrees, 2 where it cannot be done."""
    from emphatic.studies import reproductions
    from emphatic.studies.order import resolve

    def command() -> int:
        if every == bool(studies):
            known = ", ".join(reproductions.names())
            raise ValueError(f"Name one study or more, or give --all. There are: {known}.")
        for name in studies:
            reproductions.find(name)  # a slip in the last name should not cost the studies before it
        own = None if rule is None else resolve([part.strip() for part in rule.split(",")])
        outcomes = []
        for name in reproductions.names() if every else dict.fromkeys(studies):
            with bars() as progress:
                outcome = reproductions.reproduce(
                    name, quick, out, seed=seed, jobs=jobs, progress=_named(name, progress), rule=own
                )
            _show(outcome, out)
            outcomes.append(outcome)
        if every:
            from emphatic.studies.reproductions.files import write_index

            write_index(outcomes, out)
            print(f"All studies: {out / 'index.html'}")
        return 0 if all(outcome.agree for outcome in outcomes) else 1

    return carry_out(command, lambda: "Stopped.")


def _named(name: str, progress: Callable[[str, int, int], None]) -> Callable[[str, int, int], None]:
    return lambda phase, done, total: progress(f"{name}: {phase}", done, total)


def _show(outcome: Outcome, out: Path) -> None:
    """Each number, published and ours, with its tolerance and the verdict; and where the page is."""
    from rich.console import Console
    from rich.table import Table

    from emphatic.report import seconds
    from emphatic.studies.agreement import ORIGINS
    from emphatic.studies.pages import verdict

    table = Table(title=outcome.title, title_justify="left")
    table.add_column("number")
    origins = [origin for origin in ORIGINS if any(check.origin == origin for check in outcome.checks)]
    for column in (*origins, "ours", "tolerance"):
        table.add_column(column, justify="right")
    table.add_column("")
    for check in outcome.checks:
        tolerance = _number(check.tolerance, 2)
        published = [_number(check.published) if check.origin == origin else "" for origin in origins]
        table.add_row(check.name, *published, _number(check.ours), tolerance, _verdict(check))
    Console().print(table)
    print(f"{verdict([vars(check) for check in outcome.checks])} {seconds(outcome.seconds)}. ", end="")
    print(f"Page: {out / outcome.name / 'report.html'}\n", flush=True)


def _number(value: float | str | None, digits: int = 5) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else f"{value:.{digits}g}"


def _verdict(check: Check) -> str:
    return {True: "agree", False: "[bold red]disagree[/]", None: ""}[check.agree]
