"""The pages: templates that escape what they are given, sortable tables, and the numbers in them, rounded and aligned.

A page is one file with its style, script, data and plotting library inside, which loads nothing. ``render_page`` fills
one of the templates; ``table`` and ``piece`` make what stands in them. All HTML is in the folder ``templates``.
"""

from __future__ import annotations

import hashlib
import html
import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import groupby
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from emphatic.engines.generated import cache_folder
from emphatic.nexting.report.plots import INKS, Plot, Store

if TYPE_CHECKING:
    from jinja2 import Environment
    from jinja2.bccache import Bucket

__all__ = ["NONE", "Column", "Figure", "Html", "Key", "Plots", "amount", "count", "known", "percent", "piece"]
__all__ += [
    "plus_minus",
    "render_page",
    "seconds",
    "share",
    "table",
    "text",
    "time_table",
    "with_digits",
]

# ---------------------------------------------------------------------- templates


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


def text(value: object) -> Html:
    """Anything as HTML: escaped, unless it is HTML already."""
    if isinstance(value, Html):
        return value
    return Html(value.__html__() if hasattr(value, "__html__") else html.escape(str(value)))


@cache
def asset(name: str) -> Html:
    """A file of this package; styles and scripts without indents and lines that are comments, as pages carry them."""
    content = files("emphatic.nexting.report").joinpath(name).read_text(encoding="utf-8")
    if name.endswith((".css", ".js")):
        lines = map(str.strip, content.splitlines())
        content = "\n".join(line for line in lines if line and not line.startswith("//"))
    return Html(content)


@cache
def _environment() -> Environment:
    import jinja2  # late: only pages need it

    class KeptTemplates(jinja2.FileSystemBytecodeCache):
        """Compiled templates beside the compiled kernels: to compile them takes as long as to fill them."""

        def dump_bytecode(self, bucket: Bucket) -> None:
            with suppress(OSError):  # a folder that is only read from, or a full disk
                super().dump_bytecode(bucket)

    folder = cache_folder()
    # Jinja checks the source of a template, but neither its own version nor the options below.
    options = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]
    pattern = f"emphatic_page_{options}_jinja_{jinja2.__version__}_%s.cache"
    environment = jinja2.Environment(
        # (A whole path stays as it is: a template of somebody else.)
        loader=jinja2.FunctionLoader(lambda name: str(asset(str(Path("templates", name))))),
        autoescape=True,
        finalize=text,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        bytecode_cache=None if folder is None else KeptTemplates(str(folder), pattern),
    )
    environment.filters["plain"] = plain
    environment.globals |= {"asset": asset, "inks": INKS}
    return environment


def piece(name: str, *values: object) -> Html:
    """A macro of ``pieces.html``, filled with its arguments."""
    return Html(getattr(_environment().get_template("pieces.html").module, name)(*values))


def render_page(
    template: str, title: str, intro: str, links: Mapping[str, str], plots: Plots | None = None, **values: object
) -> str:
    """The whole page, from a template.

    Args:
        template: Its name, or the whole path of one that is not in this package; what it shows between the heading
            and the end is given in ``values``.
        title: The heading.
        intro: A sentence or two below it.
        links: The sections that are there, by their names in the template, with the text of the link to each.
        plots: The plots of the page. It has the plotting library only if there are some.
        values: What the template needs. All of it is escaped, unless it is ``Html``.

    Returns:
        HTML that is complete in itself. A content security policy forbids the page to load anything, whatever the
        text in it says.
    """
    page = _environment().get_template(template)
    return page.render(title=title, intro=intro, links=links, plots=plots or Plots(), **values)


