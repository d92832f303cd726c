"""The errors of tables: which file, where in it, and what to do; and why a line of a pipe is not a reading."""

from __future__ import annotations

import csv
import lzma
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

__all__ = ["CALLER", "Caller", "Malformed", "TableError", "reading"]


class Caller(NamedTuple):
    """The function that was called with a table, and its parameter for it: what an error names."""

    function: str = "open_table"
    source: str = "source"


CALLER = Caller()


class TableError(ValueError):
    """A table that cannot be read as one; the message names it, the place in it and the remedy."""


class Malformed(ValueError):
    """A line of a pipe that is not a reading, and why. The run goes on without it."""


@contextmanager
def reading(name: str, find_line: Callable[[], int | None] = lambda: None) -> Iterator[None]:
    """Whatever goes wrong in the readers underneath becomes a ``TableError`` in one sentence.

    ``find_line`` gives the first line that is not UTF-8, once it is known that there is one.
    """
    import pyarrow as pa

    try:
        yield
    except TableError:
        raise
    except FileNotFoundError:
        raise TableError(f"{name}: there is no such file.") from None
    except PermissionError:
        raise TableError(f"{name}: this file may not be read; look at its permissions.") from None
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        reason = _one_line(error)
        raise TableError(f"{name}: a column's type cannot be read ({reason}). Store it as numbers.") from None
    except (pa.ArrowException, csv.Error, OSError, EOFError, UnicodeDecodeError, lzma.LZMAError) as error:
        reason = _one_line(error)
        if isinstance(error, UnicodeDecodeError) or "invalid utf8" in reason.lower():
            line = find_line()
            place = f"line {line}" if line else "some of its text"
            remedy = f"Convert it: iconv -f latin1 -t utf-8 {name} > converted.csv"
            raise TableError(f"{name}: {place} is not UTF-8. {remedy}") from None
        raise TableError(f"{name}: damaged or cut short ({reason}). Write or fetch it again, whole.") from None


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".")
