"""``emphatic nexting``, on a table and on a pipe."""

from __future__ import annotations

import csv
import statistics
import sys
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from emphatic.cli.common import FAILURES, as_horizon, carry_out, report_error
from emphatic.cli.progress import bars, compile_notice
from emphatic.report.tables import NONE, share

__all__ = ["Options", "live", "nexting", "read_settings"]


class Options(NamedTuple):
    """How to read the table and how to run, as opposed to what to predict."""

    sort: bool = False
    pivot: str | None = None
    topics: str | None = None
    resume: bool = False
    overwrite: bool = False
    offline: bool = True
    quiet: bool = False
    stepsize: str | None = None
    coverage: float | None = None
    false_alarm_rate: float | None = None
    ray: str | None = None
    on_ray: Mapping[str, Any] = {}


def nexting(
    source: str | None, predict: str | None, horizons: str | None, out: Path | None, config: Path | None,
    print_config: bool, time: str | None, delimiter: str | None, options: Options,
) -> int:  # fmt: skip
    """The command; its exit code."""
    folder = out

    def rate(phase: str, speed: float) -> str:
        return f"{speed:,.0f} rows/s" if phase != "scoring" else ""

    def command() -> int:
        nonlocal folder
        with bars(rate, "rows", options.quiet or print_config) as progress:
            progress("reading", 0, 0)  # before anything is imported that takes a while
            from emphatic import nexting as library

            settings = read_settings(
                config, predict, horizons, time, delimiter, options.sort, options.pivot, options.stepsize,
                options.topics, options.coverage, options.false_alarm_rate,
            )  # fmt: skip
            path = source or _household()
            if print_config:
                print(library.Nexting(path, settings, Path()).open().settings.toml(), end="")
                return 0
            folder = out or _default_folder(path, options)
            with compile_notice(progress):
                shared: dict[str, Any] = {
                    "out": folder, "config": settings, "resume": options.resume, "overwrite": options.overwrite,
                    "offline": options.offline, "progress": progress,
                    "announce": None if options.quiet else _announce,
                }  # fmt: skip
                result = library.run(path, **shared) if options.ray is None else _on_ray(path, options, shared)
        if not options.quiet:
            _show(result, folder)
        return 0

    return carry_out(command, lambda: _stopped(folder, options))


def _announce(text: str) -> None:
    print(f"emphatic: {text}", file=sys.stderr)


def _default_folder(path: str, options: Options) -> Path:
    """nexting/NAME, or the first of NAME-2, NAME-3 … that is free; to overwrite, NAME; to resume, the last of them."""
    from emphatic.nexting.runner import holds_results

    folder = first = Path("nexting") / _stem(path)
    if options.overwrite:
        return first
    for number in count(2):
        following = first.with_name(f"{first.name}-{number}")
        if not holds_results(following if options.resume else folder):
            break
        folder = following
    return folder


def _stopped(folder: Path | None, options: Options) -> str:
    """What to say after Ctrl-C."""
    from emphatic.nexting.learning import checkpoint_file

    if options.ray is not None:
        return f"Stopped; continue with --resume --out {folder}, if rows had been learned."
    if folder is not None and checkpoint_file(folder).exists():
        return f"Stopped; continue with --resume --out {folder}."
    return "Stopped; nothing was saved."


def _on_ray(path: str, options: Options, shared: dict[str, Any]) -> Any:
    """The same on a cluster."""
    from emphatic.cluster.connection import import_ray
    from emphatic.cluster.nexting import run

    try:
        import_ray()
    except ImportError as error:
        raise ValueError(str(error)) from error
    return run(path, address=options.ray, **options.on_ray, **shared)


def _listed(text: str) -> tuple[str, ...]:
    """The items of a comma-separated list; one with a comma in it is in double quotes."""
    return tuple(part.strip() for part in next(csv.reader([text], skipinitialspace=True), [""]))


