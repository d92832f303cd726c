"""Draw the pictures of features.md with the library itself: ``python docs/make_pictures.py``.

The picture of a kind of part or source is drawn by the function of its name.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from emphatic import features as f
from emphatic.features import parts, sources

FOLDER = Path(__file__).parent / "pictures"
INK, GREY, PALE = "#1f2937", "#9aa3b2", "#e7eaf0"
HALF_PAST_TWO = 14.4 * 3600
COLOURS = ("#2563eb", "#ea580c", "#059669", "#9333ea", "#ca8a04", "#db2777", "#0891b2", "#65a30d")


class Picture:
    """A few shapes on white; y grows upwards inside a panel."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.shapes: list[str] = []

    def add(self, tag: str, text: str = "", **attributes: Any) -> None:
        shown = [
            f'{k.replace("_", "-")}="{v:.5g}"' if isinstance(v, float) else f'{k.replace("_", "-")}="{v}"'
            for k, v in attributes.items()
        ]
        self.shapes.append(f"<{tag} {' '.join(shown)}" + (f">{text}</{tag}>" if text else "/>"))

    def text(self, x: float, y: float, text: str, *, size: int = 12, fill: str = INK, anchor: str = "start") -> None:
        self.add("text", text, x=float(x), y=float(y), font_size=size, fill=fill, text_anchor=anchor)

    def line(self, x: Any, y: Any, stroke: str, width: float = 1.6, **more: Any) -> None:
        runs: list[list[str]] = []
        run: list[str] = []
        for a, b in zip(x, y, strict=True):
            if math.isnan(b):
                runs, run = [*runs, run], []
            else:
                run.append(f"{a:.1f},{b:.1f}")
        for points in [*runs, run]:
            if points:
                self.add(
                    "polyline",
                    points=" ".join(points),
                    fill="none",
                    stroke=stroke,
                    stroke_width=width,
                    stroke_linejoin="round",
                    stroke_linecap="round",
                    **more,
                )

    def write(self, name: str) -> None:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'height="{self.height}" font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">'
        )
        back = f'<rect width="{self.width}" height="{self.height}" rx="8" fill="#ffffff"/>'
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / f"{name}.svg").write_text("\n".join([head, back, *self.shapes, "</svg>\n"]), encoding="utf-8")


class Panel:
    """A rectangle of a picture with axes of its own."""

    def __init__(
        self, picture: Picture, box: tuple[int, int, int, int], x: tuple[float, float], y: tuple[float, float]
    ):
        self.picture, self.box, self.range_x, self.range_y = picture, box, x, y

    def at(self, x: Any, y: Any) -> tuple[Any, Any]:
        left, top, width, height = self.box
        (a, b), (c, d) = self.range_x, self.range_y
        return left + (np.asarray(x) - a) / (b - a) * width, top + height - (np.asarray(y) - c) / (d - c) * height

    def line(self, x: Any, y: Any, stroke: str, width: float = 1.6, **more: Any) -> None:
        self.picture.line(*self.at(x, y), stroke, width, **more)

    def dot(self, x: float, y: float, fill: str) -> None:
        a, b = self.at(x, y)
        self.picture.add("circle", cx=float(a), cy=float(b), r=4, fill=fill, stroke="#ffffff", stroke_width=1.2)

    def floor(self) -> None:
        left, top, width, height = self.box
        self.picture.line([left, left + width], [top + height] * 2, GREY, 1.0)

    def title(self, text: str, fill: str = INK) -> None:
        self.picture.text(self.box[0], self.box[1] - 8, text, fill=fill)

    def below(self, text: str) -> None:
        left, top, width, height = self.box
        self.picture.text(left + width / 2, top + height + 18, text, fill=GREY, anchor="middle", size=11)

    def cells(self, values: Any, colours: Any) -> None:
        """Rows of cells, the first row at the top, each row in its colour by how active it is."""
        left, top, width, height = self.box
        rows, columns = values.shape
        for r in range(rows):
            high = height / rows
            self.picture.add("rect", x=left, y=top + r * high + 1, width=width, height=high - 2, fill=PALE, rx=2)
            start = 0
            for c in range(1, columns + 1):
                if c == columns or values[r, c] != values[r, start]:
                    if values[r, start]:
                        self.picture.add(
                            "rect",
                            x=left + start / columns * width,
                            y=top + r * high + 1,
                            width=(c - start) / columns * width,
                            height=high - 2,
                            fill=colours[r % len(colours)],
                            fill_opacity=float(round(values[r, start], 2)),
                        )
                    start = c


