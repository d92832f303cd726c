"""``emphatic nexting``, on a table and on a pipe."""

from __future__ import annotations

import csv
import statistics
from pathlib import Path
from typing import Any

from emphatic.cli.common import FAILURES, as_horizon, bars, carry_out, report_error

__all__ = ["live", "nexting"]


def nexting(
    source: str | None, predict: str | None, horizons: str | None, out: Path | None, config: Path | None,
    print_config: bool, time: str | None, delimiter: str | None, resume: bool, ray: str | None,
    on_ray: dict[str, Any],
) -> int:  # fmt: skip
    """The command; its exit code. ``on_ray`` are the options that need ``ray``, the address of a cluster."""
    from emphatic import nexting as library

    def command() -> int:
        settings = _settings(config, predict, horizons, time, delimiter)
        path = source or _household()
        folder = out or Path("nexting") / _stem(path)
        if print_config:
            print(library.Nexting(path, settings, folder).open().settings.toml(), end="")
            return 0
        with bars(lambda phase, speed: f"{speed:,.0f} rows/s" if phase != "scoring" else "") as progress:
            if ray is None:
                result = library.run(path, out=folder, config=settings, resume=resume, progress=progress)
            else:
                result = _on_ray(path, settings, folder, progress, resume, ray, on_ray)
        _show(result, folder)
        return 0

    return carry_out(command, "Stopped; continue with --resume.")


def _on_ray(
    path: str, settings: Any, folder: Path, progress: Any, resume: bool, address: str, options: dict[str, Any]
) -> Any:
    """The same on a cluster."""
    from emphatic.cluster.connection import import_ray
    from emphatic.cluster.nexting import ClusterNexting
    from emphatic.nexting.job import NextingResult

    try:
        import_ray()
    except ImportError as error:
        raise ValueError(str(error)) from error
    given = {name: value for name, value in options.items() if value is not None}
    return NextingResult.of(ClusterNexting(path, settings, folder, progress, address=address, **given), resume)


def _listed(text: str) -> tuple[str, ...]:
    """The items of a comma-separated list; one with a comma in it is in double quotes."""
    return tuple(part.strip() for part in next(csv.reader([text], skipinitialspace=True), [""]))


def live(
    predict: str | None, horizons: str | None, out: Path | None, config: Path | None, time: str | None,
    model: Path | None, no_learn: bool, every: str | None, save_every: str, warm_up: int,
) -> int:  # fmt: skip
    """The command on a pipe; its exit code."""
    from emphatic.nexting.live import Every, Live
    from emphatic.questions import durations

    try:
        settings = _settings(config, predict, horizons, time, None)
        path = model or (out or Path("nexting") / "live") / "model.safetensors"
        if no_learn and not path.exists():
            raise ValueError(f"--no-learn needs a model, and there is none at {path}.")
        if warm_up < 3:
            raise ValueError(f"--warm-up must be 3 readings or more. Got {warm_up}.")
        Live(path, settings, not no_learn, Every(every), durations.seconds(save_every), warm_up).run()
        return 0
    except FAILURES as error:
        return report_error(error)


def _settings(
    config: Path | None, predict: str | None, horizons: str | None, time: str | None, delimiter: str | None
) -> Any:
    """A file of settings, overridden by the flags."""
    from emphatic.nexting.settings import Settings

    return Settings.combine(
        config,
        predict=None if predict is None else _listed(predict),
        horizons=None if horizons is None else tuple(map(as_horizon, _listed(horizons))),
        time=False if time == "" else time,
        delimiter="\t" if delimiter == "\\t" else delimiter,
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

    C = len(result.settings.predict)
    median = f"median over {C} signals, " if C > 1 else ""
    table = Table(title=f"Variance explained in the second half, {median}{result.rows:,} rows")
    table.add_column("horizon")
    for name in ("learned online", "offline fit", "persistence", "mean"):
        table.add_column(name, justify="right")
    for horizon in result.settings.horizons:
        rows = [row for row in result.summary if row["horizon"] == horizon]
        shown = [_median([row["variance_explained"] for row in rows])]
        shown += [
            _median([row[name]["variance_explained"] for row in rows]) for name in ("offline", "persistence", "mean")
        ]
        table.add_row(str(horizon), *shown)
    Console().print(table)
    frozen = int(result.model.learner.frozen.sum())
    if frozen:
        print(f"{frozen} of {result.model.learner.K} learners are frozen after diverging.")
    print(f"Learned in {result.seconds['learning']:.1f} s. Report: {folder / 'report.html'}")


def _median(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.median(known):.3f}" if known else "–"