class Plots:
    """The plots of one page: each call gives the place where one will be drawn."""

    def __init__(self) -> None:
        self._store = Store()
        self._plots: list[dict[str, Any]] = []

    def __len__(self) -> int:
        return len(self._plots)

    def __call__(self, plot: Plot, label: str) -> Html:
        """The element that holds the plot; ``label`` says what it shows to those who do not see it."""
        self._plots.append(self._store.plot(plot, label))
        panels = max(map(len, plot.views.values()))
        kind = "plot" + (" study" if plot.x else "") + (" grid" if plot.across > 1 else "")
        rows, narrow = -(-panels // plot.across), -(-panels // plot.across_narrow)
        return piece("plot", kind, label, len(self._plots) - 1, rows, narrow)

    @property
    def data(self) -> Html:
        """All plots and their arrays, as JSON that cannot end the element it stands in."""
        described = {"plots": self._plots, "arrays": self._store.arrays}
        return Html(json.dumps(described, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"))


class Key(NamedTuple):
    """An entry of a legend: an ink and its words; ``shade`` for one place on the scale of "hue" or "ramp".

    ``symbol`` is how it looks on the plot. A click hides or shows what has the same ``key`` (by default the ink).
    """

    ink: str
    words: str
    shade: float | None = None
    key: str = ""
    symbol: str = "line"


@dataclass(frozen=True)
class Figure:
    """A plot under its title, with what its lines mean (``keys``), and a caption below."""

    title: str
    plot: Plot
    caption: str = ""
    keys: Sequence[Key] = ()


# ---------------------------------------------------------------------- numbers in words

NONE = "–"


def known(value: object) -> TypeGuard[float]:
    """Whether there is a finite number to show."""
    return isinstance(value, Real) and math.isfinite(value)


def plain(value: object) -> str:
    """A value in words: numbers in full, lists by commas, an empty one as "none", None as "–"."""
    if value is None:
        return NONE
    if isinstance(value, Sequence | Mapping) and not value:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if known(value):
        return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(plain, value))
    return str(value)


def amount(value: object) -> str:
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


def with_digits(value: object, width: object = None) -> str:
    """A quantity to three significant digits, or to as many as show a tenth of the width of its interval.

    >>> [with_digits(*v) for v in ((290.93, 1.7), (698.2, 286.0), (1_000_234_567.0, 2.5e6), (0.012345,), (None,))]
    ['290.9', '698', '1,000,200,000', '0.0123', '–']
    """
    if not known(value) or not known(width) or not width > 0 or not 1e-4 <= abs(value) < 1e15:
        return amount(float(f"{value:.3g}")) if known(value) and abs(value) >= 1e6 else amount(value)
    digits = min(max(1 - math.floor(math.log10(width)), 2 - math.floor(math.log10(abs(value)))), 9)
    return f"{round(value, digits) + 0.0:,.{max(digits, 0)}f}".replace("-", "−")


def count(quantity: float, thing: str) -> str:
    """A number of things: "1 signal", "2 signals"."""
    return f"{amount(quantity)} {thing}" if quantity == 1 else f"{amount(quantity)} {thing}s"


def plus_minus(value: object, error: object) -> str:
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


def share(value: object, digits: int = 2) -> str:
    """A share of one (variance explained, a ratio); "–" where there is none.

    From .95 to 1 it has three decimals at least, and is cut off rather than rounded: what is not 1 never shows as 1.

    >>> [share(v) for v in (0.936, 0.9958, 0.9999, 1.0, -0.001, -1234.5, None)]
    ['0.94', '0.995', '0.999', '1.00', '0.00', '−1,230', '–']
    """
    if not known(value):
        return NONE
    if abs(value) >= 100:
        return amount(float(f"{value:.3g}"))
    digits = max(digits, 3) if 0.95 <= value < 1.0 else digits
    decimal = math.floor(value * 10**digits) / 10**digits if 0.95 <= value < 1.0 else round(value, digits)
    return f"{decimal + 0.0:.{digits}f}".replace("-", "−")


def percent(value: object) -> str:
    """The same in percent: from 95% on to a tenth, cut off rather than rounded.

    >>> [percent(v) for v in (0.936, 0.9958, 0.99999, 1.0, -0.014, None)]
    ['94%', '99.5%', '99.9%', '100%', '−1%', '–']
    """
    if not known(value):
        return NONE
    if 0.95 <= value < 1.0:
        return f"{math.floor(1000 * value) / 10:.1f}%"
    return f"{100 * value:.0f}%".replace("-", "−")


def seconds(value: object) -> str:
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
    minutes, remainder = divmod(round(value), 60)
    return f"{minutes} min {remainder} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


# ---------------------------------------------------------------------- tables


@dataclass(frozen=True)
class Column:
    """A column: its head, the key of its value in a row, how a value is shown, and what the head says on hover.

    Columns in a row with the same ``over`` stand under that common head. Names are sorted by the number under the key
    ``order``, where there is one.
    """

    head: str
    key: str
    show: Callable[[Any], str] = text
    over: str = ""
    order: str = ""
    hint: str = ""

    @property
    def kind(self) -> str:
        """A column shown by ``text`` (the default) holds names, flush left; any other holds numbers, flush right."""
        return "name" if self.show is text else "number"


def table(
    columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], *, sort: bool = False, tall: bool = False
) -> Html:
    """The rows as an HTML table in a box of its own that scrolls; ``tall`` ones have a bounded height."""
    return piece("table", _common_heads(columns), columns, [_cells(columns, row) for row in rows], sort, tall)


def _common_heads(columns: Sequence[Column]) -> list[tuple[int, str]]:
    """The heads above the heads of columns, each with the number of columns that it spans; none if all are empty."""
    heads = [(len(list(group)), over) for over, group in groupby(column.over for column in columns)]
    return heads if any(over for _, over in heads) else []


def _cells(columns: Sequence[Column], row: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The class of each cell, what it is sorted by ("" where by its text), and what it shows."""
    cells = []
    for column in columns:
        value = row.get(column.key)
        shown = NONE if value is None else column.show(value)
        place = row.get(column.order or column.key)
        cells.append((column.kind, repr(float(place)) if known(place) else "", shown))
    return cells


def time_table(times: Mapping[str, float]) -> Html:
    """How long each stage took, and all of them together; nothing if nothing was timed."""
    if not times:
        return Html()
    total = sum(times.values())
    rows: list[dict[str, Any]] = [
        {"stage": stage, "time": time, "meter": piece("meter", time / total if total else 0.0)}
        for stage, time in times.items()
    ]
    columns = [Column("stage", "stage"), Column("time", "time", seconds), Column("", "meter")]
    return table(columns, [*rows, {"stage": "all", "time": total, "meter": ""}])
