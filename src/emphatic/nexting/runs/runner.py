"""The main job: a table of readings in; predictions of every signal at every horizon, scores, a report and a model out.

A run has phases, each a function from a record to a record:

    settings → ``open_log`` → OpenedLog → ``learn_log`` → Learned → ``score_log`` → Scored → ``write_results``

The table is read through once, in blocks, to learn from; a file of text also once before, to count its rows, on which
the default horizons and the warm-up depend. What is predicted is written in parts, through which scoring goes
(``emphatic.nexting.runs.scoring``). Nothing in memory grows with the rows.
"""

from __future__ import annotations

import html
import json
import logging
import os
import shutil
import time as clock_time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from emphatic.common.files import atomic_file
from emphatic.common.locks import UNFINISHED, hold_folder
from emphatic.common.names import suggests_keywords
from emphatic.common.parts import open_writer
from emphatic.engines.generated import compile_in_background
from emphatic.gvfs.durations import format_duration, seconds
from emphatic.learning.inputs import refusal
from emphatic.learning.sequences import UndiscountedWarning
from emphatic.nexting.report.page import with_digits
from emphatic.nexting.report.plots import Panel, Plot, draw_file, read_plots
from emphatic.nexting.runs import learning
from emphatic.nexting.runs.alarms import alarms_by_signal
from emphatic.nexting.runs.learning import Learned, Progress
from emphatic.nexting.runs.machines import Models, run_machines, save_models, unfinished_file
from emphatic.nexting.runs.outlook import unit_of
from emphatic.nexting.runs.predictor import Predictor
from emphatic.nexting.runs.report import render_report
from emphatic.nexting.runs.scoring import Scored, ScoreTable, import_pandas, score_log
from emphatic.nexting.runs.settings import Settings
from emphatic.nexting.tables import Table
from emphatic.nexting.tables.grid import arrangement_lines
from emphatic.stepsizes import StepSize

__all__ = ["FILES", "Nexting", "NextingResult", "Progress", "holds_results", "load", "load_model", "run"]

_log = logging.getLogger(__name__)

#: The kernels that a second process compiles, of which those that take longest come first.
_LATE = (
    "nexting.answers.kernels.advance",
    "nexting.answers.kernels.close",
    "nexting.answers.kernels.decide",
    "nexting.runs.alarm_kernels.alarms",
)
#: Names that a line lists at most.
_LISTED = 6
#: Signals whose forecasts are printed at most.
_FORECAST = 10
#: The columns of the table of scores.
_SUMMARY_COLUMNS = (
    *("machine", "text", "kind", "signal", "horizon", "verdict", "best_baseline", "skill_best", "skill_best_low"),
    *("skill_best_high", "rmse", "variance_explained", "brier", "coverage", "known"),
)
#: The columns of the two tables in a notebook, in words.
_VERDICT_HEADINGS = {
    "machine": "machine",
    "signal": "signal",
    "verdict": "verdict",
    "horizon": "best horizon",
    "best_baseline": "best baseline",
    "skill_best": "skill over the best baseline",
    "skill_best_low": "from",
    "skill_best_high": "to",
}
_FORECAST_HEADINGS = {
    "machine": "machine",
    "signal": "signal",
    "horizon": "horizon",
    "time": "time",
    "mean": "forecast",
    "low": "from",
    "high": "to",
    "kind": "kind",
}
#: Verdicts that are counted where signals are many, in words.
_OTHER_VERDICTS = {"no better": "no better", "too short": "cannot be judged on so short a log"}
#: What a run leaves in its folder.
FILES = ("predictions.parquet", "summary.json", "report.html", "model.safetensors")


# ---------------------------------------------------------------------- the job in one call


