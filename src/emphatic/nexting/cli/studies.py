"""``emphatic sweep``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from emphatic.nexting.cli.terminal import bars, carry_out, compile_notice, flag_values, report_error, with_settings
from emphatic.studies.sweep_config import SweepConfig

if TYPE_CHECKING:
    from emphatic.studies.results import Sweep

__all__ = ["sweep"]


#: The flags that stand before --figures.
_OF_RUNS = ("runs", "steps", "episodes", "every", "seed", "rerun")


@with_settings(SweepConfig, "sweep", figures=_OF_RUNS, flags=())
def sweep(
    problem: Annotated[
        str | None, typer.Argument(help="A problem (chain, collision, mountain_car, …) or a log (CSV, Parquet, …).")
    ] = None,
    rules: Annotated[
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
    grid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUES",
            help="Values of another parameter, such as eta=.1,1, epsilon=0,.1 or stepsize=auto,autostep; "
            "may be repeated.",
        ),
    ] = None,
    figures: Annotated[bool, typer.Option("--figures", help="Also draw SVG figures. Needs emphatic[plot].")] = False,
    jobs: Annotated[int | None, typer.Option(help="Number of processes; −1 for one per core.")] = None,
    ray: Annotated[str | None, typer.Option(help="A Ray cluster to learn on, host:port, or 'local'.")] = None,
    out: Annotated[Path | None, typer.Option(help="The folder to write to; default: sweep/NAME.")] = None,
    config: Annotated[Path | None, typer.Option(help="Configuration file (TOML); flags override it.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume/--fresh", help="Resume a sweep that was stopped, or start again.")
    ] = True,
    **flags: Any,
) -> None:
    """Try every setting of a grid of rules and parameters, on a problem with exact answers or on a log.

    All settings of a rule learn side by side. Writes results.parquet (one row per setting and run), settings.parquet
    (one row per setting), summary.json (the best of each rule) and report.html. To resume a sweep that was stopped, run
    the same command again.
    """
    from emphatic.nexting.report.plots import check_format
    from emphatic.studies import sweep as run_sweep

    if jobs is not None and ray is not None:
        raise typer.Exit(report_error(ValueError("--jobs is for one machine. --ray uses all CPUs of the cluster.")))

    def command() -> int:
        fields = SweepConfig.read(config) if config else {}
        values = flag_values(SweepConfig, flags) | {"problem": problem}
        fields |= {name: value for name, value in values.items() if value is not None}
        axes = {"rule": rules, "alpha": alpha, "lambda": lambda_} | dict(map(_parse_axis, grid or ()))
        axes = {name: value for name, value in axes.items() if value is not None}
        grids = tuple(fields.get("grid", ()))
        if axes and len(grids) > 1:
            raise ValueError(f"--{_flag(next(iter(axes)))} does not say which of the grids of {config} it is for.")
        if axes:
            usual = (
                dict(grids[0])
                if grids
                else SweepConfig.usual(axes.get("rule"), fields.get("problem", ""), fields.get("episodes") is not None)
            )
            fields["grid"] = (usual | axes,)
        sweep_config = SweepConfig(**fields)
        if not sweep_config.problem:
            raise ValueError("name a problem or a log: emphatic sweep chain.")
        folder = out or Path("sweep") / sweep_config.name
        if figures:
            check_format("alpha.svg")  # before anything is learned
        with (
            nullcontext() if ray is None else _on_ray(ray),
            bars(lambda phase, speed: f"{speed / 1e6:,.0f} M learner-steps/s") as progress,
            compile_notice(progress),
        ):
            result = run_sweep(
                sweep_config.source(),
                sweep_config.grids,
                **sweep_config.arguments,
                jobs=jobs,
                out=folder,
                resume=resume,
                progress=lambda done, total: progress("learning", done, total),
            )
        stepped = any(alpha == alpha for alpha in result.parameters["alpha"])  # (least squares has NaN)
        drawn = {
            "alpha": stepped,
            "rules": any(entry["at_best"] for entry in result.sensitivity),
            "lambda": any(result.along(rule)[0] for rule in dict.fromkeys(result.labels)),
            "steps": True,
            "runs": result.distribution,
        }
        for kind, possible in drawn.items():
            if figures and possible:
                result.plot(kind, folder / f"{kind}.svg")
        _show_sweep(result, folder)
        return 0

    raise typer.Exit(carry_out(command, lambda: "Stopped. Run the same command again to continue.", SweepConfig))


def _on_ray(address: str) -> AbstractContextManager[None]:
    """A context in which a sweep runs on a Ray cluster."""
    from emphatic.nexting.cluster import joblib_on_ray

    return joblib_on_ray(address)


def _flag(axis: str) -> str:
    """The flag of an axis of the grid."""
    return {"rule": "rules", "alpha": "alpha", "lambda": "lambda"}.get(axis, "grid")


def _parse_axis(text: str) -> tuple[str, str]:
    """The values of a parameter, NAME=VALUES."""
    name, equals, values = text.partition("=")
    if not equals or not name.isidentifier():
        raise ValueError(f"--grid takes NAME=VALUES. Got {text!r}.")
    return name, values


def _show_sweep(results: Sweep, folder: Path) -> None:
    """The best setting of each rule, and where the files are."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from emphatic.studies.pages import format_value

    plan = results.plan
    runs = f"{plan.runs} run{'s' if plan.runs > 1 else ''}"
    runs += f" to choose and {results.rerun.plan.runs} others to report" if results.rerun is not None else ""
    title = escape(plan.source.name)  # a column of a log may be called "power [kW]"
    title += f": best settings by mean {plan.source.metric}, {runs} of {plan.source.steps:,} {plan.source.unit}"
    table = Table(
        title=title,
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("rule", no_wrap=True)
    names = list(results.parameters)
    diverging = ["diverged"] if any(row["diverged"] for row in results.best) else []
    for name in (*names, "mean", "95%", "final", *diverging):
        table.add_column(name, justify="right", no_wrap=True)
    for row in results.best:
        # what is at the edge of its grid is marked, and explained below
        values = [format_value(row[name]) + " !" * (name in row["edge"]) if name in row else "" for name in names]
        ends = f"{row['mean_low']:.3g}–{row['mean_high']:.3g}" if row["mean_low"] is not None else ""
        errors = [_with_error(row, "mean"), ends, f"{row['final']:.4g}"]
        table.add_row(
            results.labels[row["setting"]],
            *values,
            *errors,
            *[f"{row['diverged']}/{row['runs']}" if row["diverged"] else ""] * len(diverging),
        )
    Console().print(table)
    for row in results.best:
        label = results.labels[row["setting"]]
        if row["advice"]:
            print(f"! {label} is best at the edge of the grid: {row['advice']}")
        if row["tolerance"] is not None:
            print(f"{label}: {_tolerance_words(row)}")
        if row["area"] is not None:
            worst = f"{row['worst']:.4g}" if math.isfinite(row["worst"]) else "diverged"
            print(f"{label} over alpha: area {row['area']:.4g}, worst {worst}.")
    if next(iter(plan.source.baselines(plan.runs).values())) == 0.0:
        print("The initial weights already have zero error. Set other initial weights with theta in a --config file.")
    diverged = int(results.diverged.any(axis=1).sum())
    if diverged:
        print(f"{diverged:,} of {len(results.mean):,} settings diverged in some run.")
    took = f"{plan.learner_steps:,} learner-{plan.source.unit} in {results.seconds:.1f} s"
    if plan.source.unit == "steps":
        took += f" ({plan.learner_steps / max(results.seconds, 1e-9) / 1e6:,.3g} M/s)"
    print(f"{took}. Report: {folder / 'report.html'}")


def _tolerance_words(row: Mapping[str, Any]) -> str:
    from emphatic.studies.statistics import runs_for_tolerance

    share = f"{100 * row['tolerance']:.3g}% of runs"
    if row["tolerance_low"] is None:
        return f"for {share} a tolerance interval needs {runs_for_tolerance(row['tolerance'])} runs or more."
    return f"{share} lie between {row['tolerance_low']:.4g} and {row['tolerance_high']:.4g} (95% confidence)."


def _with_error(row: Mapping[str, Any], name: str) -> str:
    error = row.get(f"{name}_se")
    return f"{row[name]:.4g}" + (f" ± {error:.2g}" if error is not None and error == error else "")
