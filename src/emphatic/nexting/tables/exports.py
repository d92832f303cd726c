"""What services and spreadsheets export: JSON arrays, Excel. Each becomes a table in memory."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from datetime import datetime, timedelta
from typing import Any, cast

import pyarrow as pa

from emphatic.nexting.tables.files import LOOK, File, Format, OpenOptions, Source
from emphatic.nexting.tables.table import OTHERWISE, TableError
from emphatic.nexting.tables.text import Delimited, JsonLines

__all__ = ["JSON_DOCUMENT", "SPREADSHEET"]


# ---------------------------------------------------------------------- JSON documents


def _is_document(file: File) -> bool:
    """Whether a file is one JSON array."""
    return file.obstacle is None and file.first_sign == b"["


def _read_document(file: File) -> Any:
    with file.open() as stream:
        text = bytes(stream.read())
    try:
        return json.loads(text.decode().removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise TableError(f"{file.name}: this is not JSON: {error}. Correct it. {OTHERWISE}") from None


def _open_document(file: File, options: OpenOptions) -> Source:
    """The objects of an array; or of the arrays in it, of which Home Assistant writes one for each entity."""
    objects = _read_document(file)
    is_history = bool(objects) and all(isinstance(item, list) for item in objects)
    rows = [row for item in objects for row in item] if is_history else objects
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise TableError(f"{file.name}: this JSON document is no list of objects. {OTHERWISE}")
    if is_history:  # the first object of a list alone names the entity
        rows = [{"entity_id": item[0].get("entity_id")} | row for item in objects for row in item]
    lines = _Text(file.name, "".join(json.dumps(row) + "\n" for row in rows).encode())
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
