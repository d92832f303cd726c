"""The command line, ``emphatic``: one module a command, each a thin layer over the library."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import Annotated, Any, get_type_hints

import typer

from emphatic.nexting.cli import demo, journal, nexting, serve, studies
from emphatic.nexting.cli.terminal import GroupedCommand, LogLevel, log_to_stderr

__all__ = ["app"]

#: The commands that read tables.
_READING = ("nexting", "serve")


class _Program(typer.Typer):
    """The command line as a program of its own."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Run the command of ``sys.argv``."""
        if sys.argv[1:2] and sys.argv[1] in _READING:
            _leave_pandas_out()
        return super().__call__(*args, **options)


class _NoPandas:
    """Finds no pandas."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Refuse ``import pandas``."""
        if name == "pandas":
            raise ModuleNotFoundError(name)
        return None


def _leave_pandas_out() -> None:
    """Let Arrow look for pandas in vain: it would import it, where it is installed, to make the first array.

    That takes a third of a second and 50 MB. Arrow looks again when a table is converted from or to pandas.
    """
    if "pandas" in sys.modules:
        return
    sys.meta_path.insert(0, _NoPandas)
    try:
        import pyarrow as pa

        pa.array([0])
    finally:
        sys.meta_path.remove(_NoPandas)


app = _Program(name="emphatic", no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"emphatic {version('emphatic')}")
        raise typer.Exit


@app.callback()
def main(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    log_level: Annotated[
        LogLevel | None,
        typer.Option(
            help="Log messages of this level and above to standard error.",
            show_default="warning; info for serve",
            case_sensitive=False,
        ),
    ] = None,
) -> None:
    """Learn long-term predictions online, from any stream of experience."""
    default = LogLevel.info if context.invoked_subcommand == "serve" else LogLevel.warning
    context.call_on_close(log_to_stderr((log_level or default).value))


def _add(name: str, command: Callable[..., None], short_help: str | None = None, group: typer.Typer = app) -> None:
    # Typer would evaluate the annotations of every command, as text, whenever one of them runs.
    command.__annotations__ = get_type_hints(command, include_extras=True)
    group.command(name, cls=GroupedCommand, short_help=short_help)(command)


_journal = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Check or repair the journal of a service.")


# In the order of the help.
_add("demo", demo.demo)
_add("nexting", nexting.nexting, "Learn to predict every signal of a log, at several horizons.")
_add("serve", serve.serve, "Serve a model by HTTP or MQTT, with a live page.")
_add("check", journal.check, "Check a journal, and show what a repair would save and lose.", _journal)
_add("repair", journal.repair, "Repair a journal, and keep a copy of it.", _journal)
app.add_typer(_journal, name="journal")
_add("sweep", studies.sweep, "Try a grid of rules and parameters on a problem or a log.")
_add("rules", demo.rules)
