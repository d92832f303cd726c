"""``emphatic nexting``, on a table and on a pipe."""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from emphatic.nexting.cli.terminal import (
    FAILURES,
    bars,
    carry_out,
    compile_notice,
    flag_values,
    report_error,
    with_settings,
)
from emphatic.nexting.runs.settings import Settings

if TYPE_CHECKING:
    from emphatic.nexting.runs.runner import NextingResult

__all__ = ["asked_lines", "check_live_options", "nexting", "read_settings"]

_OUTPUT, _LIVE, _CLUSTER = "Output", "Live", "On a cluster"
#: How often the model of a pipe is saved by default.
_SAVE_EVERY = "30s"


@with_settings(Settings, "nexting", out=("predict", "horizons", "ask"), config=("time", "by", "resample"), resume=())
def nexting(
    table: Annotated[
        str | None,
        typer.Argument(
            help="A CSV, Parquet, Arrow, JSON lines, Excel, MCAP, SQLite or DuckDB file, a ROS 2 bag's folder, an "
            "export of Home Assistant, the address of a database or a time series store, or - "
            "for a pipe; default: the sample log."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Output folder; default: nexting/NAME, or NAME-2 … if that is taken.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Configuration file (TOML); flags override it.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run that was interrupted.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the results in the output folder.")] = False,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the settings as TOML and exit.", rich_help_panel=_OUTPUT)
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.", rich_help_panel=_OUTPUT)] = False,
    model: Annotated[
        Path | None, typer.Option(help="With a pipe: the model to load, if it exists, and save.", rich_help_panel=_LIVE)
    ] = None,
    no_learn: Annotated[
        bool, typer.Option("--no-learn", help="With a pipe: predict without learning.", rich_help_panel=_LIVE)
    ] = False,
    every: Annotated[
        str | None,
        typer.Option(help="With a pipe: one line every N readings, or every duration (5s).", rich_help_panel=_LIVE),
    ] = None,
    save_every: Annotated[
        str, typer.Option(help="With a pipe: how often to save the model.", rich_help_panel=_LIVE)
    ] = _SAVE_EVERY,
    warm_up: Annotated[
        int | None,
        typer.Option(
            help="With a pipe and no model: readings to warm up on.",
            show_default="four times the longest horizon, 500 to 10,000",
            rich_help_panel=_LIVE,
        ),
    ] = None,
    ray: Annotated[
        str | None, typer.Option(help="With --by: a Ray cluster, host:port or 'local'.", rich_help_panel=_CLUSTER)
    ] = None,
    **flags: Any,
) -> None:
    """Learn to predict every signal of a table at several horizons, in one pass.

    Predicts the value of each signal at each horizon (power at +1h) and the mean until then. Says for each signal
    whether it is predicted better than with the best baseline. Writes predictions.parquet, summary.json, report.html
    and model.safetensors.
    """
    if quiet:
        logging.getLogger("emphatic").setLevel(logging.ERROR)
    if table == "-":
        if flags["topics"] is not None:
            _refuse("--topics needs a robot log: a pipe has no topics.")
        if flags["sort"]:
            _refuse("--sort needs a file: the rows of a pipe must be in the order of time.")
        if flags["by"] is not None:
            _refuse("--by needs a file: on a pipe, start one process for each machine.")
        if resume or overwrite or print_config:
            _refuse("--resume, --overwrite and --print-config need a file. A pipe always continues from its --model.")
        if any(flags[name] is not None for name in ("query", "range", "step")):
            _refuse("--query, --range and --step need a table: name a database or a file instead of -.")
        path = model or (out or Path("nexting") / "live") / "model.safetensors"
        raise typer.Exit(_follow_pipe(path, config, flags, no_learn, every, save_every, warm_up))
    if model is not None or no_learn or every is not None or warm_up is not None or save_every != _SAVE_EVERY:
        options = "--model, --no-learn, --every, --save-every and --warm-up"
        _refuse(f"{options} need a pipe: emphatic nexting - --model FILE.")
    folder = out

    began = time.perf_counter()

    def command() -> int:
        nonlocal folder
        with bars(_rate, "rows", quiet or print_config) as progress:
            progress("reading", 0, 0)  # before anything is imported that takes a while
            from emphatic import nexting as library

            settings = read_settings(config, flags)
            path = table or _household()
            if print_config:
                from emphatic.nexting.runs.learning import open_log

                print((settings if settings.by else open_log(path, settings, progress).settings).toml(), end="")
                return 0
            folder = out or _default_folder(path, resume, overwrite)
            arguments: dict[str, Any] = {
                "out": folder,
                "resume": resume,
                "overwrite": overwrite,
                "progress": progress,
            }
            with compile_notice(progress):
                if ray is None:
                    result = library.run(path, config=settings, **arguments)
                else:
                    result = _run_on_ray(path, settings, ray, arguments)
        if not quiet:
            _show(result, folder, began)
        return 0

    raise typer.Exit(carry_out(command, lambda: _stopped(folder)))


def read_settings(config: Path | None, flags: dict[str, Any]) -> Settings:
    """A file of settings, overridden by the flags."""
    return Settings.combine(config, **flag_values(Settings, flags))


def check_live_options(model: Path, no_learn: bool, warm_up: int | None) -> None:
    """ValueError if a model cannot learn from a stream, or predict it, with these options."""
    if no_learn and not model.exists():
        raise ValueError(f"--no-learn needs a model, and there is none at {model}.")
    if warm_up is not None and warm_up < 3:
        raise ValueError(f"--warm-up must be 3 readings or more. Got {warm_up}.")


def _refuse(message: str) -> None:
    typer.echo(f"Error: {message}", err=True)
    raise typer.Exit(2)


def _rate(phase: str, speed: float) -> str:
    return f"{speed:,.0f} rows/s" if phase != "scoring" else ""


def _default_folder(path: str, resume: bool, overwrite: bool) -> Path:
    """nexting/NAME, or the first of NAME-2, NAME-3 … that is free; to overwrite, NAME; to resume, the last of them."""
    from emphatic.nexting.runs.runner import holds_results
    from emphatic.nexting.tables.stores import StoreAddress, is_address

    name = StoreAddress.parse(path).name if is_address(path) else Path(path).name.split(".")[0]
    folder = plain = Path("nexting") / (name or "table")
    if overwrite:
        return plain
    for number in count(2):
        numbered = plain.with_name(f"{plain.name}-{number}")
        if not holds_results(numbered if resume else folder):
            break
        folder = numbered
    return folder


def _stopped(folder: Path | None) -> str:
    """What to say after Ctrl-C."""
    from emphatic.nexting.runs.runner import is_stopped

    if folder is not None and is_stopped(folder):
        return f"Stopped. Continue with --resume --out {folder}."
    return "Stopped. Nothing was saved."


def _run_on_ray(path: str, settings: Settings, address: str, arguments: dict[str, Any]) -> NextingResult:
    """``emphatic.nexting.run`` with the machines of a table on a Ray cluster."""
    from emphatic.nexting.cluster import run_by_machine

    return run_by_machine(path, settings, address=address, **arguments)


def _follow_pipe(
    path: Path,
    config: Path | None,
    flags: dict[str, Any],
    no_learn: bool,
    every: str | None,
    save_every: str,
    warm_up: int | None,
) -> int:
    """The command on a pipe; its exit code."""
    from emphatic.gvfs import durations
    from emphatic.nexting.live import Live
    from emphatic.nexting.runs.predictor import Every

    try:
        settings = read_settings(config, flags)
        check_live_options(path, no_learn, warm_up)
        Live(path, settings, not no_learn, Every(every), durations.seconds(save_every), warm_up).run()
        return 0
    except FAILURES as error:
        return report_error(error)


def _household() -> str:
    from emphatic.nexting import data

    return str(data.household())


def _show(result: NextingResult, folder: Path, began: float) -> None:
    """Median scores for each horizon, how long the whole command took since it ``began``, and where the files are."""
    from rich.console import Console
    from rich.table import Table

    from emphatic.nexting.answers.periods import describe_periods
    from emphatic.nexting.runs.outlook import values_at
    from emphatic.nexting.runs.runner import alarm_lines, forecast_lines, ingest_lines, verdict_lines

    C, horizons = len(result.settings.predict or ()), result.settings.horizons or ()
    median = f"median over {C} signals, " if C > 1 else ""
    if result.models:
        median = f"median over {len(result.models):,} machines{f' and {C} signals' if C > 1 else ''}, "
    verdicts = verdict_lines(result.verdict)
    if len(verdicts) < len(result.verdict):
        verdicts.append("The verdict on each signal is in report.html.")
    for line in verdicts + forecast_lines(result.summary[1:], result.settings.coverage, result.reading.get("units")):
        print(line)
    values = [row for row, signal in values_at(result.summary) if signal in (result.settings.predict or ())]
    table = Table(title=f"Variance explained of values at +horizon in the second half, {median}{result.rows:,} rows")
    table.add_column("horizon", no_wrap=True)
    for name in ("online", "best baseline", "persistence"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict" if C * max(1, len(result.models)) == 1 else "better", no_wrap=True)
    for horizon in horizons:
        if rows := [row for row in values if row["horizon"] == horizon]:
            shares = [_median(rows, name) for name in ("online", "best baseline", "persistence")]
            table.add_row(str(horizon), *shares, _count_verdicts(rows))
    Console().print(table)
    if not result.models and (frozen := sum(int(one.frozen.sum()) for one in result.model.forecaster.horde.learners)):
        learners = sum(learner.K or 1 for learner in result.model.forecaster.horde.learners)
        print(f"{frozen} of {learners} learners are frozen after diverging.")
    for line in ingest_lines(result.reading) + ([] if result.models else alarm_lines(result.summary)):
        print(line)
    if not result.models:
        periods = describe_periods({row["signal"]: row["periods"] for row in result.verdict})
        if periods:
            print(f"Periods: {periods}.")
    for line in asked_lines(result.summary[1:]):
        print(line)
    print(f"Learned in {time.perf_counter() - began:.1f} s. Report: {folder / 'report.html'}")


def asked_lines(summary: Sequence[Mapping[str, Any]]) -> list[str]:
    """Two sentences for each question of a summary: its answer from the last row, and how good its answers were."""
    from emphatic.nexting.answers.language import describe_answer, describe_score

    asked = [score for score in summary if "text" in score and not score["default"]]
    return [f"{describe_answer(score)} {describe_score(score)}" for score in asked]


def _count_verdicts(rows: Sequence[Mapping[str, Any]]) -> str:
    """The verdict of a horizon on a single signal; of several, how many are predicted better."""
    verdicts = [str(row["verdict"]) for row in rows]
    return verdicts[0] if len(rows) == 1 else f"{verdicts.count('better')} of {len(verdicts)}"


def _median(rows: Sequence[Mapping[str, Any]], column: str) -> str:
    """The median of the variance explained, online or by a baseline."""
    from emphatic.nexting.report.page import NONE, share

    scores = {
        "online": rows,
        "best baseline": [row["baselines"].get(row["best_baseline"], {}) for row in rows],
        "persistence": [row["baselines"].get("persistence", {}) for row in rows],
    }[column]
    values = [score.get("variance_explained") for score in scores]
    known = [value for value in values if value is not None]
    return share(statistics.median(known), 3).replace("−", "-") if known else NONE
