"""What services and spreadsheets export: JSON documents, Excel. Each becomes a table in memory."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, cast

import pyarrow as pa

from emphatic.tables.files import LOOK, File, Format, OpenOptions, Source
from emphatic.tables.table import OTHERWISE, TableError
from emphatic.tables.text import Delimited, JsonLines, is_nested

__all__ = ["JSON_DOCUMENT", "SPREADSHEET"]


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


JSON_DOCUMENT = Format("JSON document", _is_document, _open_document, text=True)
SPREADSHEET = Format("spreadsheet", _is_spreadsheet, _open_spreadsheet)
