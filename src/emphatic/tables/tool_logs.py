"""What tools print and export: vmstat, sar, sadf, iostat, dmesg, journalctl, InfluxDB line protocol and annotated CSV,
Prometheus, JSON documents, spreadsheets.

Each becomes a table in memory. Where a tool has a series after the other, or writes numbers into sentences, that is a
table in long format (time, series, value), which is arranged as any other.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, cast

import pyarrow as pa

from emphatic.tables.fields import date_format, parse_times, unix_units
from emphatic.tables.files import LOOK, File, Format, OpenOptions, Source
from emphatic.tables.frames import Frame
from emphatic.tables.table import TableError
from emphatic.tables.text import Delimited, JsonLines

__all__ = ["ALIGNED", "ANNOTATED_CSV", "DAY_ROWS", "DMESG", "IOSTAT", "JOURNAL", "JSON_DOCUMENT", "LINE_PROTOCOL"]
__all__ += ["LOGFMT", "PROMETHEUS", "SADF", "SAR", "SPREADSHEET", "VMSTAT"]

#: The most kinds of messages whose numbers are series, and the fewest messages of a kind.
_KINDS, _MESSAGES = 50, 10


def _lines(file: File) -> Iterator[str]:
    with file.open() as stream:
        text = bytes(stream.read())
    yield from text.decode("utf-8", "replace").removeprefix("\ufeff").splitlines()


def _first_lines(file: File, count: int = 30) -> list[str]:
    lines = file.beginning.decode("utf-8", "replace").removeprefix("\ufeff").splitlines()
    return [line for line in lines[:-1] or lines if line.strip()][:count]


def _parse_float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _stamps(seconds: Sequence[float]) -> pa.Array:
    return pa.array([round(second * 1e6) for second in seconds], pa.int64()).cast(pa.timestamp("us", "UTC"))


def _series_frame(time: pa.Array, series: Sequence[str], values: Sequence[str]) -> Frame:
    """A table in long format."""
    return Frame(
        pa.table({"time": time, "series": pa.array(series, pa.string()), "value": pa.array(values, pa.string())})
    )


def name_series(labels: Sequence[Mapping[str, str]], main: str) -> list[str]:
    """A name for each series by its labels: that of ``main``, and those in which series differ.

    >>> name_series([{"__name__": "load", "job": "a"}, {"__name__": "load", "job": "b"}], "__name__")
    ['load a', 'load b']
    """
    keys = dict.fromkeys(key for series in labels for key in series)
    differing = [key for key in keys if key != main and len({series.get(key) for series in labels}) > 1]
    names = [" ".join(filter(None, (series.get(key, "") for key in (main, *differing)))) for series in labels]
    return [name or " ".join(series.values()) or "value" for name, series in zip(names, labels, strict=True)]


# ---------------------------------------------------------------------- Prometheus and InfluxDB


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
        names = name_series([series["metric"] for series in results], "__name__")
        records = [
            (float(moment), name, str(value))
            for name, series in zip(names, results, strict=True)
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
    time, series, values = zip(*records, strict=True)
    return _series_frame(_stamps(time), series, values)


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
    labels: dict[tuple[str, str, str], Mapping[str, str]] = {}
    records: list[tuple[int, tuple[str, str, str], str]] = []
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
    names = dict(zip(labels, name_series(list(labels.values()), "field"), strict=True))
    a_second = unix_units(float(records[len(records) // 2][0])) or 1e9
    time = _stamps([moment / a_second for moment, _, _ in records])
    return _series_frame(time, [names[key] for _, key, _ in records], [value for _, _, value in records])


def _plain(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


#: Columns of annotated CSV that are no part of a series.
_BOOKKEEPING = {"", "result", "table", "_start", "_stop", "_time", "_value"}


def _is_annotated(file: File) -> bool:
    lines = _first_lines(file, 1)
    return bool(lines) and lines[0].lstrip('"').startswith(("#group", "#datatype", "#default"))


def _open_annotated(file: File, options: OpenOptions) -> Source:
    """Blocks of rows, each with the annotations and the header of its own: a series for each field and its tags."""
    labels: dict[tuple[Any, ...], Mapping[str, str]] = {}
    stamps: list[str] = []
    keys: list[tuple[Any, ...]] = []
    values: list[str] = []
    notes: dict[str, list[str]] = {}
    names: list[str] = []
    tags: list[int] = []
    fields_at: list[int] = []
    for row in csv.reader(_lines(file)):
        if not any(row):
            notes, names = {}, []
        elif row[0].startswith("#"):
            notes, names = ({} if names else notes) | {row[0]: row}, []
        elif not names:
            names = row
            if any(len(note) != len(names) for note in notes.values()):
                raise TableError(f"{file.name}: annotations and header of a block differ in length. Export it again.")
            if "_time" not in names:
                raise TableError(
                    f"{file.name}: a block of this annotated CSV has no column _time. Export it with times."
                )
            groups, types = notes.get("#group", []), notes.get("#datatype", [])
            further = [i for i, name in enumerate(names) if name not in _BOOKKEEPING]
            further.sort(key=lambda i: names[i] != "_measurement")
            kinds = groups or ["true" if kind == "string" else "false" for kind in types] or ["true"] * len(names)
            tags = [i for i in further if kinds[i] == "true" or names[i] in ("_field", "_measurement")]
            fields_at = [names.index("_value")] if "_value" in names else [i for i in further if i not in tags]
        elif len(row) == len(names):
            for i in fields_at:
                key = (names[i], *((names[tag], row[tag]) for tag in tags))
                if key not in labels:
                    labels[key] = {"_field": names[i]} | {names[tag]: row[tag] for tag in tags if row[tag]}
                stamps.append(row[names.index("_time")])
                keys.append(key)
                values.append(row[i])
    if not keys:
        raise TableError(f"{file.name}: this annotated CSV has no row with a value. Check the query and its range.")
    series = dict(zip(labels, name_series(list(labels.values()), "_field"), strict=True))
    moments = parse_times(pa.array(stamps, pa.string()), "iso")
    known = [i for i, moment in enumerate(moments.tolist()) if moment == moment]
    return _series_frame(
        _stamps([moments[i] for i in known]), [series[keys[i]] for i in known], [values[i] for i in known]
    )


# ---------------------------------------------------------------------- vmstat, sar and sadf


def _is_vmstat(file: File) -> bool:
    return any(line.startswith("procs ") and "memory" in line for line in _first_lines(file, 3))


def _open_vmstat(file: File, options: OpenOptions) -> Source:
    names: list[str] = []
    rows: list[list[str]] = []
    for line in _lines(file):
        fields = line.split()
        if fields[:2] == ["r", "b"]:
            names = names or fields
        elif names and fields and _parse_float(fields[0]) is not None and len(fields) >= len(names):
            rows.append(fields)
    width = len(names)
    if not rows:
        raise TableError(f"{file.name}: there is no row of vmstat below its header.")
    columns: dict[str, Any] = {}
    if len(rows[0]) == width + 1:  # -t: a date and a time, under the name of the zone
        stamps = pa.array([" ".join(row[width - 1 : width + 1]) for row in rows], pa.string())
        columns["time"] = pa.array([round(s * 1e6) for s in parse_times(stamps, "iso")], pa.int64()).cast(
            pa.timestamp("us")
        )
        names = names[:-1]
    columns |= {name: pa.array([_parse_float(row[i]) for row in rows], pa.float64()) for i, name in enumerate(names)}
    return Frame(pa.table(columns))


_BANNER = re.compile(r"Linux \S+ \(.*\)\s+(?P<date>[0-9][0-9./-]+)\s.*")
_STAMPED = re.compile(r"(?P<clock>[0-9]{2}:[0-9]{2}:[0-9]{2}(?: [AP]M)?)\s+(?P<fields>\S.*)")


def _is_sar(file: File) -> bool:
    lines = _first_lines(file)
    return bool(lines) and bool(_BANNER.match(lines[0])) and any(map(_STAMPED.match, lines[1:]))


def _open_sar(file: File, options: OpenOptions) -> Source:
    time: list[float] = []
    series: list[str] = []
    values: list[str] = []
    first_day, names = datetime(1970, 1, 1, tzinfo=UTC), [""]
    #: The day of each section, by its header, and the last time in it: sections follow one another, or days in one.
    reached: dict[tuple[str, ...], tuple[datetime, timedelta]] = {}
    for line in _lines(file):
        banner, stamped = _BANNER.match(line), _STAMPED.match(line)
        if banner is not None:
            text = pa.array([banner["date"]], pa.string())
            form = "%m/%d/%y" if re.fullmatch(r"[0-9]{2}/[0-9]{2}/[0-9]{2}", banner["date"]) else date_format(text)
            first_day = datetime.fromtimestamp(float(parse_times(text, form or "iso")[0]), UTC)
            reached = {}
        if stamped is None:
            continue
        fields = stamped["fields"].split()
        numbers = [_parse_float(field.replace(",", ".")) for field in fields]
        if all(number is None for number in numbers):
            names = fields if "RESTART" not in fields else names
            continue
        if len(fields) != len(names):
            continue
        form = "%I:%M:%S %p" if stamped["clock"].endswith("M") else "%H:%M:%S"
        moment = datetime.strptime(stamped["clock"], form)
        clock = timedelta(hours=moment.hour, minutes=moment.minute, seconds=moment.second)
        day, before = reached.get(tuple(names), (first_day, timedelta(0)))
        if clock < before - timedelta(hours=12):
            day += timedelta(days=1)
        reached[tuple(names)] = day, clock
        for name, value in _name_activity(names, fields):
            time.append((day + clock).timestamp())
            series.append(name)
            values.append(value.replace(",", "."))
    if not time:
        raise TableError(f"{file.name}: there is no row of sar in it. Write them: LC_ALL=C sar -u > FILE")
    return _series_frame(pa.array([round(s * 1e6) for s in time], pa.int64()).cast(pa.timestamp("us")), series, values)


def _name_activity(names: Sequence[str], fields: Sequence[str]) -> list[tuple[str, str]]:
    """A name and a value for each field of a row of sar or sadf.

    >>> _name_activity(["IFACE", "rxkB/s"], ["eth0", "7.5"])
    [('eth0 rxkB/s', '7.5')]
    """
    # A first column without % or a rate names what the row is of: a processor, a disk, an interface.
    is_part = names[0] in ("CPU", "DEV", "IFACE", "INTR", "BUS", "TTY", "FAN", "TEMP", "SENSOR", "DEVICE", "FILESYSTEM")
    part = "" if not is_part or fields[0] in ("all", "-1") else f"{fields[0]} "
    return [(part + name, field) for name, field in list(zip(names, fields, strict=True))[is_part:]]


def _is_sadf(file: File) -> bool:
    return any(line.startswith("# hostname;interval;timestamp;") for line in _first_lines(file, 3))


def _open_sadf(file: File, options: OpenOptions) -> Source:
    stamps: list[str] = []
    hosts: list[str] = []
    series: list[str] = []
    values: list[str] = []
    names: list[str] = []
    for line in _lines(file):
        host, *fields = line.removeprefix("# ").split(";")
        if line.startswith("#"):
            names = fields[2:]
        elif names and len(fields) == len(names) + 2:  # not a restart, nor a comment
            activity = _name_activity(names, fields[2:])
            stamps += [fields[1]] * len(activity)
            hosts += [host] * len(activity)
            series += [name for name, _ in activity]
            values += [value.replace(",", ".") for _, value in activity]
    if not stamps:
        raise TableError(f"{file.name}: there is no row of sadf below its header. Write them: sadf -d > FILE")
    text = pa.array(stamps, pa.string())
    is_utc = stamps[0].endswith("UTC") or stamps[0].isdigit()
    seconds = parse_times(text, None if stamps[0].isdigit() else "iso")
    time = pa.array([None if s != s else round(s * 1e6) for s in seconds.tolist()], pa.int64())
    if len({*hosts}) > 1:
        series = [f"{host} {name}" for host, name in zip(hosts, series, strict=True)]
    return _series_frame(time.cast(pa.timestamp("us", "UTC" if is_utc else None)), series, values)


# ---------------------------------------------------------------------- messages

_NUMBER = re.compile(r"(?<![\w.:/#-])[-+]?[0-9]+(?:\.[0-9]+)?(?=[a-zA-Z%°µ/]{0,4}(?:[\s,;)\]]|\.?$))")
_BOOT = re.compile(r"(?:<[0-9]+>)?\[\s*(?P<time>[0-9]+\.[0-9]+)\]\s?(?P<message>.*)")
_DATED = re.compile(r"\[(?P<time>[A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9][0-9] [0-9:]{8} [0-9]{4})\]\s?(?P<message>.*)")


#: What syslog and ``journalctl`` write: the time, the host, the program and the message.
_SYSLOG = re.compile(
    r"(?P<time>[A-Z][a-z]{2} [ 0-9][0-9] [0-9]{2}:[0-9]{2}:[0-9]{2}|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}(?:[.,][0-9]+)?"
    r"(?:Z|[-+][0-9]{2}:?[0-9]{2})?) \S+ (?P<program>[^\s:\[]+)(?:\[[0-9]+\])?(?P<message>: .*)"
)


def _syslog_times(texts: Sequence[str], file: File) -> list[float]:
    """Seconds since 1970. Stamps without a year are of the year before the file was written last, up to then."""
    stamps = pa.array(texts, pa.string())
    if texts[0][0].isdigit():
        return [float(second) for second in parse_times(stamps, "iso")]
    written = datetime.fromtimestamp(file.path.stat().st_mtime, UTC)
    moments = []
    for text in texts:
        moment = datetime.strptime(f"{written.year} {text}", "%Y %b %d %H:%M:%S").replace(tzinfo=UTC)
        moments.append(
            (moment if moment < written + timedelta(days=1) else moment.replace(year=written.year - 1)).timestamp()
        )
    return moments


def numbers_of(message: str) -> tuple[str, list[str]]:
    """A message without its numbers, and these.

    >>> numbers_of("cpu0: took 17 ms, 2.5% idle")
    ('cpu0: took # ms, #% idle', ['17', '2.5'])
    """
    return _NUMBER.sub("#", message).strip(), _NUMBER.findall(message)


def _message_series(file: File, messages: Iterable[tuple[float, str, Mapping[str, str]]], is_dated: bool) -> Frame:
    """The numbers in messages as series, one for each place in each kind of message.

    Args:
        file: The file, for messages.
        messages: The time and the text of each message, and further series with their values.
        is_dated: Whether times are seconds since 1970.
    """
    records: list[tuple[float, str, str]] = []
    for moment, message, further in messages:
        kind, numbers = numbers_of(message)
        for place, number in enumerate(numbers, start=1):
            records.append((moment, kind if len(numbers) == 1 else f"{kind} ({place})", number))
        records += [(moment, name, value) for name, value in further.items()]
    counts = Counter(name for _, name, _ in records)
    frequent = {name for name, count in counts.most_common(_KINDS) if count >= _MESSAGES}
    records = [record for record in records if record[1] in frequent]
    if not records:
        raise TableError(
            f"{file.name}: no kind of message with a number in it occurs {_MESSAGES} times, so there is no signal."
        )
    records.sort(key=lambda record: record[0])
    time, series, values = zip(*records, strict=True)
    return _series_frame(_stamps(time) if is_dated else pa.array(time), series, values)


def _is_dmesg(file: File) -> bool:
    lines = _first_lines(file)
    # A line without a time may begin it, as that of ping -D and of journalctl does.
    return len(lines) > 2 and any(all(map(form.fullmatch, lines[1:])) for form in (_BOOT, _DATED, _SYSLOG))


def _open_dmesg(file: File, options: OpenOptions) -> Source:
    is_dated = _DATED.fullmatch(_first_lines(file)[1]) is not None
    messages: list[tuple[float, str, Mapping[str, str]]] = []
    if _SYSLOG.fullmatch(_first_lines(file)[1]) is not None:
        matches = [match for line in _lines(file) if (match := _SYSLOG.fullmatch(line)) is not None]
        texts = [(match["program"] or "") + match["message"] for match in matches]
        moments = _syslog_times([match["time"] for match in matches], file)
        return _message_series(file, [(t, text, {}) for t, text in zip(moments, texts, strict=True)], is_dated=True)
    for line in _lines(file):
        match = (_DATED if is_dated else _BOOT).fullmatch(line)
        if match is not None:
            stamp = match["time"]
            form = "%a %b %d %H:%M:%S %Y"
            moment = datetime.strptime(stamp, form).replace(tzinfo=UTC).timestamp() if is_dated else float(stamp)
            messages.append((moment, match["message"], {}))
    is_unix = bool(messages) and unix_units(messages[len(messages) // 2][0]) == 1.0
    return _message_series(file, messages, is_dated or is_unix)


def _is_journal(file: File) -> bool:
    return file.beginning.lstrip().startswith(b"{") and b'"__REALTIME_TIMESTAMP"' in file.beginning


def _entries(file: File) -> Iterator[str]:
    """The text of each object: a line, or the lines from one brace to the other (``-o json-pretty``)."""
    waiting: list[str] = []
    for line in _lines(file):
        if waiting or line.rstrip() == "{":
            waiting.append(line)
            if line.rstrip() == "}":
                yield "\n".join(waiting)
                waiting = []
        else:
            yield line


def _open_journal(file: File, options: OpenOptions) -> Source:
    messages: list[tuple[float, str, Mapping[str, str]]] = []
    for text in _entries(file):
        try:
            entry = json.loads(text)
            message, time = entry.get("MESSAGE"), float(entry["__REALTIME_TIMESTAMP"]) / 1e6
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
        if isinstance(message, list):  # bytes that are no text
            message = bytes(byte for byte in message if isinstance(byte, int)).decode("utf-8", "replace")
        further = {name: str(entry[name]) for name in ("PRIORITY",) if entry.get(name) is not None}
        messages.append((time, message if isinstance(message, str) else "", further))
    return _message_series(file, messages, is_dated=True)


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
        json.loads(lines[0])
    except ValueError:
        return len(lines) > 1 and not lines[1].lstrip().startswith(b"{")
    return len(lines) == 1 and _find_rows(_read_document(file)) is not None


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
        raise TableError(f"{file.name}: this is not JSON: {error}. Correct it, or export it again.") from None


def _find_rows(document: object) -> list[dict[str, Any]] | None:
    """The rows of a document: those of its objects and lists, or of series whose keys are times, if these are more."""
    objects, series = _find_objects(document), list(_find_series(document, (), None))
    keyed = _join_series(series) if series else []
    return keyed if len(keyed) > len(objects or ()) else objects


#: A key of JSON that is a time: a date, or a number of seconds or rows.
_TIME_KEY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}.*|-?[0-9]+(\.[0-9]+)?")


class _KeyedSeries(NamedTuple):
    """Values by time: the keys that lead to them, the time from which the numbers count, and the values."""

    path: tuple[str, ...]
    start: str | None
    values: Mapping[str, Any]


def _find_series(value: object, path: tuple[str, ...], start: str | None) -> Iterator[_KeyedSeries]:
    """The objects of a document whose keys are times, as solar inverters and data frames write them."""
    if not isinstance(value, dict) or len(path) > 8:
        return
    names = {name.lower(): name for name in value}
    begin = value.get(names.get("start", ""))
    start = begin if isinstance(begin, str) else start
    if len(value) > 2 and all(map(_TIME_KEY.fullmatch, value)):
        if all(isinstance(row, dict) for row in value.values()):
            for name in dict.fromkeys(name for row in value.values() for name in row):
                yield _KeyedSeries((*path, name), start, {key: row.get(name) for key, row in value.items()})
        elif not any(isinstance(cell, dict | list) for cell in value.values()):
            yield _KeyedSeries(path, start, value)
        return
    for name, inner in value.items():
        yield from _find_series(inner, (*path, name), start)


def _join_series(series: Sequence[_KeyedSeries]) -> list[dict[str, Any]]:
    """A row for each time, with a column for each series: named by the keys that not all of them have.

    >>> _join_series([_KeyedSeries(("data", "x"), None, {"0": 1, "9": 2}), _KeyedSeries(("data", "y"), None, {"9": 3})])
    [{'time': 0, 'x': 1}, {'time': 9, 'x': 2, 'y': 3}]
    """
    common = set.intersection(*(set(keyed.path) for keyed in series))
    rows: dict[Any, dict[str, Any]] = {}
    for keyed in series:
        generic = [name for name in keyed.path if name.lower() not in ("values", "data")]
        name = " ".join(key for key in keyed.path if key not in common) or (generic or ["value"])[-1]
        for key, cell in keyed.values.items():
            time = key if "-" in key[1:] else float(key) if "." in key else int(key)
            if keyed.start is not None and not isinstance(time, str):
                with contextlib.suppress(ValueError, OverflowError):
                    time = (datetime.fromisoformat(keyed.start) + timedelta(seconds=time)).isoformat()
            rows.setdefault(time, {"time": time})[name] = cell
    try:
        ordered = [rows[time] for time in sorted(rows)]
    except TypeError:  # dates among numbers
        return []
    if [row["time"] for row in ordered] == list(range(len(ordered))):  # only the numbers of rows
        ordered = [{name: cell for name, cell in row.items() if name != "time"} for row in ordered]
    return ordered


def _find_objects(value: object, depth: int = 0) -> list[dict[str, Any]] | None:
    """The rows of a JSON value: the longest list of objects in it, or lists of equal length that are columns.

    >>> _find_objects({"hourly": {"time": ["a", "b"], "x": [1, 2]}})
    [{'time': 'a', 'x': 1}, {'time': 'b', 'x': 2}]
    """
    if depth > 4 or not value:
        return None
    if isinstance(value, list):
        if all(isinstance(item, dict) for item in value):
            inner = _find_objects(value[0], depth + 1) if len(value) == 1 else None
            return inner if inner is not None and len(inner) > 1 else value
        if _are_rows(value):
            return [{f"column_{i}": cell for i, cell in enumerate(row, 1)} for row in value]
        lists = [_find_objects(item, depth + 1) or [] for item in value if isinstance(item, list)]
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
    series = {name: cells for name, cells in columns.items() if cells and all(isinstance(c, dict) for c in cells)}
    if len(series) > 1 and len({frozenset(cell) for cells in series.values() for cell in cells}) == 1:
        # A list for each series, all with the same fields.
        return [{"series": name} | cell for name, cells in series.items() for cell in cells]
    tables = [table for inner in value.values() if (table := _find_objects(inner, depth + 1)) is not None]
    return max(tables, key=len, default=None) if tables and max(map(len, tables)) > 1 else None


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
            'Write one object a line, such as {"time": "2007-02-01T17:24:00", "power": 4.2}.'
        )
    if all(row.get("entity_id", "") is None for row in objects):
        objects = [{name: cell for name, cell in row.items() if name != "entity_id"} for row in objects]
    lines = _Text(file.name, "".join(json.dumps(row) + "\n" for row in objects).encode())
    return JsonLines(cast(File, lines))


# ---------------------------------------------------------------------- spreadsheets


def _is_spreadsheet(file: File) -> bool:
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


# ---------------------------------------------------------------------- columns of blanks, and fields with names

_PAIR = re.compile(r'([A-Za-z_][\w./-]*)=("(?:[^"\\]|\\.)*"|[^\s"]*)(?=\s|$)')


#: A stamp at the beginning of a line, as programs write it above what they log.
_LOGGED = re.compile(
    r"\[?([0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}"
    r"(?::[0-9]{2}(?:[.,][0-9]+)?)?(?:Z|[-+][0-9]{2}:?[0-9]{2})?)\]?\s"
    r"(?!\S+ \S+\[[0-9]+\]:)"  # a host and a process: the journal of a system
)


def _sample(file: File) -> list[str]:
    """The first lines that are neither blank nor dashes; none of a file that is no text."""
    lines = [] if file.obstacle is not None else _first_lines(file, 60)
    return [line for line in lines if line.strip(" -=+\t\r\n")]


def _find_blanks(lines: Sequence[str]) -> re.Pattern[str] | None:
    """What separates columns that stand below one another: blanks, or two and more of them where stamps have one."""
    if len(lines) < 4 or any(sign in "".join(lines) for sign in '\t;|"{'):
        return None
    if 5 * sum("  " in line.strip() for line in lines) < 4 * len(lines):
        return None
    for pattern in (re.compile(" +"), re.compile(" {2,}")):
        counts = {len(pattern.split(line.strip())) for line in lines}
        if len(counts) == 1 and max(counts) > 1:
            return pattern
    return None


def _is_aligned(file: File) -> bool:
    return _find_blanks(_sample(file)) is not None


def _open_aligned(file: File, options: OpenOptions) -> Source:
    blanks = _find_blanks(_sample(file))
    assert blanks is not None
    text = "".join("\t".join(blanks.split(line.strip())) + "\n" for line in _lines(file))
    return Delimited(cast(File, _Text(file.name, text.encode())), "\t")


def _is_logfmt(file: File) -> bool:
    lines = _sample(file)
    pairs = [len(_PAIR.findall(line)) for line in lines]
    named = [
        (count > 1 and _PAIR.match(line.strip())) or (count > 0 and _LOGGED.match(line))
        for count, line in zip(pairs, lines, strict=True)
    ]
    return len(lines) > 2 and 10 * sum(map(bool, named)) >= 9 * len(lines)


def _open_logfmt(file: File, options: OpenOptions) -> Source:
    """Lines of ``name=value``, perhaps with a time before them."""
    rows = []
    for line in _lines(file):
        logged = _LOGGED.match(line)
        pairs = {name: value.strip('"') for name, value in _PAIR.findall(line)}
        rows.append(({"time": logged[1].replace(",", ".")} if logged and pairs else {}) | pairs)
    text = "".join(json.dumps(row) + "\n" for row in rows if row)
    return JsonLines(cast(File, _Text(file.name, text.encode())))


# ---------------------------------------------------------------------- a day in a row

_CLOCK_NAME = re.compile(r"([01]?[0-9]|2[0-4]):([0-5][0-9])(:00)?")
#: The fewest columns that are times of the day.
_CLOCKS_OF_A_DAY = 12


def _find_day_rows(file: File) -> tuple[str, list[int]] | None:
    """The delimiter, and the columns that are the times of a day, of a table that has a row for each day; else None.

    Meters are read out like that: a date, then a column for each half-hour.
    """
    lines = _sample(file)[:2]
    for delimiter in ",;\t" if len(lines) == 2 else "":
        names, row = (next(csv.reader([line], delimiter=delimiter), []) for line in lines)
        clocks = [i for i, name in enumerate(names) if _CLOCK_NAME.fullmatch(name.strip())]
        if len(clocks) >= _CLOCKS_OF_A_DAY and len(row) == len(names) and len(names) - len(clocks) <= 8:
            beside = pa.array([cell for i, cell in enumerate(row) if i not in clocks], pa.string())
            if any(date_format(beside.slice(i, 1)) for i in range(len(beside))):
                return delimiter, clocks
    return None


def _open_day_rows(file: File, options: OpenOptions) -> Source:
    """A row for each time of each day, with the columns beside the date as they are."""
    layout = _find_day_rows(file)
    assert layout is not None
    delimiter, clocks = layout
    names, *days = [row for row in csv.reader(_lines(file), delimiter=delimiter) if row]
    days = [row for row in days if len(row) == len(names)]
    beside = [i for i in range(len(names)) if i not in clocks]
    texts = {i: pa.array([row[i] for row in days], pa.string()) for i in beside}
    forms = {i: form for i in beside if (form := date_format(texts[i])) is not None}
    date = next(iter(forms))
    dates = parse_times(texts[date], forms[date])
    beside.remove(date)
    offsets = [60 * int(match[1]) + int(match[2]) for i in clocks if (match := _CLOCK_NAME.fullmatch(names[i].strip()))]
    # The first time of a day may be the end of its first half-hour, and the last one midnight.
    offsets = [minutes + 1440 * (k > 0 and minutes < offsets[0]) for k, minutes in enumerate(offsets)]
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerow(["time", *(names[i] for i in beside), "value"])
    for row, day in zip(days, dates.tolist(), strict=True):
        for i, minutes in zip(clocks, offsets, strict=True):
            when = "" if day != day else datetime.fromtimestamp(day + 60 * minutes, UTC).strftime("%Y-%m-%d %H:%M:%S")
            writer.writerow([when, *(row[j] for j in beside), row[i]])
    return Delimited(cast(File, _Text(file.name, text.getvalue().encode())), delimiter)


# ---------------------------------------------------------------------- iostat

_REPORT = re.compile(r"[0-9]{2,4}[-/.][0-9]{2}[-/.][0-9]{2,4}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}( ?[AP]M|[-+0-9Z]*)")


def _is_iostat(file: File) -> bool:
    lines = _first_lines(file, 12)
    is_report = any(line.startswith(("avg-cpu:", "Device")) for line in lines)
    return bool(lines) and bool(_BANNER.match(lines[0])) and is_report


def _open_iostat(file: File, options: OpenOptions) -> Source:
    """A row for each report: the processor's columns, and those of each device with its name before them."""
    rows: list[dict[str, str]] = []
    names: list[str] = []
    has_begun = False
    for line in _lines(file):
        cells = line.split()
        if stamp := _REPORT.fullmatch(line.strip()):
            rows.append({"time": stamp[0]})
            has_begun = True
        elif cells and cells[0] in ("avg-cpu:", "Device", "Device:"):
            # Without stamps a report begins with the processor, or with the devices if it has only these.
            if not has_begun or cells[1] in rows[-1]:
                rows.append({})
            names, has_begun = cells, cells[0] == "avg-cpu:"
        elif rows and cells and names:
            numbers = [cell.replace(",", ".") for cell in cells]
            if names[0] == "avg-cpu:":
                rows[-1] |= dict(zip(names[1:], numbers, strict=False))
            elif len(cells) == len(names):
                rows[-1] |= {f"{cells[0]} {name}": number for name, number in zip(names[1:], numbers[1:], strict=True)}
    text = "".join(json.dumps(row) + "\n" for row in rows if row)
    return JsonLines(cast(File, _Text(file.name, text.encode())))


