"""Many machines in one table: each is learned from by itself, or all with one set of weights.

``run_machines`` reads the table once and puts the rows of each machine together, in memory. ``run_machine`` takes one
machine from its rows to its record, in a folder of its own, and is all that a machine needs: it may as well be called
in another process. A record that is complete is never made again, so a run that was killed goes on with the machine
that it was at, from that machine's own resume point, and gives the same bits. What runs the machines is the caller's
to say: one after another by default, or the tasks of a Ray cluster.

With ``share`` each machine goes on with the weights of the one before; sequences are cut from one another, and ranges
are found from the first rows of all machines.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import statistics
import time as clock_time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from emphatic.common import versions
from emphatic.common.files import atomic_file
from emphatic.common.locks import UNFINISHED, hold_folder
from emphatic.common.names import suggestion
from emphatic.common.parts import open_writer
from emphatic.hordes.horde import Horde
from emphatic.learning.sequences import UndiscountedWarning
from emphatic.nexting.report.page import Column, Plots, amount, count, percent, render_page, share, table, time_table
from emphatic.nexting.report.plots import read_plots
from emphatic.nexting.runs import learning
from emphatic.nexting.runs.alarms import alarms_by_signal
from emphatic.nexting.runs.learning import Progress
from emphatic.nexting.runs.outlook import values_at
from emphatic.nexting.runs.predictor import Predictor
from emphatic.nexting.runs.report import render_report
from emphatic.nexting.runs.scoring import ScoreTable, score_log
from emphatic.nexting.runs.settings import Settings, default_horizons
from emphatic.nexting.tables import Table
from emphatic.nexting.tables.columns import CONSTANT, ColumnRole, combine_roles, find_roles
from emphatic.nexting.tables.files import AFTER_DROP, ROW
from emphatic.nexting.tables.table import Caller, open_table

if TYPE_CHECKING:
    from emphatic.nexting.runs.runner import Nexting, NextingResult

__all__ = [
    "MODELS",
    "MachineRows",
    "MachineTask",
    "Models",
    "RunTasks",
    "run_here",
    "run_machine",
    "run_machines",
    "unfinished_file",
]

#: The folder of models beside the report, one for each machine.
MODELS = "models"
#: Machines from which it is found out what the columns are.
_LOOKED_AT = 50
#: So few machines have a section of their own each, if none are asked for.
_FEW = 4
#: Machines that the table of the best and the worst has, of each.
_LISTED = 10
#: Values of predictions that are written together.
_WRITTEN_TOGETHER = 2_000_000
#: The longest name of a model's file that is the machine's own.
_LONGEST_NAME = 80


# ---------------------------------------------------------------------- the rows of each machine


@dataclass(frozen=True, eq=False)
class MachineRows:
    """All rows of a table, those of each machine together and in their order.

    Args:
        names: The machines, in the order of their first rows.
        edges: Where the rows of each machine begin and end.
        columns: The columns of all rows, by name.
        time: The time column; None without one.
        zone: The zone of its stamps.
        dated: Whether times are seconds since 1970.
    """

    names: tuple[str, ...]
    edges: tuple[int, ...]
    columns: Mapping[str, NDArray[Any]]
    time: str | None
    zone: str | None
    dated: bool

    @classmethod
    def read(cls, table: Table, by: str) -> MachineRows:
        """Read a table through, and put the rows of each machine together.

        Args:
            table: The table.
            by: The column that tells machines apart, of words or numbers.
        """
        signals = [name for name in table.names if name != by]
        pieces: dict[str, list[NDArray[Any]]] = {}
        keys: list[str | None] = []
        for block in table.blocks():
            if by in block.labels:
                keys += block.labels[by].tolist()
            else:
                numbers = block.values[:, table.names.index(by)].tolist()
                keys += [None if np.isnan(number) else f"{number:.15g}" for number in numbers]
            columns: dict[str, Any] = {name: block.values[:, table.names.index(name)] for name in signals}
            columns |= {name: labels for name, labels in block.labels.items() if name != by}
            if block.time is not None and table.time is not None:
                columns[table.time] = block.time
            columns |= {ROW: block.numbers, AFTER_DROP: block.after_drop}
            for name, column in columns.items():
                pieces.setdefault(name, []).append(column)
        place = {key: i for i, key in enumerate(dict.fromkeys(key for key in keys if key is not None))}
        codes = np.array([len(place) if key is None else place[key] for key in keys], np.int64)
        order = np.argsort(codes, kind="stable")
        edges = np.searchsorted(codes[order], np.arange(len(place) + 1))
        joined = {name: np.concatenate(pieces.pop(name))[order] for name in list(pieces)}
        return cls(tuple(place), tuple(edges.tolist()), joined, table.time, table.zone, table.dated)

    def count(self, machine: int) -> int:
        """The number of rows of a machine."""
        return self.edges[machine + 1] - self.edges[machine]

    def table(self, machine: int, rows: int | None = None) -> pa.Table:
        """The rows of a machine, or the first ``rows`` of them, as a table in memory."""
        begin, end = self.edges[machine], self.edges[machine + 1]
        wanted = slice(begin, end if rows is None else min(end, begin + rows))
        columns: dict[str, Any] = {}
        for name, column in self.columns.items():
            values = column[wanted]
            if name == self.time and self.dated:
                known = np.isfinite(values)
                micro = np.where(known, np.round(np.where(known, values, 0.0) * 1e6), 0).astype(np.int64)
                columns[name] = pa.array(micro, mask=~known).cast(pa.timestamp("us", self.zone))
            elif values.dtype == object:
                columns[name] = pa.array(values, pa.string())
            else:
                columns[name] = pa.array(values)
        return pa.table(columns)

    def checksum(self) -> str:
        """What tells these rows from others."""
        digest = hashlib.blake2b(json.dumps([self.names, self.edges]).encode(), digest_size=16)
        for name, column in self.columns.items():
            is_text = column.dtype == object
            digest.update(name.encode() + (json.dumps(column.tolist()).encode() if is_text else column.tobytes()))
        return digest.hexdigest()


def _open_whole(source: object, settings: Settings) -> Table:
    """The table of all machines; ValueError if it has no column to tell them apart by."""
    by = settings.by or ""
    if settings.pivot:
        raise ValueError(
            f"by={by!r} and pivot={settings.pivot!r} cannot be combined. Leave out by: a table in long format gets a "
            "column for each sensor of each machine."
        )
    table = open_table(
        source,
        caller=Caller("run", "data"),
        time=settings.time,
        delimiter=settings.delimiter,
        pivot=False,
        words={*settings.words(), by},
        topics=settings.topics,
        resample="none",
        missing=settings.missing or (),
        skip_lines=settings.skip_lines,
        header=settings.header,
        ordered=False,
    )
    if by not in table.names and by not in table.categories:
        known = [*table.names, *table.categories]
        raise ValueError(
            f"{table.name}: there is no column {by!r} with the machines.{suggestion(by, known)} "
            f"Columns: {', '.join(known[:20])}."
        )
    return table


def _find_roles(rows: MachineRows, signals: Sequence[str]) -> dict[str, ColumnRole]:
    """What the columns are, from the first rows of the first machines."""
    beginnings = [
        slice(begin, min(end, begin + learning.FIRST)) for begin, end in zip(rows.edges, rows.edges[1:], strict=False)
    ]
    looks = [np.stack([rows.columns[name][rows_of] for name in signals], axis=1) for rows_of in beginnings[:_LOOKED_AT]]
    roles = combine_roles(find_roles(signals, look) for look in looks)
    for name in [name for name, role in roles.items() if role.why == CONSTANT]:
        column = rows.columns[name]
        changes = np.isfinite(column[1:]) & np.isfinite(column[:-1]) & (column[1:] != column[:-1])
        changes[np.array(rows.edges[1:-1], np.int64) - 1] = False
        if changes.any():
            roles[name] = ColumnRole("signal")
    return roles


# ---------------------------------------------------------------------- one machine


def run_machine(
    machine: str,
    rows: pa.Table,
    settings: Settings,
    folder: Path,
    roles: Mapping[str, ColumnRole],
    teacher: Horde | None = None,
    with_page: bool = False,
    progress: Progress = lambda phase, done, total: None,
) -> dict[str, Any]:
    """One machine, from its rows to its record: learn, score, and write its predictions, model and record.

    What an earlier call left in the folder is gone on with.

    Args:
        machine: The name of the machine.
        rows: Its rows, in the order of time.
        settings: What to predict, and how.
        folder: The folder of the machine, for its predictions, its model and its record.
        roles: What the columns are.
        teacher: With shared weights, the Horde to go on with.
        with_page: Whether the page of the machine is written as well, for its section in the report.
        progress: Called now and then.

    Returns:
        The record: ``machine``, ``rows``, and ``summary``, ``reading`` and ``seconds``, or ``why`` there are none.
    """
    from emphatic.nexting.runs.runner import ingest_summary

    file = folder / "record.json"
    if file.exists():
        record: dict[str, Any] = json.loads(file.read_text("utf-8"))
        return record
    record = {"machine": machine, "rows": rows.num_rows}
    (folder / UNFINISHED).mkdir(parents=True, exist_ok=True)
    try:
        log = replace(
            learning.open_log(rows, replace(settings, resample=settings.resample or "none"), progress, roles),
            teacher=teacher,
        )
    except ValueError as error:
        record["why"] = str(error).removeprefix("the table: ")
    else:
        resumption = learning.find_resumption(log, folder, learning.find_point(folder), progress)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", UndiscountedWarning)
            learned = learning.learn_log(log, resumption, progress)
            scored = score_log(learned, progress)
        scored.summary[0]["reading"] = reading = ingest_summary(scored)
        seconds = {"reading": log.seconds, "learning": learned.seconds, "scoring": scored.seconds}
        record |= {"reading": reading, "seconds": seconds}
        record |= {"settings": learned.log.settings.table()}
        if with_page:
            with atomic_file(folder / "page.html") as page:
                page.write(render_report(scored, seconds).encode())
        record |= {"signals": scored.summary[0]["signals"], "summary": scored.summary[1:]}
        store = learned.store
        os.replace(store.folder / "predictions", folder / "predictions.parquet")
        shutil.copyfile(store.folder / "model.safetensors", folder / "model.safetensors")
    with atomic_file(file) as out:
        out.write(json.dumps(record, allow_nan=False, ensure_ascii=False).encode())
    shutil.rmtree(folder / UNFINISHED, ignore_errors=True)
    return record


#: ``run_machine`` with its arguments: calling it gives the machine's record, in any process.
MachineTask = partial[dict[str, Any]]
#: Runs the tasks of so many machines; the number and the record of each, as they are done.
RunTasks = Callable[[Iterator[tuple[int, MachineTask]], int], Iterator[tuple[int, dict[str, Any]]]]


def run_here(tasks: Iterator[tuple[int, MachineTask]], count: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Run the tasks of machines in this process, one after another.

    Args:
        tasks: The number of each machine, and its task.
        count: The number of machines.
    """
    for number, task in tasks:
        yield number, task()


