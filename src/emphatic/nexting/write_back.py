"""Results of a finished run, written to a database or a time series store: predictions, intervals and alarms.

They are read from ``predictions.parquet`` in long format, a row for each time and name, so that names of signals may be
anything. A row replaces the one of the same time and name: to write twice changes nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from emphatic.tables.stores import Destination, Results, StoreAddress, open_destination

__all__ = ["Written", "is_finished", "write_back", "write_results_to"]

#: Rows of long format in a batch, about.
_BATCH = 1 << 17


class Written(NamedTuple):
    """Where results were written to.

    Attributes:
        store: The address of the store, without a password.
        tables: The tables or measurements.
    """

    store: str
    tables: tuple[str, ...]


def is_finished(folder: Path) -> bool:
    """Whether a folder has the results of a finished run.

    Args:
        folder: The output folder.
    """
    from emphatic.common.locks import UNFINISHED

    names = ("predictions.parquet", "summary.json", "model.safetensors")
    return all((folder / name).exists() for name in names) and not list((folder / UNFINISHED).glob("*.safetensors"))


def write_back(folder: str | os.PathLike[str], url: str) -> Written:
    """Write the results of a finished run to a store.

    Args:
        folder: The output folder of the run.
        url: The address of the store.
    """
    return write_results_to(*open_destination(url), Path(folder))


def write_results_to(address: StoreAddress, destination: Destination, folder: Path) -> Written:
    """Write the results in a folder to a store that was opened.

    Args:
        address: Where the store is.
        destination: The store.
        folder: The output folder of a finished run.
    """
    path = folder / "predictions.parquet"
    scores = json.loads((folder / "summary.json").read_text("utf-8"))
    horizons = {
        score.get("text") or f"{score['signal']}@{score['horizon']}": (score["signal"], str(score["horizon"]))
        for score in scores
        if "signal" in score
    }
    with pq.ParquetFile(path) as file:
        schema = file.schema_arrow
    try:
        results = [_predictions(path, schema, horizons), _alarms(path, schema)]
        tables = tuple(destination.write(kind) for kind in results if kind is not None)
    except ValueError as error:
        raise ValueError(f"{error} The files are in {folder}; resume=True with write=… tries again.") from None
    return Written(repr(address), tables)


def _signals_in_alarms(schema: pa.Schema) -> list[str]:
    """The signals that have an anomaly score, an alarm and a reason."""
    names = [name.removesuffix(".anomaly") for name in schema.names if name.endswith(".anomaly")]
    return [name for name in names if {f"{name}.alarm", f"{name}.why"} <= set(schema.names)]


def _questions(schema: pa.Schema) -> list[str]:
    """The columns of predictions, which are those that neither intervals nor alarms have."""
    derived = {f"{name}.{kind}" for name in _signals_in_alarms(schema) for kind in ("anomaly", "alarm", "why")}
    derived |= {f"{name}.{end}" for name in schema.names for end in ("low", "high", "usual")}
    return [name for name in schema.names if name not in derived | {"row", "time"}]


def _time_type(schema: pa.Schema) -> pa.DataType:
    return schema.field("time").type if "time" in schema.names else pa.int64()


def _predictions(path: Path, schema: pa.Schema, horizons: dict[str, tuple[str, str]]) -> Results | None:
    questions = _questions(schema)
    names = ("name", "signal", "horizon")
    values = ("row", "prediction", "low", "high")
    types = [_time_type(schema), *(pa.string() for _ in names), pa.int64(), *(pa.float64() for _ in values[1:])]
    columns = pa.schema(list(zip(("time", *names, *values), types, strict=True)))

    def batches() -> Iterator[pa.RecordBatch]:
        for time, rows in _rows(path, schema, len(questions)):
            nothing = pa.nulls(len(rows), pa.float64())
            pieces = []
            for question in questions:
                signal, horizon = horizons.get(question, (None, None))
                ends = [
                    rows.column(f"{question}.{end}") if f"{question}.{end}" in schema.names else nothing
                    for end in ("low", "high")
                ]
                labels = [pa.repeat(pa.scalar(text, pa.string()), len(rows)) for text in (question, signal, horizon)]
                numbers = [_known(column) for column in (rows.column(question), *ends)]
                pieces.append(pa.RecordBatch.from_arrays([time, *labels, rows.column("row"), *numbers], schema=columns))
            yield from pa.Table.from_batches(pieces, columns).combine_chunks().to_batches()

    return Results("predictions", names, values, columns, batches) if questions else None


def _alarms(path: Path, schema: pa.Schema) -> Results | None:
    signals = _signals_in_alarms(schema)
    values = ("row", "anomaly", "alarm", "why")
    types = [_time_type(schema), pa.string(), pa.int64(), pa.float64(), pa.bool_(), pa.string()]
    columns = pa.schema(list(zip(("time", "name", *values), types, strict=True)))

    def batches() -> Iterator[pa.RecordBatch]:
        for time, rows in _rows(path, schema, len(signals)):
            pieces = []
            for signal in signals:
                anomaly, alarm, why = (rows.column(f"{signal}.{kind}") for kind in ("anomaly", "alarm", "why"))
                name = pa.repeat(pa.scalar(signal), len(rows))
                reason = why.cast(pa.string())
                arrays = [time, name, rows.column("row"), _known(anomaly), alarm.cast(pa.bool_()), reason]
                pieces.append(pa.RecordBatch.from_arrays(arrays, schema=columns))
            yield from pa.Table.from_batches(pieces, columns).combine_chunks().to_batches()

    return Results("alarms", ("name",), values, columns, batches) if signals else None


def _known(column: pa.Array) -> pa.Array:
    """Numbers, missing where they are NaN."""
    return pa.array(np.asarray(column.to_numpy(zero_copy_only=False), np.float64), from_pandas=True)


def _rows(path: Path, schema: pa.Schema, names: int) -> Iterator[tuple[pa.Array, pa.RecordBatch]]:
    """The rows that have a time, with their times; of several rows of one time in a batch, the last."""
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(max(1, _BATCH // max(1, names)), use_threads=False):
            time = batch.column("time" if "time" in schema.names else "row")
            keys = time.cast(pa.int64(), safe=False) if pa.types.is_timestamp(time.type) else time
            latest = len(batch) - 1 - np.unique(keys.to_numpy(zero_copy_only=False)[::-1], return_index=True)[1]
            is_last = np.zeros(len(batch), np.bool_)
            is_last[latest] = True
            present = pc.is_finite(time) if pa.types.is_floating(time.type) else pc.is_valid(time)
            keep = pc.and_(pa.array(is_last), present)
            yield time.filter(keep), batch.filter(keep)
