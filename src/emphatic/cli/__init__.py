"""The command line, ``emphatic``: one module a command, each a thin layer over the library."""

from __future__ import annotations

from typing import Annotated

import typer

from emphatic.cli import demo, nexting, serve, studies
from emphatic.cli.terminal import LogLevel, log_to_stderr

__all__ = ["app"]

app = typer.Typer(name="emphatic", no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)


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
        LogLevel, typer.Option(help="Log messages of this level and above to standard error.", case_sensitive=False)
    ] = LogLevel.warning,
) -> None:
    """Learn long-term predictions online, from any stream of experience."""
    context.call_on_close(log_to_stderr(log_level.value))


# In the order of the help.
app.command("demo")(demo.demo)
app.command("nexting", short_help="Learn to predict every signal of a log, at several horizons.")(nexting.nexting)
app.command("serve", short_help="Serve a model by HTTP, MQTT or Redis, with a live page.")(serve.serve)
app.command("figures", short_help="Write the plots of a report as SVG files.")(nexting.figures)
app.command("reproduce", short_help="Run published studies again and compare the numbers.")(studies.reproduce)
app.command("sweep", short_help="Try a grid of rules and parameters on a problem or a log.")(studies.sweep)
app.command("rules")(demo.rules)
