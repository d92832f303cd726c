"""What services and spreadsheets export: InfluxDB line protocol and annotated CSV, Prometheus, JSON documents, Excel.

Each becomes a table in memory. Where an export has a series after the other, that is a table in long format (time,
series, value), which is arranged as any other.
"""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from collections.abc import Hashable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, cast

import pyarrow as pa

from emphatic.tables.fields import parse_times, unix_units
from emphatic.tables.files import LOOK, File, Format, OpenOptions, Source
from emphatic.tables.frames import Frame
from emphatic.tables.series_stores import annotated_rows
from emphatic.tables.table import OTHERWISE, TableError
from emphatic.tables.text import Delimited, JsonLines, is_nested

__all__ = ["ANNOTATED_CSV", "JSON_DOCUMENT", "LINE_PROTOCOL", "PROMETHEUS", "SPREADSHEET"]


def _lines(file: File) -> Iterator[str]:
    with file.open() as stream:
        text = bytes(stream.read())
    yield from text.decode("utf-8", "replace").removeprefix("\ufeff").splitlines()


def _first_lines(file: File, count: int = 30) -> list[str]:
    lines = file.beginning.decode("utf-8", "replace").removeprefix("\ufeff").splitlines()
    return [line for line in lines[:-1] or lines if line.strip()][:count]


# ---------------------------------------------------------------------- series one after the other


def _series_frame(
    records: Sequence[tuple[float, Hashable, str]], labels: Mapping[Hashable, Mapping[str, str]], main: str
) -> Frame:
    """A table in long format.

    Args:
        records: The time in seconds since 1970, the series and the value of each record.
        labels: The labels of each series.
        main: The label that names a series.
    """
    names = dict(zip(labels, name_series(list(labels.values()), main), strict=True))
    stamps = pa.array([round(second * 1e6) for second, _, _ in records], pa.int64())
    columns = {
        "time": stamps.cast(pa.timestamp("us", "UTC")),
        "series": pa.array([names[series] for _, series, _ in records], pa.string()),
        "value": pa.array([value for _, _, value in records], pa.string()),
    }
    return Frame(pa.table(columns))


def name_series(labels: Sequence[Mapping[str, str]], main: str) -> list[str]:
    """A name for each series by its labels: that of ``main``, and those in which series differ.

    >>> name_series([{"__name__": "load", "job": "a"}, {"__name__": "load", "job": "b"}], "__name__")
    ['load a', 'load b']
    """
    keys = dict.fromkeys(key for series in labels for key in series)
    differing = [key for key in keys if key != main and len({series.get(key) for series in labels}) > 1]
    names = [" ".join(filter(None, (series.get(key, "") for key in (main, *differing)))) for series in labels]
    return [name or " ".join(series.values()) or "value" for name, series in zip(names, labels, strict=True)]


def _is_prometheus(file: File) -> bool:
    is_error = b'"errorType"' in file.beginning and b'"status"' in file.beginning
    return file.beginning.lstrip().startswith(b"{") and (b'"resultType"' in file.beginning or is_error)


def _open_prometheus(file: File, options: OpenOptions) -> Source:
    try:
        answer = json.loads("\n".join(_lines(file)))
        if answer.get("status") == "error":
            why = str(answer.get("error", answer.get("errorType")))[:200]
            raise TableError(f"{file.name}: this is an error of Prometheus: {why}. Correct the query, and ask again.")
        results = answer["data"]["result"]
        labels: dict[Hashable, Mapping[str, str]] = {i: series["metric"] for i, series in enumerate(results)}
        records = [
            (float(moment), i, str(value))
            for i, series in enumerate(results)
            for moment, value in (series.get("values") or [series["value"]])
        ]
    except TableError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError):
        raise TableError(
            f"{file.name}: this is not the answer to a query of Prometheus, or it is incomplete. Download it again: "
            "curl 'http://HOST:9090/api/v1/query_range?query=…&start=…&end=…&step=…'"
        ) from None
    if not records:
        raise TableError(f"{file.name}: this answer of Prometheus has no series. Check the query and its range.")
    return _series_frame(records, labels, "__name__")


