"""What ``emphatic nexting`` shows in a terminal: progress, a short table, and errors in a line."""

from __future__ import annotations

import csv
import signal
import statistics
import sys
import threading
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["as_horizon", "live", "nexting", "said", "stopping"]


def nexting(
    source: str | None, predict: str | None, horizons: str | None, out: Path | None, config: Path | None,
    print_config: bool, time: str | None, delimiter: str | None, resume: bool,
) -> int:  # fmt: skip
    """The command; its exit code."""
    from emphatic.nexting import Failures, Nexting

    try:
        settings = _settings(config, predict, horizons, time, delimiter)
        path = source or _household()
        folder = out or Path("nexting") / _stem(path)
        if print_config:
            print(Nexting(path, settings, folder).open().settings.toml(), end="")
            return 0
        with stopping(), _bars() as progress:
            run = Nexting(path, settings, folder, progress)
            run.run(resume)
        _show(run)
        return 0
    except Failures as error:
        print(f"Error: {said(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stopped:
        print("Stopped; go on with --resume.", file=sys.stderr)
        return 128 + int(stopped.args[0] if stopped.args else signal.SIGINT)


@contextmanager
def stopping() -> Iterator[None]:
    """A polite request to end is taken like Ctrl-C."""

    def stop(number: int, _: Any) -> None:
        raise KeyboardInterrupt(number)

    if threading.current_thread() is not threading.main_thread():  # only there can it be asked for
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _listed(text: str) -> tuple[str, ...]:
    """What stands between commas; a name that has one itself stands in double quotes."""
    return tuple(part.strip() for part in next(csv.reader([text], skipinitialspace=True), [""]))


def live(
    predict: str | None, horizons: str | None, out: Path | None, config: Path | None, time: str | None,
    model: Path | None, no_learn: bool, every: str | None, save_every: str, warm_up: int,
) -> int:  # fmt: skip
    """The command on a pipe; its exit code."""
    from emphatic import durations
    from emphatic.live import Every, Live
    from emphatic.nexting import Failures

    try:
        settings = _settings(config, predict, horizons, time, None)
        path = model or (out or Path("nexting") / "live") / "model.safetensors"
        if no_learn and not path.exists():
            raise ValueError(f"--no-learn needs a model, and there is none at {path}.")
        if warm_up < 3:
            raise ValueError(f"--warm-up must be 3 readings or more. Got {warm_up}.")
        Live(path, settings, not no_learn, Every(every), durations.seconds(save_every), warm_up).run()
        return 0
    except Failures as error:
        print(f"Error: {said(error)}", file=sys.stderr)
        return 2


def _settings(
    config: Path | None, predict: str | None, horizons: str | None, time: str | None, delimiter: str | None
) -> Any:
    """A file of settings, and the flags before it."""
    from emphatic.settings import Settings

    settings = Settings.read(config) if config else Settings()
    flags: dict[str, Any] = {"time": time if time != "" else False}
    flags["delimiter"] = "\t" if delimiter == "\\t" else delimiter
    flags["predict"] = None if predict is None else _listed(predict)
    flags["horizons"] = None if horizons is None else tuple(map(as_horizon, _listed(horizons)))
    settings = replace(settings, **{key: value for key, value in flags.items() if value is not None})
    settings.check("nexting")
    return settings


def _household() -> str:
    from emphatic import data

    return str(data.household())


def _stem(path: str) -> str:
    return Path(path).name.split(".")[0] or "table"


def as_horizon(text: str) -> float | str:
    """Steps as a number, a duration as it is."""
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() else number


def said(error: BaseException) -> str:
    """An error in one line, with flags in place of keywords."""
    if isinstance(error, MemoryError):
        return "the memory is not enough."
    said = str(error)
    if isinstance(error, OSError) and error.strerror:
        said = f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}."
    for option, flag in (("time=False", "--time ''"), ("delimiter=…", "--delimiter …")):
        said = said.replace(option, flag)
    return " ".join(said.split())


@contextmanager
def _bars() -> Iterator[Callable[[str, int, int], None]]:
    """Progress on standard error, with rows a second and the time left; none where no one is looking."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description:9}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )  # fmt: skip
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda phase, done, total: None
        return
    with Progress(*columns, console=console, transient=True) as bars:
        tasks: dict[str, Any] = {}

        def progress(phase: str, done: int, total: int) -> None:
            if phase not in tasks:
                tasks[phase] = bars.add_task(phase, total=total or None, rate="")
            speed = bars.tasks[tasks[phase]].speed
            rate = f"{speed:,.0f} rows/s" if speed and phase != "scoring" else ""
            bars.update(tasks[phase], completed=done, total=total or None, rate=rate)

        yield progress


def _show(run: Any) -> None:
    """Median scores for each horizon, and where the files are."""
    from rich.console import Console
    from rich.table import Table

    C = len(run.settings.predict)
    median = f"median over {C} signals, " if C > 1 else ""
    table = Table(title=f"Variance explained in the second half, {median}{run.rows:,} rows")
    table.add_column("horizon")
    for name in ("learned online", "offline fit", "persistence", "mean"):
        table.add_column(name, justify="right")
    for horizon in run.settings.horizons:
        rows = [row for row in run.summary if row["horizon"] == horizon]
        said = [_median([row["variance_explained"] for row in rows])]
        said += [
            _median([row[name]["variance_explained"] for row in rows]) for name in ("offline", "persistence", "mean")
        ]
        table.add_row(str(horizon), *said)
    Console().print(table)
    frozen = int(run.horde.learner.frozen.sum())
    if frozen:
        print(f"{frozen} of {run.horde.learner.K} learners diverged and stand still.")
    print(f"Learned in {run.seconds['learning']:.1f} s. Report: {run.out / 'report.html'}")


def _median(values: list[float | None]) -> str:
    there = [value for value in values if value is not None]
    return f"{statistics.median(there):.3f}" if there else "–"