# ---------------------------------------------------------------------- all machines


class Models(Mapping[str, Predictor]):
    """The model of each machine by name, read from its file when it is asked for.

    Args:
        files: The file of each.
    """

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = dict(files)

    def __getitem__(self, machine: str) -> Predictor:
        return Predictor.load(self._files[machine])[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def unfinished_file(out: Path) -> Path:
    """What says that a run on several machines was stopped in an output folder, and which."""
    return out / UNFINISHED / "machines.json"


def run_machines(job: Nexting, resume: bool = False, run_tasks: RunTasks = run_here) -> NextingResult:
    """Learn from every machine of a table, score them, and write the files of all together.

    Args:
        job: The table, the settings (with ``by``) and the output folder.
        resume: Whether to go on with a run that was stopped.
        run_tasks: Runs the machines; those with shared weights must be run one after another.
    """
    folder = job.out / UNFINISHED / "machines"
    with hold_folder(job.out):
        began = clock_time.perf_counter()
        table = _open_whole(job.source, job.settings)
        job.progress("reading", 0, 0)
        rows = MachineRows.read(table, job.settings.by or "")
        if not rows.names:
            raise ValueError(f"{table.name}: no row has a value in column {job.settings.by!r}.")
        signals = [name for name in table.names if name != job.settings.by]
        roles = _find_roles(rows, signals)
        settings = _fill(rows, roles, job.settings, signals)
        _check_sections(settings, rows.names)
        run = {"settings": settings.table(), "rows": rows.checksum()}
        _begin(job.out, run, folder, resume)
        teacher, of_machines = _make_teacher(rows, roles, settings) if settings.share else (None, settings)
        single = replace(of_machines, by=None, share=None, sections=None, pivot=job.settings.pivot or False)
        single = replace(single, time=rows.time if rows.time is not None else job.settings.time)
        with_page = set(_sections(settings, rows.names))

        def tasks() -> Iterator[tuple[int, MachineTask]]:
            weights = teacher
            for i, name in enumerate(rows.names):
                of_machine = folder / f"{i:06d}"
                options: dict[str, Any] = {"folder": of_machine, "roles": roles, "teacher": weights}
                options["with_page"] = name in with_page
                yield i, partial(run_machine, name, rows.table(i), single, **options)
                if weights is not None and (of_machine / "model.safetensors").exists():
                    weights = Horde.load_with(of_machine / "model.safetensors")[0]  # (each machine asks anew)

        finished: dict[int, dict[str, Any]] = {}
        done = 0
        for i, record in run_tasks(tasks(), len(rows.names)):
            finished[i] = record
            done += rows.count(i)
            job.progress("learning", done, rows.edges[-1])
        records = [finished[i] for i in range(len(rows.names))]
        if all("why" in record for record in records):
            raise ValueError(f"{table.name}: no machine has enough data. {records[0]['machine']}: {records[0]['why']}")
        seconds = {"reading": 0.0, "learning": 0.0, "scoring": 0.0}
        for record in records:
            seconds |= {phase: seconds[phase] + record.get("seconds", {}).get(phase, 0.0) for phase in seconds}
        seconds["reading"] += clock_time.perf_counter() - began - sum(seconds.values())
        seconds["reading"] = max(seconds["reading"], 0.0)
        return _write(job, table, settings, records, folder, seconds)


def _fill(rows: MachineRows, roles: Mapping[str, ColumnRole], settings: Settings, signals: Sequence[str]) -> Settings:
    """The settings that all machines have in common: what is predicted, and at which horizons."""
    for name in settings.predict or ():
        if name not in signals:
            raise ValueError(
                f"there is no numeric column {name!r} to predict.{suggestion(name, signals)} "
                f"Numeric columns: {', '.join(signals)}."
            )
    if settings.horizons is None:
        counts = sorted(rows.count(i) for i in range(len(rows.names)))
        usual = counts[len(counts) // 2]
        machine = next(i for i in range(len(rows.names)) if rows.count(i) == usual)
        table = open_table(
            rows.table(machine, learning.FIRST),
            caller=Caller("run", "data"),
            time=rows.time,
            pivot=False,
            resample="none",
            ordered=False,
        )
        clock = table.clock()
        step = clock.step if clock is not None and clock.step > 0 else None
        settings = replace(settings, horizons=default_horizons(usual, step if table.dated else None))
    return settings


def _sections(settings: Settings, names: Sequence[str]) -> list[str]:
    """The machines that get a section of their own in the report: those asked for, by default all of a few."""
    if settings.sections == ("all",) or (settings.sections is None and len(names) <= _FEW):
        return list(names)
    return list(settings.sections or ())


def _check_sections(settings: Settings, names: Sequence[str]) -> None:
    for name in settings.sections or ():
        if name not in names and settings.sections != ("all",):
            raise ValueError(f"'sections' names {name!r}, and there is no such machine.{suggestion(name, names)}")


def _begin(out: Path, run: Mapping[str, Any], folder: Path, resume: bool) -> None:
    """Mark the folder as that of this run, or check that the run that was stopped there is the same."""
    file, text = unfinished_file(out), json.dumps(run, ensure_ascii=False)
    if resume and not file.exists() and (out / "summary.json").exists():
        raise ValueError(f"{out}: nothing to resume: the run there is finished.")
    if resume and file.exists():
        if file.read_text("utf-8") != text:
            raise ValueError(
                f"{out}: the unfinished run here used another table or other settings. Resume with the same ones, or "
                "start again with --overwrite."
            )
        return
    shutil.rmtree(folder, ignore_errors=True)
    learning.checkpoint_file(out).unlink(missing_ok=True)
    with atomic_file(file) as marked:
        marked.write(text.encode())


def _make_teacher(rows: MachineRows, roles: Mapping[str, ColumnRole], settings: Settings) -> tuple[Horde, Settings]:
    """With shared weights: the Horde before the first row, with ranges from the first rows of all machines, and the
    settings with its features."""
    rows_each = max(20, -(-learning.FIRST // len(rows.names)))
    tables = []
    for i in range(len(rows.names)):
        table = rows.table(i, rows_each)
        begins = pa.array(np.arange(table.num_rows) == 0)  # nothing is carried from a machine to the next
        tables.append(table.set_column(table.column_names.index(AFTER_DROP), AFTER_DROP, begins))
    joined = open_table(
        pa.concat_tables(tables),
        caller=Caller("run", "data"),
        time=rows.time or False,
        pivot=False,
        resample="none",
        ordered=False,
    )
    count = joined.count_rows()
    settings = learning.choose_columns(joined, count, settings, roles).filled(joined, count)
    clock = joined.clock()
    horde = learning.make_horde(settings, None if clock is None else clock.step)
    return horde.warm_up(joined, count, learning.make_guard(settings, joined.names)), settings


# ---------------------------------------------------------------------- the files of all machines


def _sum_counts(readings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What was counted while the logs of the machines were read, over all of them.

    >>> one = {"gaps": 2, "backwards": 1, "times_missing": 0, "unreadable": {"x": 3}, "guarded": {"x": {"missing": 1}}}
    >>> _sum_counts([one, one | {"gaps": 1, "unreadable": {"y": 1}}])["unreadable"]
    {'x': 3, 'y': 1}
    """
    unreadable: Counter[str] = Counter()
    guarded: dict[str, Counter[str]] = {}
    for reading in readings:
        unreadable.update(reading["unreadable"])
        for name, counts in reading["guarded"].items():
            guarded.setdefault(name, Counter()).update(counts)
    sums = {name: sum(reading[name] for reading in readings) for name in ("gaps", "backwards", "times_missing")}
    by_signal = {name: dict(counts) for name, counts in guarded.items()}
    return {**sums, "unreadable": dict(unreadable), "guarded": by_signal}


def _write(
    job: Nexting,
    table: Table,
    settings: Settings,
    records: Sequence[dict[str, Any]],
    folder: Path,
    seconds: dict[str, float],
) -> NextingResult:
    """Write the predictions, scores, page and models of all machines; the result."""
    from emphatic.nexting.runs.runner import NextingResult

    out, learned = job.out, [(i, record) for i, record in enumerate(records) if "why" not in record]
    _join_predictions([(folder / f"{i:06d}", record["machine"]) for i, record in learned], settings.by or "", out)
    models = _place_models(learned, folder, out)
    facts = [describe_machine(record) for record in records]
    for record, fact in zip(records, facts, strict=True):
        if record["machine"] in models:
            fact["model"] = models[record["machine"]].relative_to(out).as_posix()
    first = learned[0][1]
    reading = table.facts() | {
        "by": settings.by,
        "shared": bool(settings.share),
        "machines": facts,
        "rows": sum(record["rows"] for record in records),
        "columns_left_out": first["reading"]["columns_left_out"],
        "increments": first["reading"]["increments"],
        **_sum_counts([record["reading"] for _, record in learned]),
    }
    for name in ("step", "step_text", "sorted", "pivoted", "unscored"):
        reading[name] = first["reading"][name]
    if reading["time"].get("why") and not first["reading"]["time"].get("why"):
        reading["time"] = first["reading"]["time"]
    for _, record in learned:  # in place: with many machines two copies of all scores would not fit
        for name in ("signals", "summary"):
            record[name] = [{"machine": record["machine"], **entry} for entry in record[name]]
    signals, scores = ([entry for _, record in learned for entry in record[name]] for name in ("signals", "summary"))
    summary = [{"reading": reading, "signals": signals}, *scores]
    filled = Settings.of(first["settings"] | {name: getattr(settings, name) for name in ("by",)})
    filled = replace(filled, share=settings.share, sections=settings.sections)
    began = clock_time.perf_counter()
    page = _render(table.name, records, facts, filled, folder, seconds)
    seconds["report"] = clock_time.perf_counter() - began
    with atomic_file(out / "report.html") as file:
        file.write(page.encode())
    with atomic_file(out / "summary.json") as file:
        file.writelines(_json_pieces(summary))
    unfinished_file(out).unlink()
    shutil.rmtree(folder, ignore_errors=True)
    return NextingResult(ScoreTable(summary), filled, reading["rows"], seconds, out, models=Models(models))


def _json_pieces(summary: Sequence[Mapping[str, Any]]) -> Iterator[bytes]:
    """``json.dumps(summary, indent=1)``, score by score: as one text, of many machines, it would take gigabytes."""
    separator = "[\n "
    for score in summary:
        text = json.dumps(score, indent=1, allow_nan=False, ensure_ascii=False)
        yield (separator + text.replace("\n", "\n ")).encode()
        separator = ",\n "
    yield b"\n]"


def _join_predictions(machines: Sequence[tuple[Path, str]], by: str, out: Path) -> None:
    """The predictions of all machines as one file, with the machine of each row before them."""
    column = by if by not in ("row", "time") else "machine"
    files = [folder / "predictions.parquet" for folder, _ in machines]
    schemas = [pq.read_schema(path) for path in files]
    precise = {field.name for schema in schemas for field in schema if field.type == pa.float64()}
    fields = [field.with_type(pa.float64()) if field.name in precise else field for field in schemas[0]]
    schema = pa.schema([pa.field(column, pa.string()), *fields])
    writer = None
    waiting: list[pa.Table] = []  # small machines are written together: a piece of the file has a cost of its own
    with atomic_file(out / "predictions.parquet") as file:
        for path, (_, machine) in zip(files, machines, strict=True):
            with pq.ParquetFile(path, page_checksum_verification=True) as predictions:
                for batch in predictions.iter_batches(use_threads=False):
                    rows = pa.Table.from_batches([batch]).replace_schema_metadata(None)
                    rows = rows.add_column(0, column, pa.array([machine] * rows.num_rows, pa.string()))
                    waiting.append(rows.select(schema.names).cast(schema))
                    if sum(table.num_rows for table in waiting) * len(schema) > _WRITTEN_TOGETHER:
                        writer = _write_rows(file, writer, waiting)
        if waiting:
            writer = _write_rows(file, writer, waiting)
        if writer is not None:
            writer.close()


def _write_rows(file: IO[bytes], writer: pq.ParquetWriter | None, waiting: list[pa.Table]) -> pq.ParquetWriter:
    """Write the rows that wait, by a writer that the first of them open."""
    rows = pa.concat_tables(waiting)
    waiting.clear()
    writer = writer or open_writer(file, rows)
    writer.write_table(rows)
    return writer


def _place_models(learned: Sequence[tuple[int, Mapping[str, Any]]], folder: Path, out: Path) -> dict[str, Path]:
    """Put the model of each machine in its place."""
    shutil.rmtree(out / MODELS, ignore_errors=True)
    (out / "model.safetensors").unlink(missing_ok=True)
    (out / MODELS).mkdir()
    models = {}
    for i, record in learned:
        models[record["machine"]] = out / MODELS / f"{_file_name(record['machine'])}.safetensors"
        _place(folder / f"{i:06d}" / "model.safetensors", models[record["machine"]])
    return models


def _place(file: Path, place: Path) -> None:
    """Put a file in another place too, without a second copy on the disk where the file system allows it."""
    try:
        os.link(file, place)
    except OSError:  # another file system, or one without links
        shutil.copyfile(file, place)


def save_models(models: Mapping[str, Predictor], out: Path) -> None:
    """Write the model of each machine to its place in a folder.

    Args:
        models: The models by machine.
        out: The folder.
    """
    (out / MODELS).mkdir(parents=True, exist_ok=True)
    for machine, model in models.items():
        model.save(out / MODELS / f"{_file_name(machine)}.safetensors")


def _file_name(machine: str) -> str:
    """A name for a file: the machine's own, with signs that files may not have written as %2F."""
    name = quote(machine, safe=" +@=,()äöüÄÖÜß").replace(".", "%2E") if machine.startswith(".") else ""
    name = name or quote(machine, safe=" +@=,()äöüÄÖÜß")
    digest = hashlib.blake2b(machine.encode(), digest_size=8).hexdigest()
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}-{digest}"


def describe_machine(record: Mapping[str, Any]) -> dict[str, Any]:
    """A machine in a few facts: its rows, the medians of its scores, and its alarms; or why it has no scores."""
    facts = {"name": record["machine"], "rows": record["rows"]}
    if "why" in record:
        return facts | {"variance_explained": None, "skill_best": None, "alarms": None, "why": record["why"]}
    of_values = [score for score, _ in values_at(record["summary"])]
    for name in ("variance_explained", "skill_best"):
        known = [score[name] for score in of_values if score[name] is not None]
        facts[name] = statistics.median(known) if known else None
    facts["alarms"] = sum(alarms_by_signal([record]).values())
    return facts


# ---------------------------------------------------------------------- the page


def _render(
    title: str,
    records: Sequence[Mapping[str, Any]],
    facts: Sequence[Mapping[str, Any]],
    settings: Settings,
    folder: Path,
    seconds: Mapping[str, float],
) -> str:
    """The page: a table of the best and the worst machines, and a section for each that was asked for."""
    scored = sorted(
        (fact for fact in facts if fact["variance_explained"] is not None), key=lambda fact: -fact["variance_explained"]
    )
    without = [fact for fact in facts if fact["variance_explained"] is None]
    columns, plots, links = _columns(), Plots(), {"machines": "Machines"}
    tables = {"All machines, the best first": scored}
    if len(scored) > 2 * _LISTED:
        tables = {"The best": scored[:_LISTED], "The worst": scored[: -_LISTED - 1 : -1]}
    asked = set(_sections(settings, [record["machine"] for record in records]))
    sections = []
    for i, record in enumerate(records):
        if record["machine"] not in asked:
            continue
        links[f"machine-{i}"] = record["machine"]
        sections.append(_section(i, record, folder / f"{i:06d}" / "page.html", plots))
    explained = [fact["variance_explained"] for fact in scored]
    lead = f"{count(len(records), 'machine')} by column {settings.by!r}, "
    lead += "learned with one set of weights." if settings.share else "each learned separately."
    if explained:
        lead += f" Variance explained for the median machine: {percent(statistics.median(explained))}."
    return render_page(
        "machines.html",
        title.replace("\\", "/").split("/")[-1],
        lead,
        links,
        plots,
        tables={name: table(columns, rows, sort=True, tall=True) for name, rows in tables.items() if rows},
        without=[(fact["name"], fact.get("why", "no return of the second half is known")) for fact in without],
        sections=sections,
        settings=settings.table(),
        versions=versions("pyarrow"),
        toml=settings.toml(),
        times=time_table(seconds),
    )


def _columns() -> list[Any]:
    skill = "1 − MSE / MSE of the best baseline, median over signals and horizons: above 0 is better"
    return [
        Column("machine", "name"),
        Column("rows", "rows", amount),
        Column("variance explained", "variance_explained", share, hint="median over signals and horizons"),
        Column("skill", "skill_best", share, hint=skill),
        Column("alarms", "alarms", amount),
    ]


def _section(i: int, record: Mapping[str, Any], page: Path, plots: Plots) -> dict[str, Any]:
    """What the page shows of one machine: its scores, and the plots of its own page."""
    if "why" in record:
        return {"id": f"machine-{i}", "name": record["machine"], "why": record["why"], "scores": "", "cards": []}
    columns = [
        Column("question", "text"),
        Column("verdict", "verdict"),
        Column("variance explained", "variance_explained", share),
        Column("skill", "skill_best", share),
        Column("RMSE", "rmse", amount),
        Column("in the interval", "coverage", share),
    ]
    drawn = [(label, plot) for label, plot in read_plots(page.read_text("utf-8")) if plot.group == "outlook"]
    cards = [
        ("Forecast", plots(replace(plot, views={"": panels}), f"{record['machine']}, {label}"))
        for label, plot in drawn
        for panels in plot.views.values()
    ]
    scores = table(columns, record["summary"], sort=True, tall=True)
    return {"id": f"machine-{i}", "name": record["machine"], "why": "", "scores": scores, "cards": cards}