_KEY = r"(?:[^,= \\]|\\.)+"
_POINT = re.compile(
    rf'(?P<measurement>(?:[^, \\]|\\.)+)(?P<tags>(?:,{_KEY}={_KEY})*) (?P<fields>{_KEY}=(?:"(?:[^"\\]|\\.)*"|[^, "]+)'
    rf'(?:,{_KEY}=(?:"(?:[^"\\]|\\.)*"|[^, "]+))*)(?: (?P<time>-?[0-9]+))?'
)
_TAG = re.compile(rf",({_KEY})=({_KEY})")
_FIELD = re.compile(rf'({_KEY})=("(?:[^"\\]|\\.)*"|[^, "]+),?')


#: Comments, and what an export writes above its points.
_NO_POINT = re.compile(r"#|CREATE DATABASE\b", re.IGNORECASE)


def _is_line_protocol(file: File) -> bool:
    lines = [line for line in _first_lines(file) if not _NO_POINT.match(line)]
    return bool(lines) and all(_POINT.fullmatch(line.strip()) for line in lines)


def _open_line_protocol(file: File, options: OpenOptions) -> Source:
    labels: dict[Hashable, Mapping[str, str]] = {}
    records: list[tuple[int, Hashable, str]] = []
    for number, line in enumerate(_lines(file), start=1):
        point = _POINT.fullmatch(line.strip())
        if point is None:
            if line.strip() and not _NO_POINT.match(line):
                raise TableError(
                    f"{file.name}: line {number} is not a point of line protocol: {line[:60]!r}. Correct it."
                )
            continue
        if point["time"] is None:
            raise TableError(f"{file.name}: line {number} has no time. Export the points with their times.")
        for field, text in _FIELD.findall(point["fields"]):
            key = (point["measurement"], point["tags"], field)
            if key not in labels:
                tags = {_plain(name): _plain(value) for name, value in _TAG.findall(point["tags"])}
                labels[key] = {"field": _plain(field), "measurement": _plain(point["measurement"])} | tags
            value = text.strip('"') if text.startswith('"') else re.sub(r"(?<=[0-9])[iu]$", "", text)
            value = {"t": "true", "T": "true", "f": "false", "F": "false"}.get(value, value)
            records.append((int(point["time"]), key, value))
    a_second = unix_units(float(records[len(records) // 2][0])) or 1e9
    return _series_frame([(moment / a_second, key, value) for moment, key, value in records], labels, "field")


def _plain(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


#: Columns of annotated CSV that are no part of a series.
_BOOKKEEPING = {"", "result", "table", "_start", "_stop", "_time", "_value"}


def _is_annotated(file: File) -> bool:
    lines = _first_lines(file, 1)
    return bool(lines) and lines[0].lstrip('"').startswith(("#group", "#datatype", "#default"))


def _open_annotated(file: File, options: OpenOptions) -> Source:
    """Blocks of rows, each with the annotations and the header of its own: a series for each field and its tags."""
    labels: dict[Hashable, Mapping[str, str]] = {}
    stamps: list[str] = []
    keys: list[Hashable] = []
    values: list[str] = []
    for notes, names, row in annotated_rows(_lines(file)):
        if any(len(note) != len(names) for note in notes.values()):
            raise TableError(f"{file.name}: annotations and header of a block differ in length. Export it again.")
        if "_time" not in names:
            raise TableError(f"{file.name}: a block of this annotated CSV has no column _time. Export it with times.")
        if len(row) != len(names):
            continue
        groups, types = notes.get("#group", []), notes.get("#datatype", [])
        kinds = groups or ["true" if kind == "string" else "false" for kind in types] or ["true"] * len(names)
        further = [i for i, name in enumerate(names) if name not in _BOOKKEEPING]
        further.sort(key=lambda i: names[i] != "_measurement")
        tags = [i for i in further if kinds[i] == "true" or names[i] in ("_field", "_measurement")]
        for i in [names.index("_value")] if "_value" in names else [i for i in further if i not in tags]:
            key = (names[i], *((names[tag], row[tag]) for tag in tags))
            if key not in labels:
                labels[key] = {"_field": names[i]} | {names[tag]: row[tag] for tag in tags if row[tag]}
            stamps.append(row[names.index("_time")])
            keys.append(key)
            values.append(row[i])
    if not keys:
        raise TableError(f"{file.name}: this annotated CSV has no row with a value. Check the query and its range.")
    moments = parse_times(pa.array(stamps, pa.string()), "iso").tolist()
    records = [record for record in zip(moments, keys, values, strict=True) if record[0] == record[0]]
    return _series_frame(records, labels, "_field")


# ---------------------------------------------------------------------- JSON documents

#: The largest document that is read as a whole, in bytes.
_DOCUMENT = 1 << 28


def _is_document(file: File) -> bool:
    """Whether a file is one JSON array, or one object with a table in it: not an object a line."""
    if file.obstacle is not None:
        return False
    if file.first_sign == b"[":
        return True
    if file.first_sign != b"{":
        return False
    lines = [line for line in file.head.splitlines()[:3] if line.strip()]
    if not lines:
        return False
    try:
        value = json.loads(lines[0])
    except ValueError:
        return len(lines) > 1 and not lines[1].lstrip().startswith(b"{")
    return len(lines) == 1 and isinstance(value, dict) and any(map(is_nested, value.values()))


def _read_document(file: File) -> Any:
    with file.open() as stream:
        text = bytes(stream.read(_DOCUMENT + 1))
    if len(text) > _DOCUMENT:
        raise TableError(
            f"{file.name}: this is one JSON document of more than {_DOCUMENT >> 20} MB. Write one object a line "
            f"instead: jq -c '.[]' {file.name} > objects.jsonl"
        )
    try:
        return json.loads(text.decode().removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise TableError(f"{file.name}: this is not JSON: {error}. Correct it. {OTHERWISE}") from None


def _find_rows(value: object, depth: int = 0) -> list[dict[str, Any]] | None:
    """The rows of a JSON value: the longest list of objects in it, or lists of equal length that are columns.

    >>> _find_rows({"hourly": {"time": ["a", "b"], "x": [1, 2]}})
    [{'time': 'a', 'x': 1}, {'time': 'b', 'x': 2}]
    """
    if depth > 4 or not value:
        return None
    if isinstance(value, list):
        if all(isinstance(item, dict) for item in value):
            inner = _find_rows(value[0], depth + 1) if len(value) == 1 else None
            return inner if inner is not None and len(inner) > 1 else value
        if _are_rows(value):
            return [{f"column_{i}": cell for i, cell in enumerate(row, 1)} for row in value]
        lists = [_find_rows(item, depth + 1) or [] for item in value if isinstance(item, list)]
        # Home Assistant names the entity in the first object of its list alone.
        return [{"entity_id": rows[0].get("entity_id")} | row for rows in lists for row in rows] or None
    if not isinstance(value, dict):
        return None
    columns = {name: cells for name, cells in value.items() if isinstance(cells, list)}
    lengths = {len(cells) for cells in columns.values()}
    if (
        len(columns) > 1
        and len(lengths) == 1
        and not any(isinstance(c, dict) for cells in columns.values() for c in cells)
    ):
        return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    tables = [table for inner in value.values() if (table := _find_rows(inner, depth + 1)) is not None]
    longest = max(tables, key=len, default=[])
    # Several lists of the same fields are several series: one of them is not the table.
    is_alone = all(table is longest or table[0].keys() != longest[0].keys() for table in tables)
    return longest if len(longest) > 1 and is_alone else None


def _are_rows(items: Sequence[Any]) -> bool:
    """Whether lists are the rows of a table without names: of equal length, of numbers and words."""
    width = len(items[0]) if isinstance(items[0], list) else 0
    is_table = width > 1 and all(isinstance(row, list) and len(row) == width for row in items)
    return is_table and not any(isinstance(cell, dict | list) for row in items for cell in row)


def _open_document(file: File, options: OpenOptions) -> Source:
    objects = _find_rows(_read_document(file))
    if not objects:
        raise TableError(
            f"{file.name}: there is no table in this JSON document: no list of objects, and no lists of equal length. "
            f'Write one object a line, such as {{"time": "2007-02-01T17:24:00", "power": 4.2}}. {OTHERWISE}'
        )
    if all(row.get("entity_id", "") is None for row in objects):
        objects = [{name: cell for name, cell in row.items() if name != "entity_id"} for row in objects]
    lines = _Text(file.name, "".join(json.dumps(row) + "\n" for row in objects).encode())
    return JsonLines(cast(File, lines))


# ---------------------------------------------------------------------- spreadsheets


def _is_spreadsheet(file: File) -> bool:
    if not file.start.startswith(b"PK\x03\x04"):
        return False
    try:
        with zipfile.ZipFile(file.path) as archive:
            return any(name.startswith("xl/") or name == "content.xml" for name in archive.namelist())
    except (zipfile.BadZipFile, OSError):
        return False


class _Text:
    """The cells of a sheet as CSV, or objects of JSON as lines, in the place of a ``File``."""

    def __init__(self, name: str, text: bytes) -> None:
        self.name, self._text = name, text
        self.head = text if len(text) < LOOK else text[: text.rfind(b"\n", 0, LOOK) + 1]

    def open(self) -> pa.BufferReader:
        return pa.BufferReader(self._text)


def _open_spreadsheet(file: File, options: OpenOptions) -> Source:
    try:
        from python_calamine import CalamineError, CalamineWorkbook
    except ImportError:
        raise TableError(f"{file.name}: a spreadsheet needs python-calamine: pip install 'emphatic[excel]'") from None
    try:
        workbook = CalamineWorkbook.from_path(str(file.path))
        sheets = [workbook.get_sheet_by_name(name).to_python(skip_empty_area=True) for name in workbook.sheet_names]
        # A sheet that says who made the others may come first.
        longest = max(map(len, sheets), default=0)
        rows: list[list[Any]] = next((sheet for sheet in sheets if len(sheet) > max(1, longest // 10)), [])
    except (CalamineError, OSError, ValueError) as error:
        raise TableError(f"{file.name}: the spreadsheet cannot be read ({error}). Export its sheet as CSV.") from None
    if not rows:
        raise TableError(f"{file.name}: no sheet of the spreadsheet has rows.")
    text = io.StringIO()
    writer = csv.writer(text, delimiter=",", lineterminator="\n")
    writer.writerows([[_cell(cell) for cell in row] for row in rows])
    sheet = _Text(file.name, text.getvalue().encode())
    return Delimited(cast(File, sheet), ",", options.skip_lines, options.header)


def _cell(cell: object) -> str:
    """A cell as text: whole numbers without a point, dates in ISO, and a line for each row."""
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 1e15:
        return str(int(cell))
    if isinstance(cell, timedelta):
        return str(cell.total_seconds())
    text = cell.isoformat(sep=" ") if isinstance(cell, datetime) else str(cell)
    return " ".join(text.split("\n"))


PROMETHEUS = Format("Prometheus", _is_prometheus, _open_prometheus, text=True)
LINE_PROTOCOL = Format("InfluxDB line protocol", _is_line_protocol, _open_line_protocol, text=True)
ANNOTATED_CSV = Format("InfluxDB annotated CSV", _is_annotated, _open_annotated, text=True)
JSON_DOCUMENT = Format("JSON document", _is_document, _open_document, text=True)
SPREADSHEET = Format("spreadsheet", _is_spreadsheet, _open_spreadsheet)
