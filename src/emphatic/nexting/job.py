"""The whole job as one call."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from emphatic.common.files import atomic_file
from emphatic.common.locks import hold_folder
from emphatic.hordes.horde import Horde
from emphatic.learning.inputs import refusal
from emphatic.nexting.runner import Nexting, Progress
from emphatic.nexting.settings import Settings
from emphatic.nexting.unfinished import Unfinished
from emphatic.stepsizes import StepSize

__all__ = ["FILES", "NextingResult", "holds_results", "run"]

#: What a run leaves in its folder.
FILES = ("predictions.parquet", "summary.json", "report.html", "model.safetensors")


@dataclass(eq=False)
class NextingResult:
    """What ``run`` found.

    - ``summary``: the scores, one dict per signal × horizon, as ``summary.json`` holds them;
    - ``curves``: the learning curves, one dict for each of those, with the error in each of 20 pieces of the log;
    - ``model``: the horde, to go on with (``observe``, ``run``) or to ``save``;
    - ``settings``: all settings, those found from the data too;
    - ``rows``: how many rows there were; ``seconds``: how long each stage took;
    - ``out``: the folder that was written, or None.
    """

    summary: list[dict[str, Any]]
    curves: list[dict[str, Any]]
    model: Horde
    settings: Settings
    rows: int
    seconds: dict[str, float]
    out: Path | None
    _predictions: Any = field(default=None, repr=False)
    _page: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, job: Nexting, resume: bool = False) -> NextingResult:
        """Run a job, and what it found."""
        job.run(resume)
        return cls(job.summary, job.curves, job.horde, job.settings, job.rows, job.seconds, job.out)

    @property
    def reading(self) -> dict[str, Any]:
        """How the table was read: its time, step and gaps, rows dropped and columns left out, each with the reason."""
        facts: dict[str, Any] = self.summary[0]["reading"]
        return facts

    @property
    def predictions(self) -> Any:
        """The predictions, an Arrow table: ``row``, ``time`` where there is one, a column per question, and the ends of
        its interval, ``.low`` and ``.high``.

        With an output folder they are read from its file when they are first used.
        """
        if self._predictions is None and self.out is not None:
            self._predictions = _read_predictions(self.out)
        return self._predictions

    def report(self, path: str | os.PathLike[str] | None = None) -> str:
        """The page, as HTML that is complete in itself; with a ``path``, it is also written there."""
        page = self._page
        if page is None and self.out is not None:
            page = (self.out / "report.html").read_text("utf-8")
        assert page is not None
        if path is not None:
            with atomic_file(path) as file:
                file.write(page.encode())
        return page

    def __repr__(self) -> str:
        return f"NextingResult({len(self.summary)} questions, {self.rows:,} rows, {self.model!r})"


def run(
    data: Any,
    *,
    predict: str | Sequence[str] | None = None,
    horizons: float | str | Sequence[float | str] | None = None,
    out: str | os.PathLike[str] | None = None,
    time: str | bool | None = None,
    delimiter: str | None = None,
    sort: bool | None = None,
    pivot: str | Sequence[str] | bool | None = None,
    topics: str | Sequence[str] | None = None,
    stepsize: Any = None,
    coverage: float | None = None,
    false_alarm_rate: float | None = None,
    config: str | os.PathLike[str] | Mapping[str, Any] | Settings | None = None,
    resume: bool = False,
    overwrite: bool = False,
    offline: bool = True,
    progress: Progress | None = None,
    announce: Callable[[str], None] | None = None,
) -> NextingResult:
    """Learn predictions of signals at several horizons in one pass over a table, and score them: ``emphatic nexting``.

    ``data`` is a frame (pandas, polars, Arrow), a dict of arrays, an array (T, C), or the path of a file (CSV, Parquet,
    Arrow, JSON lines, MCAP) or of a ROS 2 bag's folder; of these two, ``topics`` names the topics to read (default:
    all). ``predict`` names the columns to predict (default: every numeric column), ``horizons`` how far ahead, in steps
    or as durations such as "15min" (default: four, from two steps to a hundredth of the log). ``time`` is the time
    column (False for none), ``delimiter`` that of CSV; both are found by default. ``sort`` sorts the rows
    by time, and ``pivot="sensor,value"`` gives each sensor of a table in long format a column. ``stepsize`` is
    how step sizes are found, a name or an object of ``emphatic.stepsizes`` (default: three rates, blended).
    ``coverage`` is the share of returns that are to fall inside their prediction's interval (default: 0.8), and
    ``false_alarm_rate`` the number of false alarms per row and signal at most (default: 0.0001). ``config``
    has these and more settings (``rates``, ``rule``, ``features``, ``questions``) as a mapping or a TOML file; the
    arguments override it.

    With ``out``, the four files of the command are written to that folder, and a run that was interrupted can be
    resumed with ``resume=True``. A folder that holds results is refused, unless ``overwrite=True``. Without ``out``,
    nothing is left on the disk; a temporary folder is used meanwhile, and the predictions are then held in memory.
    ``offline=False`` skips the offline fit that the predictions are compared with. ``progress(phase, done, total)`` is
    called now and then, with a total of 0 while it is not known; ``announce(text)`` once before learning begins, with
    how many learners and features there are, and about how much memory and time they will take.

    >>> import numpy as np
    >>> import emphatic
    >>> t = np.arange(1000)
    >>> result = emphatic.nexting.run({"wave": np.sin(t / 9), "level": np.cos(t / 9)}, predict="wave", horizons=[2, 10])
    >>> result.predictions.column_names[:3]
    ['row', 'wave@2', 'wave@10']
    >>> [round(score["variance_explained"], 1) for score in result.summary]
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
        stepsize=_config(stepsize),
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
        job = Nexting(data, settings, folder, offline=offline)
        if progress is not None:
            job.progress = progress
        if announce is not None:
            job.announce = announce
        result = NextingResult.of(job, resume)
        if out is None:
            result.out = None
            result._predictions = _read_predictions(folder)
            result._page = (folder / "report.html").read_text("utf-8")
    return result


def _config(stepsize: Any) -> Any:
    """How step sizes are found, as settings can hold it."""
    return stepsize.config() if isinstance(stepsize, StepSize) else stepsize


def holds_results(folder: Path) -> bool:
    """Whether a folder has a file of an earlier run, or what one that was stopped can go on from."""
    return any((folder / name).exists() for name in FILES) or Unfinished(folder).checkpoint.exists()


def check_free(folder: Path) -> None:
    if not holds_results(folder):
        return
    with hold_folder(folder):  # a run that is still going on is refused as such
        pass
    stopped = Unfinished(folder).checkpoint.exists()
    what = (
        "a run that was stopped: continue it with resume=True, or replace it"
        if stopped
        else "the results of an earlier run: choose another folder, or replace them"
    )
    raise ValueError(f"{folder}: this folder holds {what} with overwrite=True.")


def _read_predictions(folder: Path) -> Any:
    import pyarrow.parquet as pq

    with pq.ParquetFile(folder / "predictions.parquet") as file:
        return file.read(use_threads=False)