def live(
    predict: str | None, horizons: str | None, out: Path | None, config: Path | None, time: str | None,
    model: Path | None, no_learn: bool, every: str | None, save_every: str, warm_up: int, delimiter: str | None = None,
    stepsize: str | None = None, coverage: float | None = None, false_alarm_rate: float | None = None,
) -> int:  # fmt: skip
    """The command on a pipe; its exit code."""
    from emphatic.nexting.live import Every, Live
    from emphatic.questions import durations

    try:
        settings = read_settings(
            config, predict, horizons, time, delimiter, stepsize=stepsize, coverage=coverage,
            false_alarm_rate=false_alarm_rate,
        )  # fmt: skip
        path = model or (out or Path("nexting") / "live") / "model.safetensors"
        if no_learn and not path.exists():
            raise ValueError(f"--no-learn needs a model, and there is none at {path}.")
        if warm_up < 3:
            raise ValueError(f"--warm-up must be 3 readings or more. Got {warm_up}.")
        Live(path, settings, not no_learn, Every(every), durations.seconds(save_every), warm_up).run()
        return 0
    except FAILURES as error:
        return report_error(error)


def read_settings(
    config: Path | None, predict: str | None, horizons: str | None, time: str | None, delimiter: str | None,
    sort: bool = False, pivot: str | None = None, stepsize: str | None = None, topics: str | None = None,
    coverage: float | None = None, false_alarm_rate: float | None = None,
) -> Any:  # fmt: skip
    """A file of settings, overridden by the flags."""
    from emphatic.nexting.settings import Settings

    return Settings.combine(
        config,
        predict=None if predict is None else _listed(predict),
        horizons=None if horizons is None else tuple(map(as_horizon, _listed(horizons))),
        time=False if time == "" else time,
        delimiter="\t" if delimiter == "\\t" else delimiter,
        sort=sort or None,
        pivot=False if pivot == "" else pivot,
        topics=topics,
        stepsize=stepsize,
        coverage=coverage,
        false_alarm_rate=false_alarm_rate,
    )


def _household() -> str:
    from emphatic import data

    return str(data.household())


def _stem(path: str) -> str:
    return Path(path).name.split(".")[0] or "table"


def _show(result: Any, folder: Path) -> None:
    """Median scores for each horizon, and where the files are."""
    from rich.console import Console
    from rich.table import Table

    from emphatic.nexting.runner import ingest_lines

    C = len(result.settings.predict)
    median = f"median over {C} signals, " if C > 1 else ""
    table = Table(title=f"Variance explained in the second half, {median}{result.rows:,} rows")
    table.add_column("horizon")
    for name in ("learned online", "offline fit", "persistence", "mean"):
        table.add_column(name, justify="right")
    empty: dict[str, list[str]] = {}
    too_long = {one["horizon"] for one in result.reading["unscored"] if "horizon" in one}  # the last lines say so
    for horizon in result.settings.horizons:
        rows = [row for row in result.summary if row["horizon"] == horizon]
        online, offline = _median(rows, ""), _median(rows, "offline")
        table.add_row(str(horizon), online, offline, _median(rows, "persistence"), _median(rows, "mean"))
        if horizon in too_long:
            continue
        if online == NONE:
            empty.setdefault(f"no scores, {rows[0]['reasons']['variance_explained']}", []).append(str(horizon))
        elif offline == NONE:
            empty.setdefault(f"no offline fit, {rows[0]['reasons']['offline']}", []).append(str(horizon))
    Console().print(table)
    for reason, horizons in empty.items():
        print(f"{', '.join(horizons)}: {reason}.")
    frozen = sum(int(learner.frozen.sum()) for learner in result.model.learners)
    if frozen:
        print(f"{frozen} of {sum(learner.K for learner in result.model.learners)} learners are frozen after diverging.")
    for line in ingest_lines(result.reading):
        print(line)
    print(f"Learned in {result.seconds['learning']:.1f} s. Report: {folder / 'report.html'}")


def _median(rows: list[dict[str, Any]], baseline: str) -> str:
    """The median of the variance explained, online or by a baseline."""
    values = [(row[baseline] if baseline else row)["variance_explained"] for row in rows]
    known = [value for value in values if value is not None]
    return share(statistics.median(known), 3).replace("−", "-") if known else NONE
