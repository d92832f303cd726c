"""``emphatic sweep``."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from emphatic.cli.common import carry_out
from emphatic.cli.progress import bars

__all__ = ["sweep"]


def sweep(
    config: Path | None, flags: Mapping[str, Any], grid: Mapping[str, str], options: Sequence[str], out: Path | None,
    jobs: int | None, resume: bool, plot: str | None = None,
) -> int:  # fmt: skip
    """The command; its exit code."""
    from emphatic.report.plots import check_formats
    from emphatic.studies import sweep as swept
    from emphatic.studies.order import Order

    def command() -> int:
        fields = Order.read(config) if config else {}
        fields |= {name: value for name, value in flags.items() if value is not None}
        given = {name: value for name, value in grid.items() if value is not None}
        grids = tuple(fields.get("grid", ()))
        if given and len(grids) > 1:
            raise ValueError(
                f"--{next(iter(given))} does not say which of the {len(grids)} grids of {config} it is for."
            )
        if given:
            fields["grid"] = ((dict(grids[0]) if grids else Order.usual(given.get("rule"))) | given,)
        if isinstance(fields.get("points"), str):
            chosen = [_step(part) for part in fields["points"].split(",")]
            fields["points"] = chosen if len(chosen) > 1 else chosen[0]
        fields["options"] = dict(fields.get("options", {})) | dict(map(_option, options))
        order = Order(**fields)
        if not order.problem:
            raise ValueError("name a problem or a log: emphatic sweep chain.")
        folder = out or Path("sweep") / order.name
        formats = [] if plot is None else check_formats(plot)
        with bars(lambda phase, speed: f"{speed / 1e6:,.0f} M learner-steps/s") as progress:
            found = swept(
                order.source(), order.grids, **order.arguments, jobs=jobs, out=folder, resume=resume,
                progress=lambda done, total: progress("learning", done, total),
            )  # fmt: skip
        stepped = any(alpha == alpha for alpha in found.parameters["alpha"])  # (least squares has NaN)
        for kind in ("alpha", "lambda", "steps")[0 if stepped else 1 :] if formats else ():
            for suffix in formats:
                found.plot(kind, folder / f"{kind}.{suffix}")
        _show(found, folder)
        return 0

    return carry_out(command, lambda: "Stopped; the same command goes on from here.")


def _step(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"--points takes whole numbers with commas. Got {text!r}.") from None


def _option(text: str) -> tuple[str, Any]:
    """An option of a problem, NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise ValueError(f"--with takes NAME=VALUE. Got {text!r}.")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def _show(found: Any, folder: Path) -> None:
    """The best setting of each rule, and where the files are."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from emphatic.studies.pages import format_value

    plan = found.plan
    runs = f"{plan.runs} run{'s' if plan.runs > 1 else ''}"
    runs += f" to choose and {found.rerun.plan.runs} others to report" if found.rerun is not None else ""
    what = escape(plan.source.name)  # a column of a log may be called "power [kW]"
    table = Table(title=f"{what}: best settings by mean {plan.source.metric}, {runs} of {plan.source.steps:,} steps")
    table.add_column("rule", no_wrap=True)
    names = list(found.parameters)
    for name in (*names, "mean", "95%", "final", "diverged"):
        table.add_column(name, justify="right", no_wrap=name == "95%")
    for row in found.best:
        values = [format_value(row[name]) if name in row else "" for name in names]
        ends = f"{row['mean_low']:.3g}–{row['mean_high']:.3g}" if "mean_low" in row else ""
        errors = [_with_error(row, "mean"), ends, _with_error(row, "final")]
        table.add_row(
            found.labels[row["setting"]],
            *values,
            *errors,
            f"{row['diverged']}/{row['runs']}" if row["diverged"] else "",
        )
    Console().print(table)
    if next(iter(plan.source.baselines(plan.runs).values())) == 0.0:
        print("The first weights have no error here: begin with others, --theta.")
    diverged = int(found.diverged.any(axis=1).sum())
    if diverged:
        print(f"{diverged:,} of {len(found.mean):,} settings diverged in some run.")
    rate = plan.learner_steps / max(found.seconds, 1e-9) / 1e6
    took = f"{plan.learner_steps:,} learner-steps in {found.seconds:.1f} s ({rate:,.0f} M/s)"
    print(f"{took}. Report: {folder / 'report.html'}")


def _with_error(row: Mapping[str, Any], name: str) -> str:
    error = row.get(f"{name}_se")
    return f"{row[name]:.4g}" + (f" ± {error:.2g}" if error is not None and error == error else "")
