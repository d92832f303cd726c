"""The shell of every page: one file with its style, script, data and plotting library inside, which loads nothing."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, NamedTuple

from emphatic.report.plots import Plot, Store

__all__ = [
    "Figure",
    "Html",
    "Key",
    "Plots",
    "choice",
    "legend",
    "page",
    "paragraphs",
    "picture_button",
    "section",
    "terms",
    "text",
]


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def text(value: object) -> Html:
    """Anything as HTML: escaped, unless it is ``Html`` already."""
    return value if isinstance(value, Html) else Html(html.escape(str(value)))


class Plots:
    """The plots of one page: each call gives the place where one will be drawn."""

    def __init__(self) -> None:
        self._store = Store()
        self._plots: list[dict[str, Any]] = []
        self._kinds: set[str] = set()

    def __call__(self, plot: Plot, label: str) -> Html:
        """The element that holds the plot; ``label`` says what it shows to those who do not see it."""
        self._plots.append(self._store.plot(plot))
        self._kinds.add("log" if plot.x is None else "study")
        panels = max(map(len, plot.views.values()))
        rows, narrow = -(-panels // plot.across), -(-panels // plot.across_narrow)
        kind = "plot" + (" study" if plot.x else "") + (" grid" if plot.across > 1 else "")
        return Html(
            f'<div class="{kind}" role="img" aria-label="{text(label)}" data-plot="{len(self._plots) - 1}" '
            f'style="--rows:{rows};--narrow:{narrow}"></div>'
        )

    def data(self) -> Html:
        """All plots and their arrays, as JSON that cannot end the element it stands in."""
        content = json.dumps({"plots": self._plots, "arrays": self._store.arrays}, allow_nan=False)
        return Html(content.replace("<", "\\u003c"))

    def scripts(self) -> list[str]:
        """What draws them: uPlot for plots of a log, plotly.js for those with axes of their own."""
        scripts = []
        if "study" in self._kinds:
            from plotly.offline import get_plotlyjs

            scripts += [get_plotlyjs(), _file("studies.js")]
        if "log" in self._kinds:
            scripts += [_file("uplot/uPlot.iife.min.js"), _file("logs.js")]
        return scripts

    @property
    def style(self) -> str:
        """The style sheet of what draws them."""
        return _file("uplot/uPlot.min.css") if "log" in self._kinds else ""


def _file(name: str) -> str:
    return files("emphatic.report").joinpath(name).read_text(encoding="utf-8")


def choice(group: str, options: Mapping[str, str], label: str) -> Html:
    """A choice between the views of a group of plots: buttons for a few, a list for many; the first is chosen."""
    if len(options) > 3:
        items = "".join(f'<option value="{text(key)}">{text(shown)}</option>' for key, shown in options.items())
        return Html(f'<select data-group="{text(group)}" aria-label="{text(label)}">{items}</select>')
    items = "".join(
        f'<label><input type="radio" name="{text(group)}" data-group="{text(group)}" value="{text(key)}"'
        f"{'' if i else ' checked'}><span>{text(shown)}</span></label>"
        for i, (key, shown) in enumerate(options.items())
    )
    return Html(f'<div class="choice" role="radiogroup" aria-label="{text(label)}">{items}</div>')


def picture_button(name: str) -> Html:
    """A button that saves the plot after it as a picture of this name."""
    return Html(f'<button type="button" class="png" data-name="{text(name)}" title="Save as a picture">PNG</button>')


def section(name: str, title: str, *parts: Html) -> Html:
    """A part of the page under its own heading; ``name`` is what links to it say."""
    return Html(f'<section id="{text(name)}"><h2>{text(title)}</h2>{"".join(parts)}</section>')


def page(title: str, intro: str, sections: Mapping[str, Html], plots: Plots | None) -> str:
    """The whole page. ``sections`` are links' texts, each with its section (see ``section``), in order.

    It has the plotting library that its ``plots`` need, and none if there are none. A content security policy forbids
    the page to load anything, whatever the text in it says.
    """
    plots = plots or Plots()
    style, script = _file("page.css") + plots.style, _file("page.js")
    drawing = "".join(f"<script>{part}</script>\n" for part in plots.scripts())
    names = [(shown, _name(part)) for shown, part in sections.items()]
    links = "".join(f'<a href="#{name}">{text(shown)}</a>' for shown, name in names)
    policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
    return "\n".join(
        (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta name="color-scheme" content="light dark">\n<title>{text(title)} · emphatic</title>',
            f"<style>\n{style}</style>\n</head>\n<body>",
            f'<header><p class="kicker">emphatic</p><h1>{text(title)}</h1><p class="intro">{text(intro)}</p>',
            f"{f'<nav>{links}</nav>' if len(names) > 1 else ''}</header>\n<main>",
            *sections.values(),
            f'</main>\n<script type="application/json" id="data">{plots.data()}</script>',
            f"{drawing}<script>\n{script}</script>\n</body>\n</html>\n",
        )
    )


def _name(part: Html) -> str:
    return part.split('id="', 1)[1].split('"', 1)[0]


def paragraphs(*lines: str, kind: str = "note") -> Html:
    """Short paragraphs of explanation."""
    return Html("".join(f'<p class="{kind}">{text(line)}</p>' for line in lines))


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
    """A plot under its title, with what its lines mean (``keys``), and a caption below.

    ``options`` are the words for the views of the plot, where it has several to choose from.
    """

    title: str
    plot: Plot
    caption: str = ""
    keys: Sequence[Key] = ()
    options: Mapping[str, str] = field(default_factory=dict)


def legend(entries: Sequence[Key | tuple[str, str]]) -> Html:
    """What the lines mean: an ink and its words each; a click hides or shows the lines of that ink."""
    keys = ""
    for ink, words, shade, key, symbol in (Key(*entry) for entry in entries):
        kind = ink if symbol == "line" else f"{ink} {symbol}"
        place = "" if shade is None else f' style="--shade:{100 * shade:.0f}%"'
        keys += f'<button type="button" class="key" data-ink="{text(key or ink)}" aria-pressed="true">'
        keys += f'<i class="{text(kind)}"{place}></i>{text(words)}</button>'
    return Html(f'<div class="legend">{keys}</div>')


def terms(meanings: Mapping[str, str]) -> Html:
    """Words and what they mean."""
    items = "".join(f"<div><dt>{text(word)}</dt><dd>{text(meaning)}</dd></div>" for word, meaning in meanings.items())
    return Html(f'<dl class="terms">{items}</dl>')
