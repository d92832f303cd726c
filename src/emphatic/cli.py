"""The command line, ``emphatic``."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(
    name="emphatic",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"emphatic {version('emphatic')}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Learn long-term predictions online, from any stream of experience."""


@app.command()
def demo(
    steps: Annotated[int, typer.Option(help="Steps of experience to learn from.")] = 1_000_000,
    seed: Annotated[int, typer.Option(help="Seed of the sampled experience, 0 or more.")] = 0,
) -> None:
    """Learn a five-state chain off-policy, beside plain TD.

    The chain is that of Sutton, Mahmood & White (2016): behaviour goes mostly left, the question is about
    always going right, and three features must do for five states. The table shows the exact values, what
    true online emphatic TD and off-policy TD learned from the same stream, and the fixed point of each.
    """
    from emphatic.demo import show

    try:
        show(steps, seed)
    except (ArithmeticError, ValueError) as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(2) from None


@app.command()
def rules() -> None:
    """List the rules: name, update, paper, extra parameters."""
    from rich.console import Console
    from rich.table import Table

    import emphatic.rules as family

    table = Table(title="Rules", show_lines=True)
    for column in ("rule", "update", "paper", "extra parameters"):
        table.add_column(column)
    for name in family.names():
        rule = family.get(name)
        update = " ".join((rule.function.__doc__ or "").split()).replace("; ", "\n")
        extra = ", ".join(f"{name}={rule.defaults[name]}" if name in rule.defaults else name for name in rule.extra)
        table.add_row(rule.name, update, rule.paper, extra)
    Console().print(table)


if __name__ == "__main__":
    app()
