"""Tables and the numbers in them: rounded, aligned, sortable by a click on the head of a column."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, TypeGuard

from emphatic.report.page import Html, text

__all__ = ["NONE", "Column", "amount", "known", "percent", "plus_minus", "seconds", "share", "table"]

NONE = "–"


def known(value: Any) -> TypeGuard[float]:
    """Whether there is a finite number to show."""
    return isinstance(value, Real) and math.isfinite(value)


def amount(value: Any) -> str:
    """A quantity in any unit, to three significant digits; "–" where there is none.

    >>> [amount(v) for v in (0.0123456, -12.345, 129600, 1e-9, None)]
    ['0.0123', '−12.3', '129,600', '1.00e−9', '–']
    """
    if not known(value):
        return NONE
    size = abs(value)
    if value == int(value) and size < 1e15:
        shown = f"{int(value):,}"
    elif 1e-4 <= size < 1e6:
        shown = f"{value:,.{max(0, 2 - math.floor(math.log10(size)))}f}"
    else:
        mantissa, _, exponent = f"{value:.2e}".partition("e")
        shown = f"{mantissa}e{int(exponent)}"
    return shown.replace("-", "−")


def plus_minus(value: Any, error: Any) -> str:
    """A quantity with its standard error, to two digits of that; without one as ``amount`` shows it.

    >>> [plus_minus(*v) for v in ((0.09753, 0.00361), (12.0, None), (math.nan, 0.1))]
    ['0.0975 ± 0.0036', '12', '–']
    """
    if not known(value) or not known(error) or error <= 0:
        return amount(value)
    places = 1 - math.floor(math.log10(error))
    if not 0 <= places <= 9 or abs(value) >= 1e6:
        return f"{amount(value)} ± {amount(float(f'{error:.2g}'))}"
    return f"{value:,.{places}f} ± {error:,.{places}f}".replace("-", "−")


def share(value: Any, digits: int = 2) -> str:
    """A share of one (variance explained, a ratio); "–" where there is none.

    From .95 to 1 it has three decimals at least, and is cut off rather than rounded: what is not 1 never shows as 1.

    >>> [share(v) for v in (0.936, 0.9958, 0.9999, 1.0, -0.001, -1234.5, None)]
    ['0.94', '0.995', '0.999', '1.00', '0.00', '−1,230', '–']
    """
    if not known(value):
        return NONE
    if abs(value) >= 100:
        return amount(float(f"{value:.3g}"))
    if 0.95 <= value < 1.0:
        digits = max(digits, 3)
        value = math.floor(value * 10**digits) / 10**digits
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def percent(value: Any) -> str:
    """The same in percent: from 95% on to a tenth, cut off rather than rounded.

    >>> [percent(v) for v in (0.936, 0.9958, 0.99999, 1.0, -0.014, None)]
    ['94%', '99.5%', '99.9%', '100%', '−1%', '–']
    """
    if not known(value):
        return NONE
    if 0.95 <= value < 1.0:
        return f"{math.floor(1000 * value) / 10:.1f}%"
    return f"{100 * value:.0f}%".replace("-", "−")


def seconds(value: Any) -> str:
    """A duration.

    >>> [seconds(v) for v in (0.0042, 7.31, 3725)]
    ['4 ms', '7.3 s', '1 h 2 min']
    """
    if not known(value):
        return NONE
    if value < 0.9995:
        return f"{1000 * value:.0f} ms"
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


@dataclass(frozen=True)
class Column:
    """A column: its head, the key of its value in a row, how a value is shown, and what the head says on hover.

    Columns in a row with the same ``over`` stand under that common head. Those with the same ``rival`` compete: the
    best of each row is marked, ``sign`` telling whether more (1) or less (−1) is better. Names are sorted by the
    number under the key ``order``, where there is one.
    """

    head: str
    key: str
    show: Callable[[Any], str] = text
    over: str = ""
    rival: str = ""
    sign: int = 1
    order: str = ""
    hint: str = ""


def table(
    columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], *, sort: bool = False, tall: bool = False
) -> Html:
    """The rows as an HTML table in a box of its own that scrolls; ``tall`` ones have a bounded height.

    A column shown by ``text`` (the default) holds names, flush left; any other holds numbers, flush right.
    """
    body = "".join(f"<tr>{_cells(columns, row)}</tr>" for row in rows)
    classes = "box tall" if tall else "box"
    kind = ' class="sort"' if sort else ""
    return Html(
        f'<div class="{classes}" tabindex="0"><table{kind}><thead>{_heads(columns, sort)}</thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _heads(columns: Sequence[Column], sort: bool) -> str:
    above = ""
    if any(column.over for column in columns):
        i = 0
        while i < len(columns):
            same = next((j for j in range(i, len(columns)) if columns[j].over != columns[i].over), len(columns))
            above += f'<th colspan="{same - i}" class="over">{text(columns[i].over)}</th>'
            i = same
        above = f"<tr>{above}</tr>"
    heads = ""
    for column in columns:
        title = f' title="{text(column.hint)}"' if column.hint else ""
        label = f'<button type="button">{text(column.head)}</button>' if sort else text(column.head)
        heads += f'<th scope="col" class="{_kind(column)}"{title}>{label}</th>'
    return f"{above}<tr>{heads}</tr>"


def _kind(column: Column) -> str:
    return "name" if column.show is text else "number"


def _cells(columns: Sequence[Column], row: Mapping[str, Any]) -> str:
    best: dict[str, str] = {}
    for rival in {column.rival for column in columns if column.rival}:
        rivals = [(c.sign * row[c.key], c.show(row[c.key])) for c in columns if c.rival == rival and known(row[c.key])]
        if rivals:
            best[rival] = max(rivals)[1]
    cells = ""
    for column in columns:
        value = row.get(column.key)
        shown = NONE if value is None else column.show(value)
        # Equal as shown is equally good: no mark should rest on digits that nobody sees.
        mark = " best" if column.rival and known(value) and shown == best[column.rival] else ""
        place = row.get(column.order or column.key)
        order = f' data-order="{float(place)!r}"' if known(place) else ""
        cells += f'<td class="{_kind(column)}{mark}"{order}>{text(shown)}</td>'
    return cells