def dense(maker: f.Features, values: Any, **more: Any) -> Any:
    return maker(np.asarray(values, float), **more).rows.dense(maker.n, np.float64)


def followed(source: Any, x: Any) -> Any:
    """A trace or change itself: between two centres ±9, soft bins say exactly where it is."""
    maker = f.Features([f.SoftBins(source, bins=2, range=(-9, 9), spacing="equal")]).warm_up(x[:, None], names=["x"])
    phi = dense(maker, x[:, None])
    return np.where(phi.any(axis=1), phi @ [-9.0, 9.0], np.nan)


def signal(T: int) -> Any:
    t = np.arange(T)
    return 2.2 * np.sin(t / 17) + np.sin(t / 5.3 + 1) + 2.5 * ((t // 45) % 2) + 0.35 * np.sin(t * 2.1) * np.sin(t * 0.7)


def bias() -> None:
    picture = Picture(640, 110)
    panel = Panel(picture, (40, 40, 560, 40), (0, 1), (0, 1.1))
    panel.line([0, 1], [1, 1], COLOURS[0], 2.4)
    panel.floor()
    panel.title("bias: always 1")
    panel.below("time")
    picture.write("bias")


def soft_bins() -> None:
    picture = Picture(640, 250)
    readings = np.quantile(np.random.default_rng(0).exponential(size=4000), (np.arange(4000) + 0.5) / 4000)[:, None]
    readings = np.minimum(readings, 4.0)
    sweep = np.linspace(0, 4, 401)
    for left, spacing in ((40, "equal"), (350, "quantile")):
        maker = f.Features([f.SoftBins("*", bins=8, range=(0, 4), spacing=spacing)]).warm_up(readings, names=["x"])
        panel = Panel(picture, (left, 40, 250, 110), (0, 4), (0, 1.08))
        curves = dense(maker, sweep[:, None])
        for i in range(maker.n):
            panel.line(sweep, np.where(curves[:, i] > 0, curves[:, i], np.nan), COLOURS[i], 1.8)
        now = 0.62
        panel.line([now, now], [0, 1.08], INK, 1.0, stroke_dasharray="3 3")
        for i, height in enumerate(dense(maker, [[now]])[0]):
            if height:
                panel.dot(now, height, COLOURS[i])
        panel.floor()
        panel.title(f'spacing="{spacing}"')
        counts, edges = np.histogram(readings, 40, (0, 4))
        below = Panel(picture, (left, 160, 250, 50), (0, 4), (0, 400))
        for count, a, b in zip(counts, edges[:-1], edges[1:], strict=True):
            (x0, y0), (x1, _) = below.at(a, min(count, 400)), below.at(b, 0)
            picture.add("rect", x=float(x0), y=float(y0), width=float(x1 - x0 - 1), height=float(210 - y0), fill=PALE)
        below.floor()
        below.below("value, and how often the warm-up saw it")
    picture.write("soft_bins")


def trace() -> None:
    picture = Picture(640, 230)
    x, t = signal(180), np.arange(180)
    panel = Panel(picture, (40, 40, 560, 160), (0, 179), (-3.5, 6.2))
    panel.line(t, x, GREY, 1.4)
    picture.text(40, 28, "signal", fill=GREY)
    for k, steps in enumerate((4, 16, 64)):
        panel.line(t, followed(f.Trace("x", steps=steps), x), COLOURS[k], 2.0)
        picture.text(110 + 130 * k, 28, f"trace, steps={steps}", fill=COLOURS[k])
    panel.floor()
    panel.below("time, in steps")
    picture.write("trace")


def change() -> None:
    picture = Picture(640, 290)
    x, t = signal(180), np.arange(180)
    panel = Panel(picture, (40, 34, 560, 90), (0, 179), (-3.5, 6.2))
    panel.line(t, x, GREY, 1.6)
    panel.title("signal", GREY)
    for k, steps in enumerate((1, 16)):
        panel = Panel(picture, (40, 152 + 60 * k, 560, 44), (0, 179), (-4.5, 4.5))
        panel.line([0, 179], [0, 0], PALE, 1.0)
        panel.line(t, followed(f.Change("x", steps=steps), x), COLOURS[k], 1.8)
        panel.title(f"change, steps={steps}", COLOURS[k])
    panel.below("time, in steps")
    picture.write("change")


def tiles() -> None:
    picture = Picture(640, 310)
    count, tilings, here = 3, 8, (0.44, 0.56)
    part = f.Tiles(["x", "y"], tiles=count, tilings=tilings, range=(0, 1), spacing="equal")
    maker = f.Features([part]).warm_up(np.empty((0, 2)), names=["x", "y"])
    at, like = (Panel(picture, (left, 50, 210, 210), (0, 1), (0, 1)) for left in (55, 365))
    for i in range(1, count):
        at.line([i / count] * 2, [0, 1], PALE)
        at.line([0, 1], [i / count] * 2, PALE)
    cells = count * tilings
    centres = (np.arange(cells) + 0.5) / cells
    grid = np.stack(np.meshgrid(centres, centres), -1).reshape(-1, 2)
    phi, phi_here = dense(maker, grid), dense(maker, [here])[0]
    for k, tile in enumerate(np.flatnonzero(phi_here)):
        (a, c), (b, d) = grid[phi[:, tile] > 0].min(0) - 0.5 / cells, grid[phi[:, tile] > 0].max(0) + 0.5 / cells
        at.line([a, b, b, a, a], [c, c, d, d, c], COLOURS[k], 2.0)
    shared = (phi @ phi_here).reshape(cells, cells)
    for (r, c), value in np.ndenumerate(shared):
        if value > 0:
            x, y = like.at(c / cells, (r + 1) / cells)
            side = 210 / cells
            shade: dict[str, Any] = {
                "fill": COLOURS[0],
                "fill_opacity": float(round(value * 0.85, 2)),
                "shape_rendering": "crispEdges",
            }
            picture.add("rect", x=float(x), y=float(y), width=side, height=side, **shade)
    for panel in (at, like):
        picture.add("rect", x=panel.box[0], y=50, width=210, height=210, fill="none", stroke=GREY)
        panel.dot(*here, INK)
    at.title("8 tilings, one tile active in each")
    at.below("tiling k is displaced by k·(1, 3)/8 of a tile")
    like.title("what is learned here reaches so far")
    like.below("φ(x, y) · φ(here): the share of tiles in common")
    picture.write("tiles")


def ring(name: str, part: Any, seconds: float, labels: list[str], title: str) -> None:
    picture = Picture(640, 290)
    maker = f.Features([part]).warm_up(np.empty((0, 1)), names=["x"], time=np.empty(0))
    values = dense(maker, [[0.0]], time=[seconds])[0]
    cx, cy, inner, outer, n = 320.0, 155.0, 62.0, 92.0, maker.n

    def on(radius: float, turn: float) -> tuple[float, float]:
        return cx + radius * math.sin(2 * math.pi * turn), cy - radius * math.cos(2 * math.pi * turn)

    for i, value in enumerate(values):
        a, b = (i - 0.46) / n, (i + 0.46) / n
        (x0, y0), (x1, y1), (x2, y2), (x3, y3) = on(inner, a), on(outer, a), on(outer, b), on(inner, b)
        out, back = f"A{outer} {outer} 0 0 1 {x2:.1f} {y2:.1f}", f"A{inner} {inner} 0 0 0 {x0:.1f} {y0:.1f}"
        path = f"M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}{out}L{x3:.1f} {y3:.1f}{back}Z"
        picture.add("path", d=path, fill=PALE)
        if value:
            picture.add("path", d=path, fill=COLOURS[0], fill_opacity=float(round(value, 2)))
            x, y = on(outer + 24, i / n)
            side = "start" if x > cx + 5 else "end" if x < cx - 5 else "middle"
            picture.text(
                x,
                y + 4,
                f"{maker.names()[i].split(' of ')[1].split(' ', 1)[1]} · {value:.2f}",
                fill=COLOURS[0],
                anchor=side,
            )
    middle = 0.5 if name == "time_of_week" else 0.0  # a day's name stands at its noon
    for k, label in enumerate(labels):
        x, y = on(inner - 14, (k + middle) / len(labels))
        picture.text(x, y + 4, label, size=10, fill=GREY, anchor="middle")
    period = {"time_of_day": 86_400.0, "time_of_week": 7 * 86_400.0}[name]
    x, y = on(inner - 26, (seconds - (4 * 86_400 if name == "time_of_week" else 0)) % period / period)
    picture.line([cx, x], [cy, y], INK, 2.0)
    picture.add("circle", cx=cx, cy=cy, r=3, fill=INK)
    picture.text(320, 28, title, anchor="middle")
    picture.write(name)


def time_of_day() -> None:
    hours = [str(h) for h in range(0, 24, 3)]
    ring("time_of_day", f.TimeOfDay(bins=24), HALF_PAST_TWO, hours, "14:24, between two of 24 bins")


def time_of_week() -> None:
    days = ["Mo", "Tu", "We", "Th", "Fr", "Sa", "Su"]
    wednesday = (4 + 2) * 86_400 + HALF_PAST_TWO
    ring("time_of_week", f.TimeOfWeek(bins=28), wednesday, days, "Wednesday 14:24, between two of 28 bins")


def one_hot() -> None:
    picture = Picture(640, 210)
    turns = ["left"] * 14 + ["ahead"] * 22 + ["right"] * 9 + ["ahead"] * 16 + ["reverse"] * 7 + ["left"] * 12
    maker = f.Features([f.OneHot("turn", categories=["left", "ahead", "right"])]).warm_up(
        np.empty((0, 1)), names=["x"], labels={"turn": []}
    )
    values = dense(maker, np.zeros((len(turns), 1)), labels={"turn": turns}).T
    panel = Panel(picture, (130, 60, 470, 110), (0, 1), (0, 1))
    panel.cells(values, COLOURS)
    for i, name in enumerate(maker.names()):
        picture.text(120, 60 + 110 / 4 * (i + 0.5) + 4, name, fill=COLOURS[i], anchor="end")
    start = 0
    for t in range(1, len(turns) + 1):
        if t == len(turns) or turns[t] != turns[start]:
            x = 130 + (start + t) / 2 / len(turns) * 470
            picture.text(x, 48, turns[start], size=11, fill=GREY, anchor="middle")
            start = t
    picture.text(120, 48, "label", size=11, fill=GREY, anchor="end")
    panel.below("time")
    picture.write("one_hot")


def missing() -> None:
    picture = Picture(640, 190)
    x = signal(180)
    x[40:52] = x[97] = x[98] = x[130:150] = np.nan
    maker = f.Features([f.Missing("*")]).warm_up(x[:, None], names=["x"])
    panel = Panel(picture, (130, 24, 470, 90), (0, 180), (-3.5, 6.2))
    panel.line(np.arange(180) + 0.5, x, GREY, 1.6)
    picture.text(120, 72, "x", fill=GREY, anchor="end")
    strip = Panel(picture, (130, 126, 470, 26), (0, 180), (0, 1))
    strip.cells(dense(maker, x[:, None]).T, COLOURS)
    picture.text(120, 143, "x missing", fill=COLOURS[0], anchor="end")
    strip.below("time")
    picture.write("missing")


def adapting() -> None:
    picture = Picture(640, 240)
    t = np.arange(3000)
    x = 1.4 * np.sin(t / 45) + 0.4 * np.sin(t / 11) + np.interp(t, [0, 1000, 2600, 3000], [0, 0, 5, 5])
    maker = f.Features([f.SoftBins("*", bins=6, spacing="equal")]).warm_up(x[:700, None], names=["x"])
    knots = []
    for reading in x:
        maker([reading])
        knots.append([float(name.split("≈")[1]) for name in maker.names()])
    panel = Panel(picture, (40, 40, 560, 160), (0, 3000), (-3, 8))
    panel.line(t[::10], x[::10], GREY, 1.2)
    for i, centres in enumerate(np.array(knots).T):
        panel.line(t[::25], centres[::25], COLOURS[i], 1.6)
    panel.line([700, 700], [-3, 8], INK, 1.0, stroke_dasharray="3 3")
    picture.text(40, 28, "signal", fill=GREY)
    picture.text(110, 28, "centres of 6 bins", fill=COLOURS[0])
    x0, _ = panel.at(700, 0)
    picture.text(x0 + 6, 54, "the end of the warm-up", size=11)
    panel.floor()
    panel.below("time, in steps")
    picture.write("adapting")


def main() -> None:
    drawn = globals()
    for name in (*parts.KINDS, *sources.KINDS, "adapting"):
        if name in drawn:
            drawn[name]()


if __name__ == "__main__":
    main()
