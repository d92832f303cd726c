"""The command line, ``emphatic``."""

from __future__ import annotations

import logging
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="emphatic",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class LogLevel(StrEnum):
    """The levels of ``logging``."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


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
    from emphatic.cli.common import log_to_stderr

    context.call_on_close(log_to_stderr(log_level.value))


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
    from emphatic.cli.demo import show

    try:
        show(steps, seed)
    except (ArithmeticError, ValueError) as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(2) from None


@app.command(short_help="Learn to predict every signal of a log, at several horizons.")
def nexting(
    table: Annotated[
        str | None,
        typer.Argument(
            help="A CSV, Parquet, Arrow, JSON lines or MCAP file, a ROS 2 bag's folder, or - for a pipe; default: a "
            "household's electric power."
        ),
    ] = None,
    predict: Annotated[
        str | None, typer.Option(help="Columns to predict, comma-separated; default: every numeric column.")
    ] = None,
    horizons: Annotated[
        str | None,
        typer.Option(help="Forecast horizons, comma-separated: steps (2,9,36) or durations (2min,1h,1d)."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Output folder; default: nexting/NAME, or NAME-2 … if that is taken.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file of settings; flags override it.")] = None,
    print_config: Annotated[bool, typer.Option("--print-config", help="Print the settings as TOML and exit.")] = False,
    time: Annotated[str | None, typer.Option(help="Column of time stamps, '' for none; default: detected.")] = None,
    delimiter: Annotated[str | None, typer.Option(help="Column separator of CSV; default: detected.")] = None,
    sort: Annotated[bool, typer.Option("--sort", help="Sort the rows by time, in memory.")] = False,
    pivot: Annotated[
        str | None,
        typer.Option(help="Sensor and value columns of a table in long format: sensor,value; '' to read it as is."),
    ] = None,
    topics: Annotated[
        str | None, typer.Option(help="Topics of a robot log (MCAP, ROS 2 bag) to read, comma-separated; default: all.")
    ] = None,
    stepsize: Annotated[
        str | None, typer.Option(help="How step sizes are found: auto, autostep, …; default: three rates, blended.")
    ] = None,
    coverage: Annotated[
        float | None, typer.Option(help="The share of returns to fall inside the intervals; default: 0.8.")
    ] = None,
    false_alarm_rate: Annotated[
        float | None, typer.Option(help="False alarms per row and signal, at most; default: 0.0001.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run that was interrupted.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the results in the output folder.")] = False,
    no_offline: Annotated[
        bool, typer.Option("--no-offline", help="Skip the offline fit that the predictions are compared with.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    model: Annotated[
        Path | None,
        typer.Option(help="With a pipe: the model to load, if it exists, and save.", rich_help_panel="Live"),
    ] = None,
    no_learn: Annotated[
        bool, typer.Option("--no-learn", help="With a pipe: predict without learning.", rich_help_panel="Live")
    ] = False,
    every: Annotated[
        str | None,
        typer.Option(help="With a pipe: one line every N readings, or every duration (5s).", rich_help_panel="Live"),
    ] = None,
    save_every: Annotated[
        str, typer.Option(help="With a pipe: how often to save the model.", rich_help_panel="Live")
    ] = "30s",
    warm_up: Annotated[
        int, typer.Option(help="With a pipe and no model: readings to warm up on.", rich_help_panel="Live")
    ] = 100,
    ray: Annotated[
        str | None,
        typer.Option(help="A Ray cluster to learn on, host:port, or 'local'.", rich_help_panel="On a cluster"),
    ] = None,
    shards: Annotated[
        int | None, typer.Option(help="Parts to learn in; default: one per node.", rich_help_panel="On a cluster")
    ] = None,
    storage: Annotated[
        Path | None,
        typer.Option(
            help="Folder that all nodes share, for what a restart needs; default: .cluster in the output folder.",
            rich_help_panel="On a cluster",
        ),
    ] = None,
    block: Annotated[
        int | None, typer.Option(help="Rows sent at a time; default: 1016.", rich_help_panel="On a cluster")
    ] = None,
    checkpoint_every: Annotated[
        str | None, typer.Option(help="How often shards are saved; default: 30s.", rich_help_panel="On a cluster")
    ] = None,
) -> None:
    """Learn to predict every signal of a table at several horizons, in one pass.

    Writes predictions.parquet, summary.json, report.html and model.safetensors. A prediction at a horizon of h steps
    is the weighted mean of the readings that follow, with weights that fall by a factor of 1 − 1/h per step, in the
    signal's own unit.
    """
    from emphatic.cli import nexting as terminal

    if quiet:
        logging.getLogger("emphatic").setLevel(logging.ERROR)
    if table == "-" and topics is not None:
        typer.echo("Error: --topics needs a robot log: a pipe has no topics.", err=True)
        raise typer.Exit(2)
    if table == "-" and (sort or pivot is not None):
        typer.echo("Error: --sort and --pivot need a file: on a pipe, rows come in the order of time.", err=True)
        raise typer.Exit(2)
    if table == "-" and (resume or overwrite or no_offline or print_config):
        typer.echo(
            "Error: --resume, --overwrite, --no-offline and --print-config need a file. A pipe always continues from "
            "its --model.",
            err=True,
        )
        raise typer.Exit(2)
    if table == "-":
        code = terminal.live(
            predict, horizons, out, config, time, model, no_learn, every, save_every, warm_up, delimiter, stepsize,
            coverage, false_alarm_rate,
        )  # fmt: skip
        raise typer.Exit(code)
    if model is not None or no_learn or every is not None:
        typer.echo("Error: --model, --no-learn and --every need a pipe: emphatic nexting - --model FILE.", err=True)
        raise typer.Exit(2)
    on_ray = {"shards": shards, "storage": storage, "block": block, "checkpoint_every": checkpoint_every}
    needs_ray = [f"--{name.replace('_', '-')}" for name, value in on_ray.items() if value is not None]
    if needs_ray and ray is None:
        typer.echo(f"Error: {needs_ray[0]} needs a cluster: --ray ADDRESS, or --ray local.", err=True)
        raise typer.Exit(2)
    options = terminal.Options(
        sort=sort,
        pivot=pivot,
        topics=topics,
        resume=resume,
        overwrite=overwrite,
        offline=not no_offline,
        quiet=quiet,
        stepsize=stepsize,
        coverage=coverage,
        false_alarm_rate=false_alarm_rate,
        ray=ray,
        on_ray={name: value for name, value in on_ray.items() if value is not None},
    )
    code = terminal.nexting(table, predict, horizons, out, config, print_config, time, delimiter, options)
    raise typer.Exit(code)


@app.command(short_help="Serve a model by HTTP, MQTT or Redis, with a live page.")
def serve(
    source: Annotated[
        str | None,
        typer.Argument(
            help="Where readings come from besides POST /readings: mqtt://HOST:1883/TOPIC, redis://HOST:6379/STREAM, "
            "or - for a pipe."
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(help="The model to load, if it exists, and save; default: nexting/live/model.safetensors."),
    ] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen at; any that other machines can reach needs --token-file.")
    ] = ("127.0.0.1"),
    port: Annotated[int, typer.Option(help="The port to listen at; 0 for any that is free.")] = 8765,
    predict: Annotated[
        str | None, typer.Option(help="Columns to predict, comma-separated; default: every numeric column.")
    ] = None,
    horizons: Annotated[
        str | None,
        typer.Option(help="Forecast horizons, comma-separated: steps (2,9,36) or durations (2min,1h,1d)."),
    ] = None,
    warm_up: Annotated[int, typer.Option(help="Without a model: readings to warm up on.")] = 100,
    save_every: Annotated[str, typer.Option(help="How often to save the model.")] = "30s",
    journal: Annotated[
        Path | None,
        typer.Option(help="The folder for readings since the last save; default: MODEL.journal."),
    ] = None,
    no_learn: Annotated[bool, typer.Option("--no-learn", help="Predict without learning.")] = False,
    config: Annotated[Path | None, typer.Option(help="TOML file of settings; flags override it.")] = None,
    publish: Annotated[
        str | None, typer.Option(help="Send predictions there too: mqtt://HOST:1883/TOPIC or redis://HOST:6379/STREAM.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="A file with the token that clients must give, as Authorization: Bearer TOKEN.")
    ] = None,
    log_level: Annotated[
        LogLevel, typer.Option(help="Log messages of this level and above.", case_sensitive=False)
    ] = LogLevel.info,
) -> None:
    """Serve a model: readings come in by HTTP, MQTT or Redis, predictions go out, and a page shows them.

    It learns from every reading, and after a stop or a crash it continues from where it was.
    """
    from emphatic.cli.nexting import read_settings
    from emphatic.cli.serve import serve as command

    def settings() -> object:
        return read_settings(config, predict, horizons, None, None)

    raise typer.Exit(
        command(
            source, model, host, port, settings, warm_up, save_every, journal, no_learn, publish, token_file,
            log_level.value,
        )
    )  # fmt: skip


@app.command(short_help="Write the plots of a report as SVG files.")
def figures(
    folder: Annotated[Path, typer.Argument(help="The output folder of emphatic nexting, or a report.html.")],
    out: Annotated[Path | None, typer.Option(help="The folder to write to; default: FOLDER/figures.")] = None,
    whole: Annotated[bool, typer.Option("--whole", help="The whole log instead of the close-up.")] = False,
) -> None:
    """Write the plots of a report as SVG files, one for each signal and one of the learning curves."""
    from emphatic.cli.figures import figures as command

    raise typer.Exit(command(folder, out, whole))


@app.command(short_help="Run published studies again and compare the numbers.")
def reproduce(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Studies by name.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All of them, and a page that leads to each.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer runs, and tolerances to match.")] = False,
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("reproduce"),
    jobs: Annotated[int, typer.Option(help="Processes that share the work; -1: one per core.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of everything that is sampled, 0 or more.")] = 0,
    rule: Annotated[
        str | None,
        typer.Option(help="Your own rules, MODULE:NAME, comma-separated, beside those of collision or four-rooms."),
    ] = None,
) -> None:
    """Run published studies again and compare: agree or disagree, number by number.

    Writes report.html and results.json for each. The exit code is 1 if any number disagrees.
    """
    from emphatic.cli.reproduce import reproduce as command

    raise typer.Exit(command(names or [], every, quick, out, jobs, seed, rule))


@app.command(short_help="Try a grid of rules and parameters on a problem or a log.")
def sweep(
    problem: Annotated[
        str | None, typer.Argument(help="A problem (chain, collision, random_walk, …) or a log (CSV, Parquet, …).")
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(
            help="Rules, comma-separated, your own as MODULE:NAME; default: td, etd and their true online forms."
        ),
    ] = None,
    alpha: Annotated[
        str | None, typer.Option(help="Step sizes: .1,.01, or 2^-12..2^-1 (doubling; the default).")
    ] = None,
    lambda_: Annotated[
        str | None, typer.Option("--lambda", help="Values of λ; default: 0,.5,.9,1. 0..1:+.25 goes up in steps of .25.")
    ] = None,
    stepsize: Annotated[
        str | None,
        typer.Option(help="How step sizes are found: auto,autostep,…; alpha multiplies.", rich_help_panel="Grid"),
    ] = None,
    eta: Annotated[str | None, typer.Option(help="β/α of the gradient rules.", rich_help_panel="Grid")] = None,
    beta: Annotated[str | None, typer.Option(help="β, in place of eta.", rich_help_panel="Grid")] = None,
    kappa: Annotated[str | None, typer.Option(help="κ of tdrc.", rich_help_panel="Grid")] = None,
    zeta: Annotated[str | None, typer.Option(help="ζ of abtd.", rich_help_panel="Grid")] = None,
    xi: Annotated[str | None, typer.Option(help="ξ of abtd, in place of ζ.", rich_help_panel="Grid")] = None,
    ridge: Annotated[
        str | None, typer.Option(help="Ridges of lstd and elstd; default: 1.", rich_help_panel="Grid")
    ] = None,
    forgetting: Annotated[
        str | None, typer.Option(help="Forgetting factors of lstd and elstd; default: 1.", rich_help_panel="Grid")
    ] = None,
    runs: Annotated[int | None, typer.Option(help="Seeded runs of each setting; default: 10.")] = None,
    steps: Annotated[int | None, typer.Option(help="Steps per run; default: 10,000.")] = None,
    every: Annotated[int | None, typer.Option(help="Steps between errors; default: 1.")] = None,
    points: Annotated[
        str | None,
        typer.Option(help="Points of a learning curve: how many (default 50), or comma-separated steps."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all runs; default: 0.")] = None,
    theta: Annotated[str | None, typer.Option(help="Initial weights, comma-separated; default: 0.")] = None,
    rerun: Annotated[
        int | None, typer.Option(help="Report the best setting of each rule on so many fresh runs; default: 0.")
    ] = None,
    plot: Annotated[
        str | None, typer.Option(help="Also draw figures, comma-separated: svg, pdf, png. Needs emphatic[plot].")
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Processes side by side; −1 for one per core.")] = None,
    out: Annotated[Path | None, typer.Option(help="The folder to write to; default: sweep/NAME.")] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file of settings; flags override it.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume/--fresh", help="Resume a sweep that was stopped, or start again.")
    ] = True,
    options: Annotated[
        list[str] | None, typer.Option("--with", help="An option of the problem, NAME=VALUE; may be repeated.")
    ] = None,
    predict: Annotated[str | None, typer.Option(help="The column to predict.", rich_help_panel="Of a log")] = None,
    horizon: Annotated[
        str | None, typer.Option(help="How far ahead: steps, or 15min.", rich_help_panel="Of a log")
    ] = None,
    time: Annotated[
        str | None, typer.Option(help="The column of time stamps, '' for none.", rich_help_panel="Of a log")
    ] = None,
    delimiter: Annotated[
        str | None, typer.Option(help="What separates the columns of CSV.", rich_help_panel="Of a log")
    ] = None,
) -> None:
    """Try every setting of a grid of rules and parameters, on a problem with exact answers or on a log.

    All settings of a rule learn side by side. Writes results.parquet (one row per setting and run), settings.parquet
    (one row per setting), summary.json (the best of each rule) and report.html. A sweep that was stopped resumes when
    the same command is given again.
    """
    from emphatic.cli.common import as_horizon
    from emphatic.cli.sweep import sweep as command

    flags: dict[str, object] = {
        "problem": problem, "runs": runs, "steps": steps, "every": every, "points": points, "seed": seed,
        "theta": theta, "rerun": rerun,
        "predict": predict, "horizon": None if horizon is None else as_horizon(horizon),
        "time": False if time == "" else time, "delimiter": "\t" if delimiter == "\\t" else delimiter,
    }  # fmt: skip
    grid = {
        "rule": rule, "alpha": alpha, "lambda": lambda_, "eta": eta, "beta": beta, "kappa": kappa, "zeta": zeta,
        "xi": xi, "stepsize": stepsize, "ridge": ridge, "forgetting": forgetting,
    }  # fmt: skip
    given = {name: value for name, value in grid.items() if value is not None}
    raise typer.Exit(command(config, flags, given, options or (), out, jobs, resume, plot))


@app.command()
def rules() -> None:
    """List the rules: name, update, paper, extra parameters."""
    from rich.console import Console
    from rich.table import Table

    import emphatic.rules as family

    table = Table(title="Rules", show_lines=True)
    table.add_column("rule", no_wrap=True)
    for column in ("update", "paper", "extra parameters"):
        table.add_column(column)
    for name in family.names():
        rule = family.get(name)
        extra = ", ".join(f"{name}={rule.defaults[name]}" if name in rule.defaults else name for name in rule.extra)
        table.add_row(rule.name, rule.update.replace("; ", "\n"), rule.paper, extra)
    console = Console()
    if not console.is_terminal:
        console.width = 1000  # nothing needs to fit: the table is as wide as its text
    console.print(table)
