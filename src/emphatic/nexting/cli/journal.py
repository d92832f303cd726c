"""``emphatic journal``: check and repair the journal of a service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from emphatic.nexting.cli.terminal import FAILURES, report_error

if TYPE_CHECKING:
    from emphatic.nexting.serve.journal import Inspection

__all__ = ["check", "repair"]

_File = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="The folder of the journal, a file in it, or the model that it belongs to."),
]
#: Damages and lost ranges that are listed one by one.
_LISTED = 20


def check(file: _File) -> None:
    """Check every line of a journal, and show what a repair would save and lose. Nothing is changed.

    The exit code is 0 if every line is intact, or if a crash interrupted only the last write. It is 1 if the journal is
    damaged.
    """
    from emphatic.nexting.serve.journal import inspect

    try:
        folder = _folder(file)
        inspection = inspect(folder)
    except FAILURES as error:
        raise typer.Exit(report_error(error)) from None
    _show(folder, inspection)
    if inspection.damages:
        saved, lost = _count(inspection.readings), _count(inspection.lost_count)
        typer.echo(f"A repair saves {saved} and loses {lost}:{_ranges(inspection)}")
        typer.echo(f"Repair it with: emphatic journal repair {file}")
    raise typer.Exit(1 if inspection.damages else 0)


def repair(file: _File) -> None:
    """Repair a journal: keep every reading that can be read, and a copy of the journal as it was.

    Stop the service first. Swapped and repeated readings are put back in order.
    """
    from emphatic.common.locks import hold_lock
    from emphatic.nexting.serve import journal

    try:
        folder = _folder(file)
        with hold_lock(folder / ".lock", folder):
            inspection = journal.inspect(folder)
            _show(folder, inspection)
            copy = journal.repair(folder)
    except FAILURES as error:
        raise typer.Exit(report_error(error)) from None
    if copy is None:
        typer.echo("Nothing to repair.")
        return
    typer.echo(
        f"Repaired: {_count(inspection.readings)} saved, {_count(inspection.lost_count)} lost.{_ranges(inspection)}"
    )
    typer.echo(f"The original journal is in {copy}.")


def _folder(path: Path) -> Path:
    """The folder of a journal, by any path that names it."""
    if path.is_dir():
        folder = path
    elif path.suffix == ".jsonl" or path.name in ("end", "id"):
        folder = path.parent
    else:
        folder = path.with_name(f"{path.name}.journal")
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder: name the journal, a file in it, or the model that it belongs to.")
    names = {entry.name for entry in folder.iterdir()}
    if not names & {"end", "id"} and not any(name.endswith(".jsonl") for name in names):
        raise ValueError(f"{folder} is not a journal: it has neither a file id nor a file of readings (*.jsonl).")
    return folder


def _show(folder: Path, inspection: Inspection) -> None:
    where = f", number {inspection.first} to {inspection.last}" if inspection.last >= inspection.first else ""
    typer.echo(f"{folder}: {_count(inspection.readings)}{where}.")
    if inspection.empty:
        typer.echo(f"An earlier repair lost {_count(inspection.empty)}.")
    for damage in inspection.damages[:_LISTED]:
        typer.echo(f"Damaged: {damage}.")
    if len(inspection.damages) > _LISTED:
        typer.echo(f"Damaged: {len(inspection.damages) - _LISTED} more places.")
    if inspection.torn is not None:
        typer.echo(f"Torn: {inspection.torn.path.name}: {inspection.torn.problem}")
    if not inspection.damages and inspection.torn is None:
        typer.echo("Every line is intact.")


def _count(count: int) -> str:
    return f"{count:,} reading{'' if count == 1 else 's'}"


def _ranges(inspection: Inspection) -> str:
    """The numbers of the lost readings, in lines."""
    ranges = [f"{begin}" if begin == end else f"{begin} to {end}" for begin, end in inspection.lost]
    unlisted = [f"and {len(ranges) - _LISTED} more ranges"] if len(ranges) > _LISTED else []
    return "".join(f"\n  {text}" for text in [*ranges[:_LISTED], *unlisted])