DAY_ROWS = Format("a day in a row", lambda file: _find_day_rows(file) is not None, _open_day_rows, text=True)
IOSTAT = Format("iostat", _is_iostat, _open_iostat, text=True)
ALIGNED = Format("aligned columns", _is_aligned, _open_aligned, text=True)
LOGFMT = Format("logfmt", _is_logfmt, _open_logfmt, text=True)
PROMETHEUS = Format("Prometheus", _is_prometheus, _open_prometheus, text=True)
LINE_PROTOCOL = Format("InfluxDB line protocol", _is_line_protocol, _open_line_protocol, text=True)
VMSTAT = Format("vmstat", _is_vmstat, _open_vmstat, text=True)
ANNOTATED_CSV = Format("InfluxDB annotated CSV", _is_annotated, _open_annotated, text=True)
JSON_DOCUMENT = Format("JSON document", _is_document, _open_document, text=True)
SADF = Format("sadf", _is_sadf, _open_sadf, text=True)
SAR = Format("sar", _is_sar, _open_sar, text=True)
DMESG = Format("dmesg", _is_dmesg, _open_dmesg, text=True)
JOURNAL = Format("journalctl -o json", _is_journal, _open_journal, text=True)
SPREADSHEET = Format("spreadsheet", _is_spreadsheet, _open_spreadsheet, signatures=((0, b"PK\x03\x04"),))