@dataclass(eq=False)
class NextingResult:
    """The result of ``run``.

    Args:
        summary: The objects of ``summary.json``: the first has ``reading`` and ``signals``; then comes one for each
            question, with its ``text``.
        settings: All settings, including those found from the data.
        rows: The number of rows.
        seconds: The seconds that each phase took.
        out: The folder that was written, or None.
        models: With ``by``, the model of each machine.
    """

    summary: ScoreTable
    settings: Settings
    rows: int
    seconds: dict[str, float]
    out: Path | None
    models: Mapping[str, Predictor] = field(default_factory=dict, repr=False)
    _predictions: pa.Table | None = field(default=None, repr=False)
    _page: str | None = field(default=None, repr=False)
    _checkpoint: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.summary = ScoreTable(self.summary, _SUMMARY_COLUMNS)

    @cached_property
    def model(self) -> Predictor:
        """The model, to continue with (``observe``, ``ask``) or to ``save``: as the run left it when you first use it.

        With ``by`` it is that of the last machine; with ``share`` its weights of TD are those of all machines.
        """
        if self.models:
            return self.models[list(self.models)[-1]]
        if self.out is not None:
            return load_model(self.out / "model.safetensors")
        assert self._checkpoint is not None
        with TemporaryDirectory(prefix="emphatic-") as folder:
            file = Path(folder) / "model.safetensors"
            file.write_bytes(self._checkpoint)
            return load_model(file)

    @property
    def reading(self) -> dict[str, Any]:
        """How the table was read: its time, step and gaps, rows dropped and columns left out, each with the reason."""
        facts: dict[str, Any] = self.summary[0]["reading"]
        return facts

    @property
    def verdict(self) -> ScoreTable:
        """The verdict on each signal: whether it is predicted better than with the best baseline.

        Each row has ``signal``, ``verdict`` ("better", "no better" or "too short"), ``sentence``, and of the signal's
        best horizon ``horizon``, ``best_baseline``, ``skill_best``, ``skill_best_low`` and ``skill_best_high``.

        >>> import emphatic
        >>> x = np.random.default_rng(1).normal(size=1000)
        >>> result = emphatic.nexting.run({"noise": x}, horizons=[2, 10])
        >>> result.verdict[0]["sentence"]
        'noise is predicted no better than with the mean.'
        """
        return ScoreTable(self.summary[0]["signals"])

    @property
    def baselines(self) -> ScoreTable:
        """The error of each baseline for each question: ``text``, ``baseline``, ``rmse``, ``variance_explained``.

        >>> import emphatic
        >>> result = emphatic.nexting.run({"x": np.sin(np.arange(500) / 9)}, horizons=[5])
        >>> [row["baseline"] for row in result.baselines][:2]
        ['persistence', 'past_mean']
        """
        return ScoreTable(
            ({"machine": score["machine"]} if "machine" in score else {})
            | {"text": score["text"], "baseline": name}
            | measures
            for score in self.summary[1:]
            for name, measures in score.get("baselines", {}).items()
        )

    @property
    def predictions(self) -> Any:
        """The predictions, an Arrow table: ``row``, ``time`` if there is one, a column per question, the bounds of its
        interval, ``.low`` and ``.high``, and the ``.usual`` answer.

        With an output folder they are read from its file when you first use them.
        """
        if self._predictions is None and self.out is not None:
            self._predictions = _read_predictions(self.out)
        return self._predictions

    def in_memory(self) -> NextingResult:
        """The same result without its folder: predictions and report are kept in memory."""
        assert self.out is not None
        page = (self.out / "report.html").read_text("utf-8")
        models = {machine: self.models[machine] for machine in self.models}
        model = self.out / "model.safetensors"
        checkpoint = model.read_bytes() if model.exists() else None
        table = _read_predictions(self.out)
        return replace(self, out=None, models=models, _predictions=table, _page=page, _checkpoint=checkpoint)

    def to_pandas(self) -> Any:
        """The predictions as a pandas DataFrame, with the time as its index where there is one.

        >>> import emphatic
        >>> result = emphatic.nexting.run({"x": np.sin(np.arange(500) / 9)}, horizons=[5])
        >>> result.to_pandas().columns[:2].tolist()
        ['row', 'x at +5']
        """
        import_pandas()
        frame = self.predictions.to_pandas()
        return frame.set_index("time") if "time" in frame.columns else frame

    def forecast(self) -> ScoreTable:
        """What is predicted from the last row on.

        The columns are ``signal``, ``time``, ``mean``, ``low``, ``high``, ``horizon`` and ``kind``, a row for each
        question about a signal by itself. ``mean`` is the answer, with its interval from ``low`` to ``high``. A value
        (``kind`` "at") is that at ``time``; of others ``time`` is the end of the window. If rows have no times, it is
        the number of the row.

        >>> import emphatic
        >>> x = np.sin(np.arange(500) / 9)
        >>> forecast = emphatic.nexting.run({"x": x}, horizons=[3]).forecast()
        >>> [(row["kind"], row["time"], round(row["mean"], 1)) for row in forecast]
        [('at', 502, -0.7), ('mean', 502, -0.8)]
        """
        return ScoreTable(_forecast_rows(self))

    def plot(self, signal: str | None = None) -> Any:
        """Draw recent readings of a signal, its forecast at each horizon with the interval, and the best baseline.

        It is the first plot of the report, as a figure of matplotlib.

        Args:
            signal: The signal; default: the first.

        >>> import emphatic
        >>> figure = emphatic.nexting.run({"x": np.sin(np.arange(500) / 9)}, horizons=[5]).plot("x")
        >>> figure.axes[0].get_title(loc="left")
        'x: recent readings and forecast'
        >>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()][-1]
        'forecast with its 80% interval'
        """
        plots: dict[str, Plot] = {}
        for _, plot in read_plots(self.report()):
            for name in self.settings.predict or ():
                if plot.group == "outlook" and (panel := _panel_of(plot, name)) is not None:
                    plots.setdefault(name, replace(plot, views={"": [_name_shapes(panel, self.settings)]}))
        signal = next(iter(plots), None) if signal is None else signal
        if signal not in plots:
            raise ValueError(f"There is no plot of {signal!r}. Signals with a plot: {', '.join(plots) or 'none'}.")
        return draw_file(plots[signal], legend=True)

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the files of the run to a folder, as ``out`` would have: predictions, scores, report and model.

        The model is saved as the run left it; ``result.model.save(path)`` saves it as it is now.

        Args:
            folder: The folder. A folder that holds results is rejected with an error, unless ``overwrite``.
            overwrite: Whether to replace the results in the folder.

        >>> import emphatic, tempfile
        >>> result = emphatic.nexting.run({"x": np.sin(np.arange(500) / 9)}, horizons=[5])
        >>> folder = result.save(tempfile.mkdtemp() + "/results")
        >>> emphatic.nexting.load(folder).verdict == result.verdict
        True
        """
        target = Path(folder)
        if not overwrite:
            check_free(target)
        if self.out is not None and target.resolve() == self.out.resolve():
            return target
        if self.out is not None:
            for name in (*FILES, "models"):
                source = self.out / name
                if source.is_dir():
                    shutil.copytree(source, target / name, dirs_exist_ok=overwrite)
                elif source.exists():
                    target.mkdir(parents=True, exist_ok=True)
                    with atomic_file(target / name) as file:
                        file.write(source.read_bytes())
            return target
        target.mkdir(parents=True, exist_ok=True)
        with atomic_file(target / "predictions.parquet") as file, open_writer(file, self.predictions) as writer:
            writer.write_table(self.predictions)
        self.report(target / "report.html")
        with atomic_file(target / "summary.json") as file:
            file.write(_as_json(self.summary).encode())
        if self._checkpoint is not None:
            with atomic_file(target / "model.safetensors") as file:
                file.write(self._checkpoint)
        else:
            save_models(self.models, target)
        return target

    def _repr_html_(self) -> str:
        """The verdicts and the forecast, as a notebook shows them."""
        sentences = "".join(f"<p>{html.escape(line)}</p>" for line in verdict_lines(self.verdict))
        verdicts, forecast = (
            ScoreTable({words: row[key] for key, words in headings.items() if key in row} for row in rows)
            for rows, headings in ((self.verdict, _VERDICT_HEADINGS), (self.forecast(), _FORECAST_HEADINGS))
        )
        shown = f"<p>Forecast from the last row:</p>{forecast._repr_html_()}" if forecast else ""
        return f"{sentences}{verdicts._repr_html_()}{shown}"

    def report(self, path: str | os.PathLike[str] | None = None) -> str:
        """The report, as one HTML page that loads nothing from elsewhere.

        Args:
            path: A file to which the report is also written.
        """
        page = self._page
        if page is None and self.out is not None:
            page = (self.out / "report.html").read_text("utf-8")
        assert page is not None
        if path is not None:
            with atomic_file(path) as file:
                file.write(page.encode())
        return page

    def __repr__(self) -> str:
        return f"NextingResult({len(self.summary) - 1} questions, {self.rows:,} rows)"


@suggests_keywords
def run(
    data: object,
    *,
    predict: str | Sequence[str] | None = None,
    horizons: float | str | Sequence[float | str] | None = None,
    out: str | os.PathLike[str] | None = None,
    time: str | bool | None = None,
    delimiter: str | None = None,
    sort: bool | None = None,
    pivot: str | Sequence[str] | bool | None = None,
    topics: str | Sequence[str] | None = None,
    resample: str | float | None = None,
    max_age: str | float | None = None,
    missing: str | float | Sequence[str | float] | None = None,
    keep_sentinels: bool | None = None,
    skip_lines: int | None = None,
    header: int | str | Sequence[str] | None = None,
    by: str | None = None,
    share: bool | None = None,
    sections: str | Sequence[str] | None = None,
    increments: str | Sequence[str] | bool | None = None,
    query: str | None = None,
    range: str | None = None,
    step: str | None = None,
    stepsize: str | Mapping[str, Any] | StepSize | None = None,
    ask: str | Sequence[str] | None = None,
    weighted: bool | None = None,
    coverage: float | None = None,
    false_alarm_rate: float | None = None,
    config: str | os.PathLike[str] | Mapping[str, Any] | Settings | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> NextingResult:
    """Learn predictions of signals at several horizons in one pass over a table, and score them: ``emphatic nexting``.

    With ``out``, the four files of the command are written to that folder, and a run that was interrupted can be
    resumed. Without ``out``, no files remain; a temporary folder is used meanwhile, and the predictions are then held
    in memory.

    Args:
        data: A frame (pandas, polars, Arrow), a dict of arrays, an array (T, C), the path of a file (CSV, Parquet,
            Arrow, JSON lines, MCAP, SQLite, DuckDB) or of a ROS 2 bag's folder, or the address of a database or a time
            series store (docs/databases.md).
        predict: The columns to predict; default: every numeric column, without ids, years, counts of rows and
            constants.
        horizons: The averaging horizons, in steps or as durations such as "15min"; default: four, from two steps to a
            hundredth of the log.
        out: The folder to write to. A folder that holds results is rejected, unless ``overwrite`` or ``resume``.
        time: The time column, False for none; by default it is detected.
        delimiter: The column separator of CSV; by default it is detected.
        sort: Whether to sort the rows by time.
        pivot: "sensor,value": the columns of a table in long format; each sensor then becomes a column. By default this
            is done if it is unambiguous; False reads the rows as they are.
        topics: The topics of a robot log to read; default: all.
        resample: The regular time step to resample rows to, such as "5min"; "none" for the rows as they are. By
            default, "auto", rows are resampled if sensors report at different times.
        max_age: After resampling, how long the last value of a sensor is used, such as "1h"; older values are missing.
        missing: Codes for a missing value, such as -999.
        keep_sentinels: Whether to learn from -999, 65535 and other outliers as they are.
        skip_lines: The number of lines above the header of CSV to skip; default: detected.
        header: The line of the header of CSV after those, 0 for none; or the names of the columns.
        by: The column with the name of the machine. Each machine is learned separately, with its own ranges, scores and
            model.
        share: With ``by``, whether to learn one set of weights from all machines.
        sections: With ``by``, the machines with their own section in the report, or "all"; default: all of up to four.
        increments: The counters to learn as their increments, False for none; default: detected.
        query: The query of a database or a time series store, in its own language; default: its only table.
        range: What to read of a time series store: a duration up to now such as "30d", or "START/END".
        step: The time between two rows of a time series store, such as "1min".
        stepsize: The step-size method, a name or an object of ``emphatic.stepsizes``; default: a fixed step size.
        ask: Questions in one line of text, such as "P(power > 5 within 1h)" or "power at +6h" (see docs/ask.md). Each
            adds columns with its answers, and an object to the summary.
        weighted: Whether to ask for the weighted mean of all that follows too, of each signal at each horizon, such as
            "power@1h".
        coverage: The target coverage of the intervals; default: 0.8.
        false_alarm_rate: The target number of false alarms per row and signal; default: 0.00025.
        config: These and more settings (``rate``, ``rule``, ``features``, ``questions``; see docs/settings.md) as a
            mapping or the path of a TOML file; the other arguments override it.
        resume: Whether to continue the run that was interrupted in ``out``.
        overwrite: Whether to replace the results in ``out``.
        progress: Called now and then with the phase, how much is done, and of how much: 0 while that is not known.

    >>> import numpy as np
    >>> import emphatic
    >>> t = np.arange(1000)
    >>> result = emphatic.nexting.run({"wave": np.sin(t / 9), "level": np.cos(t / 9)}, predict="wave", horizons=[2, 10])
    >>> result.predictions.column_names[:3]
    ['row', 'wave at +2', 'wave at +2.low']
    >>> [round(score["variance_explained"], 1) for score in result.summary[1:3]]
    [1.0, 1.0]
    """
    if out is None and resume:
        raise refusal("resume", "run", "be given together with the folder to resume, 'out'", "no 'out'")
    if overwrite and resume:
        raise ValueError(
            "overwrite=True starts again and resume=True continues a run that was stopped: give one of them."
        )
    settings = Settings.combine(
        config,
        predict=predict,
        horizons=horizons,
        time=time,
        delimiter=delimiter,
        sort=sort,
        pivot=pivot,
        topics=topics,
        resample=resample,
        max_age=max_age,
        missing=missing,
        keep_sentinels=keep_sentinels,
        skip_lines=skip_lines,
        header=tuple(header) if isinstance(header, list) else header,
        by=by,
        share=share,
        sections=sections,
        increments=increments,
        query=query,
        range=range,
        step=step,
        stepsize=stepsize.config() if isinstance(stepsize, StepSize) else stepsize,
        ask=ask,
        weighted=weighted,
        coverage=coverage,
        false_alarm_rate=false_alarm_rate,
    )
    with ExitStack() as stack:
        if out is not None:
            folder = Path(out)
            if not (overwrite or resume):
                check_free(folder)
        else:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="emphatic-"))) / "nexting"
        result = Nexting(data, settings, folder, progress or silent).run(resume)
        return result if out is not None else result.in_memory()


def load(folder: str | os.PathLike[str]) -> NextingResult:
    """The result of an earlier run, from its folder.

    The seconds of each phase are not in the files: ``seconds`` is empty.

    Args:
        folder: The output folder of ``run`` or ``emphatic nexting``, or one that ``NextingResult.save`` wrote.

    >>> import emphatic, tempfile
    >>> folder = tempfile.mkdtemp() + "/results"
    >>> result = emphatic.nexting.run({"x": np.sin(np.arange(500) / 9)}, horizons=[5], out=folder)
    >>> emphatic.nexting.load(folder).summary == result.summary
    True
    """
    path = Path(folder)
    missing = [name for name in FILES[:3] if not (path / name).is_file()]
    if missing:
        raise ValueError(f"{path}: this folder holds no finished run: there is no {missing[0]}.")
    try:
        summary = json.loads((path / "summary.json").read_text("utf-8"))
        reading = summary[0]["reading"]
    except (ValueError, KeyError, IndexError, TypeError):
        raise ValueError(f"{path / 'summary.json'}: this is not the summary of emphatic nexting.") from None
    models = {
        machine["name"]: path / machine["model"] for machine in reading.get("machines", ()) if machine.get("model")
    }
    settings = load_model(list(models.values())[-1] if models else path / "model.safetensors").settings
    settings = replace(settings, by=reading["by"]) if models else settings
    return NextingResult(ScoreTable(summary), settings, reading["rows"], {}, path, models=Models(models))


def load_model(path: str | os.PathLike[str]) -> Predictor:
    """The model of a run, of a pipe or of a service, which continues with ``observe``.

    Args:
        path: The file, such as ``model.safetensors``.

    >>> import emphatic, tempfile
    >>> folder = tempfile.mkdtemp() + "/results"
    >>> result = emphatic.nexting.run({"x": np.sin(np.arange(500) / 9)}, horizons=[5], out=folder)
    >>> model = emphatic.nexting.load_model(folder + "/model.safetensors")
    >>> list(model.observe({"x": 0.3}))[:2]
    ['x at +5', 'x at +5.low']
    """
    return Predictor.load(path)[0]


def silent(*_: object) -> None:
    """Says nothing."""


def holds_results(folder: Path) -> bool:
    """Whether a folder has a file of an earlier run, or what one that was stopped can go on from."""
    return any((folder / name).exists() for name in FILES) or is_stopped(folder)


def is_stopped(folder: Path) -> bool:
    """Whether a run was stopped in a folder that can go on."""
    return learning.checkpoint_file(folder).exists() or unfinished_file(folder).exists()


def check_free(folder: Path) -> None:
    """ValueError if a folder holds results, or a run that was stopped."""
    if not holds_results(folder):
        return
    with hold_folder(folder):  # a run that is still going on is refused as such
        pass
    stopped = is_stopped(folder)
    what = (
        "an interrupted run: continue it with resume=True, or replace it"
        if stopped
        else "the results of an earlier run: choose another folder, or replace them"
    )
    raise ValueError(f"{folder}: this folder holds {what} with overwrite=True.")


def _panel_of(plot: Plot, signal: str) -> Panel | None:
    """The panel of a signal with forecasts, whose title is its name, with its unit where that is known."""
    panels = [panel for panels in plot.views.values() for panel in panels]
    panels = [panel for panel in panels if panel.marks]  # (the others have no forecast)
    exact = (panel for panel in panels if panel.title == signal)
    return next(exact, next((panel for panel in panels if panel.title.startswith(f"{signal}, ")), None))


def _name_shapes(panel: Panel, settings: Settings) -> Panel:
    """The panel of a forecast with a title and names that say what they are without the page around it."""
    marks = [replace(mark, name=f"{mark.name} with its {settings.coverage:.0%} interval") for mark in panel.marks]
    return replace(panel, title=f"{panel.title}: recent readings and forecast", marks=marks)


def _as_json(summary: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps(summary, indent=1, allow_nan=False, ensure_ascii=False)


def _forecast_rows(result: NextingResult) -> Iterator[dict[str, Any]]:
    """The rows of ``NextingResult.forecast``."""
    step, ends_of = result.reading.get("step"), _last_rows(result)
    dated = "time" in result.predictions.column_names
    for score in result.summary[1:]:
        if score.get("signal") is None or score["answer"] is None:
            continue
        machine = {"machine": score["machine"]} if "machine" in score else {}
        when = _later(ends_of[score.get("machine")], score["horizon"], step, dated)
        ends = {end: score[end] for end in ("low", "high")}
        forecast = {"signal": score["signal"], "time": when, "mean": score["answer"], **ends}
        yield machine | forecast | {"horizon": score["horizon"], "kind": score["kind"]}


def _last_rows(result: NextingResult) -> dict[str | None, dict[str, Any]]:
    """The last row of the predictions, of each machine."""
    table = result.predictions
    if not result.models:
        return {None: _read_row(table.slice(table.num_rows - 1))}
    machines = table.column(0).to_pylist()  # (the column that tells machines apart comes first)
    places = {machine: place for place, machine in enumerate(machines)}
    return {machine: _read_row(table.slice(place, 1)) for machine, place in places.items()}


def _read_row(row: pa.Table) -> dict[str, Any]:
    """A row by name. A number in float32 is the shortest one that it stands for: 20.1, not 20.100000381469727."""
    values: dict[str, Any] = row.to_pylist()[0]
    for column in row.schema:
        if column.type == pa.float32() and values[column.name] is not None:
            values[column.name] = float(str(np.float32(values[column.name])))
    return values


def _later(row: Mapping[str, Any], horizon: float | str, step: float | None, dated: bool) -> Any:
    """The time, or the number of the row, so far after a row."""
    if not dated:
        return row["row"] + horizon if not isinstance(horizon, str) else None
    ahead = seconds(horizon) if isinstance(horizon, str) else None if step is None else horizon * step
    if row["time"] is None or ahead is None:
        return None
    return row["time"] + (timedelta(seconds=ahead) if isinstance(row["time"], datetime) else ahead)


def _read_predictions(folder: Path) -> pa.Table:
    with pq.ParquetFile(folder / "predictions.parquet") as file:
        return file.read(use_threads=False)


# ---------------------------------------------------------------------- the job in phases


@dataclass(frozen=True, eq=False)
class Nexting:
    """A run of ``emphatic nexting`` on one table.

    Args:
        source: The table: data in memory, or the path of a file.
        settings: What to predict, and how.
        out: The output folder.
        progress: Called now and then with the phase, how much is done, and of how much (0 while that is not known).
    """

    source: object
    settings: Settings
    out: Path
    progress: Progress = silent

    def run(self, resume: bool = False) -> NextingResult:
        """Learn, score, and write all files.

        Args:
            resume: Whether to continue a run that was stopped.
        """
        return run_job(self, resume) if self.settings.by is None else run_machines(self, resume)


def run_job(job: Nexting, resume: bool) -> NextingResult:
    """All phases of a job, with its output folder held against other runs.

    Args:
        job: The table, the settings and the output folder.
        resume: Whether to continue a run that was stopped.
    """
    was_stopped, is_finished = (job.out / UNFINISHED).exists(), (job.out / "model.safetensors").exists()
    with hold_folder(job.out), ExitStack() as stack:
        stack.enter_context(compile_in_background(_LATE))
        if resume and is_finished and not was_stopped:
            raise ValueError(f"{job.out}: nothing to resume: the run there is finished.")
        point = learning.find_point(job.out) if resume else None
        extent = None if point is None else point.state["table"].get("extent")
        log = learning.open_log(job.source, job.settings, job.progress, extent=extent)
        resumption = learning.find_resumption(log, job.out, point, job.progress)
        try:
            # Scores of readings near the largest number may overflow; a γ that varies may be 1 for long.
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore", UndiscountedWarning)
                learned = learning.learn_log(log, resumption, job.progress)
                _log_learning(learned)
                scored = score_log(learned, job.progress)
                _log.info("scored in %.1f s", scored.seconds)
                seconds = write_results(scored, job.out)
                _log.info("wrote %s", job.out)
        except BaseException as error:
            # What an interrupted run leaves is there to resume from; an error leaves only what was there before.
            is_resumable = point is not None or not isinstance(error, Exception)
            if not (is_resumable and learning.checkpoint_file(job.out).exists()):
                with suppress(OSError):
                    resumption.store.clear()
            if isinstance(error, OSError) and error.strerror and not error.filename:
                error.filename = str(job.out)  # a full disk does not say which
            raise
    return NextingResult(ScoreTable(scored.summary), log.settings, log.rows, seconds, job.out)


def _log_learning(learned: Learned) -> None:
    table = learned.log.table
    _log.info("learned from %d rows in %.1f s", learned.log.rows, learned.seconds)
    for drop in table.dropped.facts():
        how_many = f"{drop['count']}, the first at line {drop['first']}"
        _log.warning("%s: rows dropped: %s: %s", table.name, how_many, drop["why"])
    if learned.frozen:
        _log.warning("%d of %d learners are frozen after diverging", learned.frozen, learned.learners)


def write_results(scored: Scored, out: Path) -> dict[str, float]:
    """Write the summary and the page, and put all four files in their places.

    Returns:
        How long each phase took.
    """
    began, learned = clock_time.perf_counter(), scored.learned
    store = learned.store
    scored.summary[0]["reading"] = ingest_summary(scored)
    (store.folder / "summary").write_text(_as_json(scored.summary), "utf-8")
    seconds = {"reading": learned.log.seconds, "learning": learned.seconds, "scoring": scored.seconds}
    seconds["report"] = clock_time.perf_counter() - began
    (store.folder / "report").write_text(render_report(scored, seconds), "utf-8")
    # The checkpoint comes last: until then the run can be resumed.
    for name in FILES:
        os.replace(store.folder / (name if name == "model.safetensors" else name.partition(".")[0]), out / name)
    store.clear()
    return seconds


# ---------------------------------------------------------------------- how the table was read


def ingest_summary(scored: Scored) -> dict[str, Any]:
    """How the table of a scored log was read.

    That is ``Table.facts``, with the number of rows, the usual step (in seconds where times are dates), the gaps and
    the times that go back; whether the rows were ``sorted``; ``guarded`` counts the far readings of each signal that
    were pulled in or taken for missing, ``sentinels`` names those that were taken for missing again and again;
    ``unreadable`` counts the values of each signal that are not numbers, or infinite;
    ``times_missing`` counts the rows whose time is missing or cannot be read;
    ``increments`` are the counters that are learned as their increments, and how often each went back; ``unscored`` are
    signals and horizons
    without a score, and why.
    """
    learned = scored.learned
    log, clock, table = learned.log, learned.clock, learned.log.table
    step = None if clock is None or not np.isfinite(clock.step) else clock.step
    unreadable = zip(table.names, learned.counts.unreadable, learned.counts.infinite, strict=True)
    facts: dict[str, Any] = table.facts() | {
        "rows": log.rows,
        "step": step,
        "step_text": None if step is None else format_duration(step) if table.dated else f"{step:g}",
        "gaps": learned.counts.gaps,
        "times_missing": 0 if clock is None else clock.missing,
        "backwards": 0 if clock is None else clock.backwards,
        "sorted": bool(log.settings.sort),
        "guarded": learned.guarded_counts(),
        "sentinels": learned.guard.sentinels(table.names),
        "unreadable": {name: texts + infinite for name, texts, infinite in unreadable if texts + infinite},
        "increments": _increments(table),
        "unscored": _unscored(scored),
    }
    facts["columns_left_out"] += [{"name": name, "why": why} for name, why in learned.unused_columns().items()]
    return facts


def _increments(table: Table) -> list[dict[str, Any]]:
    """The counters that are learned as their increments, and how often each went back."""
    if table.increments is None:
        return []
    pairs = zip(table.increments.columns.tolist(), table.increments.resets.tolist(), strict=True)
    return [{"name": table.names[column], "resets": resets} for column, resets in pairs]


def _unscored(scored: Scored) -> list[dict[str, Any]]:
    learned = scored.learned
    unscored: list[dict[str, Any]] = []
    for name, lowest in zip(learned.log.table.names, learned.counts.lowest, strict=True):
        if name in learned.forecaster.signals and (lowest is None or name in learned.constant):
            why = "it has no value in the whole log" if lowest is None else "it never changes"
            unscored.append({"signal": name, "why": why})
    short = {}
    for score in scored.summary[1:]:
        if score["kind"] == "at" and score["signal"] in learned.forecaster.signals and not score["scored"]:
            short[score["horizon"]] = "no window of the second half is known"
    return unscored + [{"horizon": horizon, "why": why} for horizon, why in short.items()]


def ingest_lines(facts: Mapping[str, Any]) -> list[str]:
    """The facts, as the last lines of a run."""
    time = facts["time"]
    if "why" in time:
        lines = [f"No time column: {time['why']}. {_many(facts['gaps'], 'gap')}."]
    else:
        zone = f", zone {time['zone']}" if time["zone"] else ""
        step = f"typical step {facts['step_text']}" if facts["step_text"] else "no step"
        back = f", {facts['backwards']:,} of them where time goes back" if facts["backwards"] else ""
        columns = " and ".join(map(repr, time["columns"]))
        lines = [f"Time: {columns} ({time['format']}{zone}); {step}; {_many(facts['gaps'], 'gap')}{back}."]
    lines += arrangement_lines(facts)
    if facts.get("by"):
        count, scored = len(facts["machines"]), [m for m in facts["machines"] if m["variance_explained"] is not None]
        how = "with one set of weights" if facts["shared"] else "each by itself"
        lines.append(f"Machines: {count:,} by {facts['by']!r}, learned from {how}.")
        scored.sort(key=lambda machine: -machine["variance_explained"])
        if len(scored) > 1:
            best, worst = (f"{m['name']} ({m['variance_explained']:.3f})" for m in (scored[0], scored[-1]))
            lines.append(f"Variance explained, median over signals and horizons: best {best}, worst {worst}.")
        if failed := [f"{m['name']} ({m['why']})" for m in facts["machines"] if m.get("why")]:
            lines.append(f"Not learned from: {_list(failed)}")
    if "query" in facts:
        lines.append(_query_line(facts["query"]))
    if facts["sorted"]:
        lines.append("Rows sorted by time.")
    if facts["rows_dropped"]:
        why = "; ".join(
            f"{drop['count']:,} × {drop['why']} (first: {drop['first']:,})" for drop in facts["rows_dropped"]
        )
        lines.append(f"Rows dropped: {why}.")
    if facts.get("times_missing"):
        untimed = f"{facts['times_missing']:,}; such a row is taken to follow the one above"
        lines.append(f"Times missing or not readable: {untimed}.")
    if facts["rows_short"]:
        lines.append(f"Short rows: {facts['rows_short']:,}; absent fields count as missing.")
    if facts.get("percent"):
        lines.append(f"Percent signs ignored (50% is 50): {_list(list(map(repr, facts['percent'])))}.")
    if facts.get("unreadable"):
        counted = [f"{count:,} of {name!r}" for name, count in facts["unreadable"].items()]
        lines.append(f"Not finite numbers, counted as missing: {_list(counted)}.")
    if facts["guarded"]:
        lines.append(f"Outliers: {_list(guarded_texts(facts['guarded']))}.")
    if facts.get("sentinels"):
        named = [
            f"{' and '.join(f'{value} ({count:,})' for value, count in values.items())} of {name}"
            for name, values in facts["sentinels"].items()
        ]
        lines.append(f"Read as missing: {_list(named)}. With keep_sentinels = true they are numbers.")
    if facts.get("increments"):
        counters = [
            repr(counter["name"]) + (f" ({_many(counter['resets'], 'reset')})" if counter["resets"] else "")
            for counter in facts["increments"]
        ]
        lines.append(f"Counters, learned as their increments a row: {_list(counters)}.")
    if facts["columns_left_out"]:
        unused = [f"{column['name']!r} ({column['why']})" for column in facts["columns_left_out"]]
        lines.append(f"Columns left out: {_list(unused)}.")
    if facts["unscored"]:
        for kind, what in (("signal", "Not scored"), ("horizon", "Not scored at")):
            reasons = [f"{item[kind]} ({item['why']})" for item in facts["unscored"] if kind in item]
            lines += [f"{what}: {_list(reasons)}."] if reasons else []
    return lines


def verdict_lines(signals: Sequence[Mapping[str, Any]]) -> list[str]:
    """The verdicts, as the first lines of a run: a sentence for each of a few signals, counts for many.

    Args:
        signals: The verdict on each signal, as ``NextingResult.verdict`` has it.

    >>> row = {"signal": "x", "verdict": "no better", "sentence": "x is predicted no better than with the mean."}
    >>> verdict_lines([row])
    ['x is predicted no better than with the mean.']
    >>> verdict_lines([row] * 9)[0]
    '0 of 9 signals are predicted better than with their best baseline, 9 no better.'
    """
    rows = sorted(signals, key=lambda row: (row["verdict"] != "better", -(row.get("skill_best") or -np.inf)))
    sentences = [f"{row['machine']}: {row['sentence']}" if "machine" in row else row["sentence"] for row in rows]
    if len(rows) <= _LISTED:
        return sentences
    count = {kind: sum(row["verdict"] == kind for row in rows) for kind in ("better", "no better", "too short")}
    line = f"{count['better']} of {len(rows):,} signals are predicted better than with their best baseline"
    line += "".join(f", {count[kind]:,} {words}" for kind, words in _OTHER_VERDICTS.items() if count[kind])
    return [f"{line}.", *sentences[: min(3, count["better"])]]


def forecast_lines(
    summary: Sequence[Mapping[str, Any]], coverage: float | None = None, units: Mapping[str, str] | None = None
) -> list[str]:
    """The forecasts from the last row: a line for each of up to ten signals, with the value at each horizon.

    Args:
        summary: The objects of ``summary.json``.
        coverage: The target coverage of the intervals.
        units: The units of signals, if they are known.

    >>> score = {"text": "x at +2", "kind": "at", "signal": "x", "horizon": 2, "answer": 1.5, "low": 1.0, "high": 2.0}
    >>> forecast_lines([score], 0.8)
    ['Forecast from the last row, with 80% intervals:', '  x: 1.50 (1.00 to 2.00) at +2 rows']
    >>> forecast_lines([score | {"signal": f"x{i}"} for i in range(12)])[-1]
    '  … and 2 more signals in report.html'
    """
    forecasts: dict[str, list[str]] = {}
    for score in summary:
        if score.get("kind") != "at" or score["signal"] is None or score["answer"] is None:
            continue
        signal, horizon, low, high = (score[name] for name in ("signal", "horizon", "low", "high"))
        unit = unit_of(signal, units or {})
        name = f"{signal} [{unit}]" if unit and unit not in signal else signal
        name = f"{score['machine']}: {name}" if "machine" in score else name
        width = high - low if low is not None and high is not None else None
        bounds = f" ({with_digits(low, width)} to {with_digits(high, width)})" if width is not None else ""
        ahead = horizon if isinstance(horizon, str) else _many(horizon, "row")
        forecasts.setdefault(name, []).append(f"{with_digits(score['answer'], width)}{bounds} at +{ahead}")
    if not forecasts:
        return []
    intervals = "" if coverage is None else f", with {100 * coverage:g}% intervals"
    lines = [f"  {name}: {', '.join(values)}" for name, values in forecasts.items()]
    unlisted = [f"  … and {_many(len(lines) - _FORECAST, 'more signal')} in report.html"] * (len(lines) > _FORECAST)
    lines = [f"Forecast from the last row{intervals}:", *lines[:_FORECAST], *unlisted]
    return [line.replace("−", "-") for line in lines]


def alarm_lines(summary: Sequence[Mapping[str, Any]]) -> list[str]:
    """How many alarms each signal had.

    Args:
        summary: The objects of ``summary.json``.

    >>> alarm_lines([{"signals": [{"signal": "x", "alarms": 0}, {"signal": "y", "alarms": 3}]}])
    ['Alarms: 3 (y 3); report.html lists them.']
    """
    counts = {name: count for name, count in alarms_by_signal(summary).items() if count}
    if not counts:
        return []
    listed = [f"{name} {count:,}" for name, count in sorted(counts.items(), key=lambda pair: -pair[1])]
    return [f"Alarms: {sum(counts.values()):,} ({_list(listed)}); report.html lists them."]


def _query_line(query: Mapping[str, Any]) -> str:
    """What was asked of a database, and what was decided about it."""
    text = " ".join(query["text"].split())
    if "order" in query:
        return f"Query: {text}; rows ordered {query['order']}."
    return f"Query: {text}; {query['range']}{'; step ' + query['step'] if query['step'] else ''}."


def guarded_texts(counts: Mapping[str, Mapping[str, int]]) -> list[str]:
    """For each signal how many of its readings were pulled in, and how many were taken for missing."""
    texts = []
    for name, count in counts.items():
        kinds = {"pulled in": count["pulled_in"], "counted as missing": count["missing"]}
        texts.append(f"{name} ({', '.join(f'{number:,} {kind}' for kind, number in kinds.items() if number)})")
    return texts


def _many(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def _list(words: Sequence[str]) -> str:
    unlisted = f" and {len(words) - _LISTED} more" if len(words) > _LISTED else ""
    return ", ".join(words[:_LISTED]) + unlisted
