"""Features against a second, plain text of what each part is; cutting into blocks, saving, counting, refusing."""

from __future__ import annotations

import itertools
import json
import math
import re
import runpy
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import emphatic
from emphatic import features as f
from emphatic.features import Part

DOCS = Path(__file__).parents[2] / "docs"
NAMES = ("S1", "S2", "S3")


def log(T: int = 200, seed: int = 0) -> np.ndarray:
    """CheckedReadings that wander, with gaps; the third is skewed and mostly 0."""
    rng = np.random.default_rng(seed)
    values = np.cumsum(rng.normal(size=(T, 3)), axis=0)
    values[:, 2] = np.where(rng.random(T) < 0.8, 0.0, rng.exponential(size=T))
    values[rng.random((T, 3)) < 0.1] = np.nan
    return values


def dense(phi: emphatic.Active, n: int) -> np.ndarray:
    """As rows of n numbers, if no index is repeated."""
    checked = emphatic.Active(phi.indices, phi.values)
    assert checked.top == phi.top < n
    np.testing.assert_array_equal(phi.indices >= 0, phi.values > 0)
    return checked.rows.dense(n, np.float64)


def made(part: Part, values: np.ndarray, warm: np.ndarray | None = None, **more: Any) -> tuple[f.Features, np.ndarray]:
    maker = f.Features([part]).warm_up(values if warm is None else warm, names=NAMES[: values.shape[1]], **more)
    return maker, dense(maker(values, **more), maker.n)


# ------------------------------------------------------------------ a second text, one row and one number at a time


def traced(x: np.ndarray, steps: float) -> tuple[list[float], list[float]]:
    """(traces, changes) of one signal."""
    z = math.nan
    traces, changes = [], []
    for now in x.tolist():
        changes.append(now - z)
        if not math.isnan(now):
            z = now if math.isnan(z) else z + (now - z) * (1 / steps)
        traces.append(z)
    return traces, changes


def soft(x: float, centres: list[float]) -> list[float]:
    """The height of each triangle at x."""
    if math.isnan(x):
        return [0.0] * len(centres)
    x = min(max(x, centres[0]), centres[-1])
    out = []
    for k, centre in enumerate(centres):
        other = centres[k - 1] if x < centre and k else centres[min(k + 1, len(centres) - 1)]
        out.append(1.0 if x == centre else max(0.0, 1 - (x - centre) / (other - centre) if other != centre else 0.0))
    return out


def tile(x: list[float], low: float, high: float, tiles: int, tilings: int) -> list[tuple[int, ...]]:
    """(tiling, coordinates …) of the active tiles."""
    out = []
    for k in range(tilings):
        at: list[int] = []
        for d, one in enumerate(x):
            unit = min(max((one - low) / (high - low), 0.0), 1.0) * tiles
            fine = min(math.floor(unit * tilings), tiles * tilings - 1)
            at.append(math.floor((fine + k * (2 * d + 1) % tilings) / tilings))
        out.append((k, *at))
    return out


def hashed(key: tuple[int, ...], size: int) -> int:
    def mix(h: int) -> int:
        for _ in range(2):
            h = ((h ^ h >> 16) * 73244475) % 2**32
        return h ^ h >> 16

    h = mix(key[0])
    for part in key[1:]:
        h = mix((h * 31 + part + 1) % 2**32)
    return h % size


# ------------------------------------------------------------------ each part


def test_bias() -> None:
    maker, phi = made(f.Bias(), log())
    assert maker.n == maker.active == maker.norm == 1
    assert (phi == 1).all()


@pytest.mark.parametrize("of", ["*", f.Trace("*", steps=[1, 5]), f.Change("*"), f.Change(["S3", "S1"], steps=4.5)])
def test_soft_bins(of: Any) -> None:
    values = log()
    maker, phi = made(f.SoftBins(of, bins=5, range=(-2, 2), spacing="equal"), values)
    centres = [-2.0, -1.0, 0.0, 1.0, 2.0]
    order = [2, 0] if of == f.Change(["S3", "S1"], steps=4.5) else [0, 1, 2]
    columns: list[Any] = [values[:, c].tolist() for c in order]
    if isinstance(of, f.Trace):
        columns = [traced(values[:, c], steps)[0] for c in order for steps in (1, 5)]
    elif isinstance(of, f.Change):
        columns = [traced(values[:, c], float(of.steps))[1] for c in order]  # type: ignore[arg-type]
    expected = [[w for x in row for w in soft(x, centres)] for row in zip(*columns, strict=True)]
    np.testing.assert_allclose(phi, expected, rtol=0, atol=1e-15)
    known = ~np.isnan(np.array(columns).T)
    np.testing.assert_allclose(phi.sum(1), known.sum(1), rtol=1e-14)
    if not isinstance(of, f.Trace):
        assert not known.all()


def test_a_trace_of_one_step_is_the_reading_and_a_change_of_one_the_difference() -> None:
    values = np.random.default_rng(1).normal(size=(50, 1)) * 10.0 ** np.arange(-25, 25)[:, None]
    parts = [f.SoftBins("*", bins=9), f.SoftBins(f.Trace("*", steps=1), bins=9)]
    maker = f.Features(parts).warm_up(values, names=["S1"])
    phi = dense(maker(values), maker.n)
    np.testing.assert_array_equal(phi[:, :9], phi[:, 9:])
    over: Any = {"bins": 9, "range": (-5, 5), "spacing": "equal"}
    change = f.Features([f.SoftBins(f.Change("*"), **over)]).warm_up(values, names=["S1"])
    plain = f.Features([f.SoftBins("*", **over)]).warm_up(values, names=["S1"])
    np.testing.assert_array_equal(dense(change(values), 9)[1:], dense(plain(np.diff(values, axis=0)), 9))


def test_ranges_from_a_warm_up() -> None:
    values = np.linspace(0, 1000, 10_001)[:, None]
    maker, _ = made(f.SoftBins("*", bins=3, spacing="equal"), values)
    low, middle, high = (float(name.split("≈")[1]) for name in maker.names())
    assert (low, middle, high) == pytest.approx((5 - 49.5, 500, 995 + 49.5))  # the middle 99%, 5% wider at either end


def test_quantile_spacing_puts_centres_half_way_to_where_the_readings_are() -> None:
    values = np.random.default_rng(0).exponential(size=(5000, 1))
    maker, _ = made(f.SoftBins("*", bins=5, range=(0, 4)), values)
    centres = [float(name.split("≈")[1]) for name in maker.names()]
    quartiles = [float(q) for q in np.quantile(np.minimum(values, 4), [0.25, 0.5, 0.75])]
    assert centres == pytest.approx(
        [0, (1 + quartiles[0]) / 2, (2 + quartiles[1]) / 2, (3 + quartiles[2]) / 2, 4], 1e-5
    )
    dull = np.zeros((1000, 1))
    dull[::300] = 1.0  # rarer than the share left out: the range must still hold it
    maker, phi = made(f.SoftBins("*", bins=20), dull)
    assert maker.clipped == {"S1": (0, 0)}
    assert (phi[0] != phi[1]).any()


@pytest.mark.parametrize("constant", [0.0, 7.5, -1e300, 1e-300, math.nan])
def test_a_constant_column_has_a_range_too(constant: float) -> None:
    maker, phi = made(f.SoftBins("*", bins=4), np.full((10, 1), constant))
    np.testing.assert_allclose(phi.sum(1), 0 if math.isnan(constant) else 1)
    assert np.isfinite(dense(maker(np.array([[constant + 1], [math.inf], [-1e308]])), 4)).all()


def test_clipping_counts() -> None:
    part = f.SoftBins(["S1", "S2"], bins=3, range=(0, 1))
    values = np.array([[-1, 0, 0], [0, 1, 0], [2, 3, 9], [math.nan, 4, 9], [0.5, math.inf, 9]])
    maker, phi = made(part, values)
    assert maker.clipped == {"S1": (1, 1), "S2": (0, 2)}
    np.testing.assert_array_equal(phi[2], [0, 0, 1, 0, 0, 1])
    assert not phi[3, :3].any()
    assert not phi[4, 3:].any()  # infinity is missing


@pytest.mark.parametrize("tilings", [1, 4, 8])
def test_tiles_of_one_signal_and_of_a_pair(tilings: int) -> None:
    values = np.random.default_rng(2).uniform(-0.2, 1.2, size=(300, 2))
    values[7, 1] = math.nan
    more: Any = {"range": (0, 1), "spacing": "equal", "tilings": tilings}
    for part, columns, tiles in (
        (f.Tiles("*", tiles=4, **more), [[0], [1]], 4),
        (f.Tiles(["S2", "S1"], tiles=5, **more), [[1, 0]], 5),
    ):
        maker, phi = made(part, values)
        side = tiles + (tilings > 1)
        expected = np.zeros_like(phi)
        offset = 0
        for group in columns:
            for t, row in enumerate(values[:, group].tolist()):
                if any(map(math.isnan, row)):
                    continue
                for k, *at in tile(row, 0, 1, tiles, tilings):
                    place = k
                    for one in at:
                        place = place * side + one
                    expected[t, offset + place] = tilings**-0.5
            offset += tilings * side ** len(group)
        assert maker.n == offset
        assert maker.active == tilings * len(columns)
        np.testing.assert_array_equal(phi, expected)
        each = phi.reshape(300, -1, side ** len(columns[0]))
        active = (each > 0).sum(2)
        assert (active == np.repeat(~np.isnan(values[:, columns]).any(2), tilings, axis=1)).all()


def test_hashing_is_a_fixed_function() -> None:
    assert [hashed((k, 3, 5), 1000) for k in range(4)] == [787, 755, 485, 301]  # pinned: saved models depend on it
    values = np.random.default_rng(3).uniform(size=(200, 2))
    maker, phi = made(f.Tiles(["S1", "S2"], tiles=6, tilings=16, hashed=40, range=(0, 1), spacing="equal"), values)
    assert (maker.n, maker.active) == (40, 16)
    expected = np.zeros_like(phi)
    for t, row in enumerate(values.tolist()):
        for key in tile(row, 0, 1, 6, 16):
            expected[t, hashed(key, 40)] += 0.25
    np.testing.assert_array_equal(phi, expected)
    assert (phi > 0.25).any()  # some fell together, and were added
    counts = (phi > 0).sum(0)
    assert counts.min() > 0.4 * counts.mean()


def test_time_goes_round() -> None:
    monday = np.datetime64("2007-02-05T00:00")
    time = monday + np.array([0, 30, 23 * 60 + 30, 24 * 60, 6 * 24 * 60 + 23 * 60 + 59]).astype("m8[m]")
    values = np.zeros((5, 1))
    maker, phi = made(f.TimeOfDay(), values, time=time)
    assert maker.names()[13] == "time of day 13:00"
    np.testing.assert_allclose(phi[0], np.eye(24)[0])
    np.testing.assert_allclose(phi[1], (np.eye(24)[0] + np.eye(24)[1]) / 2)
    np.testing.assert_allclose(phi[2], (np.eye(24)[23] + np.eye(24)[0]) / 2)
    np.testing.assert_allclose(phi[3], phi[0])
    maker, phi = made(f.TimeOfWeek(bins=7), values, time=time)
    assert maker.names()[:2] == ["time of week Mon 00:00", "time of week Tue 00:00"]
    np.testing.assert_allclose(phi[3], np.eye(7)[1])
    np.testing.assert_allclose(phi[4, [6, 0]], [1 / 1440, 1 - 1 / 1440], rtol=1e-6)
    seconds = time.astype("M8[s]").astype(np.int64)
    np.testing.assert_array_equal(made(f.TimeOfWeek(bins=7), values, time=seconds)[1], phi)
    time[2] = np.datetime64("NaT")
    assert made(f.TimeOfDay(), values, time=time)[1].sum(1).tolist() == pytest.approx([1, 1, 0, 1, 1])
    assert made(f.TimeOfDay(), np.zeros((1, 1)), time=[-1e-20])[1].tolist() == [np.eye(24)[0].tolist()]


def test_one_hot() -> None:
    labels = np.array(["left", "right", None, "left", "stop"], object)
    values = np.array([[2.0, 0, 0], [1, 0, 0], [2, 0, 0], [math.nan, 0, 0], [7, 0, 0]])
    part = f.OneHot("turn")
    maker = f.Features([part, f.OneHot("S1", categories=[1, 2])]).warm_up(
        values[:4], names=NAMES, labels={"turn": labels[:4]}
    )
    assert maker.names() == ["turn = left", "turn = right", "turn = other", "S1 = 1", "S1 = 2", "S1 = other"]
    phi = maker(values, labels={"turn": labels})
    expected = [[1, 0, 0, 0, 1, 0], [0, 1, 0, 1, 0, 0], [0, 0, 0, 0, 1, 0], [1, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 1]]
    np.testing.assert_array_equal(dense(phi, 6), expected)
    assert maker(values[0], labels={"turn": "stop"}).indices.tolist() == [2, 4]


def test_missing() -> None:
    values = log()
    maker, phi = made(f.Missing(["S3", "S1"]), values)
    np.testing.assert_array_equal(phi, np.isnan(values[:, [2, 0]]))
    assert maker.names() == ["S3 missing", "S1 missing"]
    held = np.nan_to_num(values)
    np.testing.assert_array_equal(dense(maker(held, missing=np.isnan(values)), 2), phi)
    assert not dense(maker(held), 2).any()


# ------------------------------------------------------------------ all together

ALL: list[Part] = [
    f.Bias(),
    f.SoftBins("*", bins=7),
    f.SoftBins(["S1", f.Trace("*", steps=[3, 30])], bins=5, spacing="equal"),
    f.SoftBins(f.Change("*"), bins=4),
    f.Tiles(f.Change("*", steps=9)),
    f.Tiles(["S1", f.Trace("S2", steps=5)], tiles=3, hashed=64),
    f.TimeOfDay(bins=5),
    f.TimeOfWeek(),
    f.OneHot("turn"),
    f.Missing("*"),
]


def everything(T: int = 200) -> tuple[f.Features, np.ndarray, Callable[[slice], dict[str, Any]]]:
    values, time, turn = log(T), np.arange(T) * 3600.0, np.array(["a", "b", "c"])[np.arange(T) % 3]
    turn[:100] = "a"

    def more(rows: slice) -> dict[str, Any]:
        return {"time": time[rows], "labels": {"turn": turn[rows]}}

    maker = f.Features(ALL).warm_up(values[:150], names=NAMES, **more(slice(150)))
    return maker, values, more


def whole(phi: list[emphatic.Active]) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate([p.indices for p in phi]), np.concatenate([p.values for p in phi])


def test_the_bits_do_not_depend_on_blocks_nor_on_saves_between_them() -> None:
    maker, values, more = everything()
    at_once = maker(values, **more(slice(None)))
    assert at_once.shape == (200, maker.active)
    dense(at_once, maker.n)
    for cuts in ([0, 1, 2, 77, 77, 200], list(range(201))):
        other, _, _ = everything()
        rows, parts = [slice(a, b) for a, b in itertools.pairwise(cuts)], []
        for r in rows:
            header, arrays = other.save()
            parts.append(other(values[r], **more(r)))
            other = f.Features.load(json.loads(json.dumps(header, allow_nan=False)), arrays)
            assert r.stop < 200 or other.clipped != maker.clipped  # what was saved does not move on
            np.testing.assert_array_equal(other(values[r], **more(r)).values, parts[-1].values)
        index, value = whole(parts)
        np.testing.assert_array_equal(index, at_once.indices)
        np.testing.assert_array_equal(value, at_once.values)
        assert (other.clipped, other.names(), other.norm) == (maker.clipped, maker.names(), maker.norm)
        assert repr(other) == repr(maker)
    single, _, _ = everything()
    for t in range(20):
        phi = single(values[t], time=t * 3600.0, labels={"turn": "a"})
        np.testing.assert_array_equal(phi.indices, at_once.indices[t])
        np.testing.assert_array_equal(phi.values, at_once.values[t])


def test_the_norm_is_the_mean_square_of_the_warm_up() -> None:
    maker, values, more = everything()
    phi = dense(maker(values[:150], **more(slice(150))), maker.n)
    assert maker.norm == pytest.approx((phi**2).sum(1).mean())
    fresh = f.Features([f.Bias(), f.SoftBins("*", range=(0, 1)), f.Missing("*")]).warm_up(np.empty((0, 3)), names=NAMES)
    assert fresh.norm == 4


@pytest.mark.parametrize(
    "spoil",
    [
        lambda h, a: h.pop("signals"),
        lambda h, a: h.update(parts=[{"kind": "nonsense"}]),
        lambda h, a: h.update(categories={}),
        lambda h, a: h.update(categories={"turn": [["a"]]}),
        lambda h, a: h.update(norm="x"),
        lambda h, a: a.pop("z"),
        lambda h, a: a.update(knots=a["knots"][:-1]),
        lambda h, a: a.update(knots=a["knots"][::-1].copy()),
        lambda h, a: a.update(knots=a["knots"].astype(np.float32)),
        lambda h, a: a.update(clipped=a["clipped"].T),
    ],
)
def test_a_damaged_save_is_refused(spoil: Callable[[dict[str, Any], dict[str, Any]], Any]) -> None:
    header, arrays = everything()[0].save()
    spoil(header, arrays)
    with pytest.raises(emphatic.CheckpointError, match="not valid saved features"):
        f.Features.load(header, arrays)


def test_a_cut_starts_traces_and_changes_anew() -> None:
    maker, values, more = everything()
    maker(values[:90], **more(slice(90)))
    maker.cut()
    rest = slice(90, None)
    fresh, _, _ = everything()
    a, b = maker(values[rest], **more(rest)), fresh(values[rest], **more(rest))
    np.testing.assert_array_equal(a.values, b.values)
    np.testing.assert_array_equal(a.indices, b.indices)


def test_names_are_those_of_the_features() -> None:
    maker, values, more = everything()
    names = maker.names()
    assert len(names) == maker.n
    assert len(set(names)) >= maker.n - 2  # two parts of S1 share the ends of its range
    only = f.Features(ALL[1:2]).warm_up(values[:150], names=NAMES)
    phi = dense(only(values), only.n)
    centres = np.array([float(name.split("≈")[1]) for name in only.names() if name.startswith("S2")])
    inside = (values[:, 1] > centres[0]) & (values[:, 1] < centres[-1])
    np.testing.assert_allclose(
        phi[inside, 7:14] @ centres, values[inside, 1], rtol=1e-4
    )  # interpolation, names rounded


def test_written_as_toml_and_as_python() -> None:
    maker = f.Features(ALL)
    again = f.Features.from_config(json.loads(json.dumps(maker.to_config())))
    assert again.parts == maker.parts
    assert eval(repr(maker), vars(f)).parts == maker.parts
    text = """
    [[features]]
    kind = "bias"
    [[features]]
    kind = "soft_bins"
    of = { trace = "*", steps = [4, 16] }
    bins = 12
    [[features]]
    kind = "tiles"
    of = ["S1", { change = "S2" }]
    hashed = 4096
    range = [0, 1.5]
    """
    steps: Any = np.array([4, 16])
    bins: Any = np.int64(12)
    parts = [
        f.Bias(),
        f.SoftBins(f.Trace("*", steps=steps), bins=bins),
        f.Tiles(["S1", f.Change("S2")], hashed=4096, range=(0, 1.5)),
    ]
    assert f.Features.from_config(tomllib.loads(text)["features"]).parts == tuple(parts)


@given(
    tilings=st.integers(1, 20),
    tiles=st.integers(1, 9),
    size=st.integers(1, 50),
    values=st.lists(st.tuples(st.floats(), st.floats(), st.floats()), min_size=1, max_size=20),
)
def test_no_index_is_repeated_and_nothing_is_nan(
    tilings: int, tiles: int, size: int, values: list[tuple[float, ...]]
) -> None:
    tiling: Any = {"tiles": tiles, "tilings": tilings}
    parts = [
        f.Tiles(list(NAMES), hashed=size, **tiling),
        f.Tiles("*", **tiling),
        f.SoftBins(f.Trace("*", steps=3)),
        f.SoftBins(f.Change("*")),
    ]
    rows = np.array(values)
    maker = f.Features(parts).warm_up(rows, names=NAMES)
    phi = maker(rows)
    assert np.isfinite(phi.values).all()
    for part in (slice(0, tilings), slice(tilings, None)):
        assert (phi.values[:, part] >= 0).all()
    dense(phi, maker.n)
    joint = phi.values[:, :tilings].sum(1)
    np.testing.assert_allclose(joint, np.where(np.isfinite(rows).all(1), tilings**0.5, 0))


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: f.Features([]), "'parts' parameter of Features"),
        (lambda: f.Features(f.Bias()), "'parts' parameter of Features"),  # type: ignore[arg-type]
        (lambda: f.Features([f.OneHot("a"), f.OneHot("a")]), "one OneHot at most"),
        (lambda: f.SoftBins("*", bins=1), "'bins' parameter of SoftBins must be 2 or more"),
        (lambda: f.SoftBins("*", range=(1, 1)), "'range' parameter of SoftBins"),
        (lambda: f.SoftBins("*", range=(0, math.inf)), "'range' parameter of SoftBins"),
        (lambda: f.SoftBins("*", spacing="odd"), "'spacing' parameter of SoftBins"),
        (lambda: f.SoftBins([]), "'of' parameter of SoftBins"),
        (lambda: f.SoftBins(3), "'of' parameter of SoftBins"),  # type: ignore[arg-type]
        (lambda: f.Trace("*", steps=0.5), "'steps' parameter of Trace"),
        (lambda: f.Trace("*", steps=[]), "'steps' parameter of Trace"),
        (lambda: f.Change("*", steps="1"), "'steps' parameter of Change"),  # type: ignore[arg-type]
        (lambda: f.Tiles(["S1", "*"]), "'of' parameter of Tiles must name one signal"),
        (lambda: f.Tiles(["S1", f.Trace("S2", steps=[1, 2])]), "'of' parameter of Tiles must name one signal"),
        (lambda: f.Tiles("*", tilings=0), "'tilings' parameter of Tiles"),
        (lambda: f.Tiles("*", hashed=1 << 32), "'hashed' parameter of Tiles"),
        (lambda: f.TimeOfDay(bins=1), "'bins' parameter of TimeOfDay"),
        (lambda: f.OneHot(["a"]), "'of' parameter of OneHot"),  # type: ignore[arg-type]
        (lambda: f.OneHot("a", categories=["x", "x"]), "'categories' parameter of OneHot"),
        (lambda: f.Features.from_config({"kind": "bias"}), "'tables' parameter"),  # type: ignore[arg-type]
        (lambda: f.Features.from_config([{"kind": "bios"}]), "'kind' parameter of a feature must be one of bias, "),
        (lambda: f.Features.from_config([{"kind": "tiles"}]), "'of' parameter of tiles is required"),
        (lambda: f.Features.from_config([{"kind": "bias", "x": 1}]), "'x' parameter of bias is not one of"),
        (lambda: f.Features.from_config([{"kind": "tiles", "of": {"tr": 1}}]), "'of' parameter of a feature"),
    ],
)
def test_bad_parts_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


@pytest.mark.parametrize(
    ("part", "call", "message"),
    [
        (f.Bias(), {"values": [1.0, 2.0]}, "'values' parameter of warm_up must have shape (B, 3)"),
        (f.Bias(), {"names": ["a", "a", "b"]}, "'names' parameter of warm_up"),
        (f.Bias(), {"names": "abc"}, "'names' parameter of warm_up"),
        (f.SoftBins("S9"), {}, "'S9' too"),
        (f.SoftBins("*"), {"values": np.empty((0, 3))}, "have rows, to find a range"),
        (f.SoftBins("*", range=(1e9, 1e9 + 1e-6)), {}, "'range' parameter of a part must be wide enough"),
        (f.Tiles(list(NAMES), tiles=1 << 16), {}, "fewer than 2**48 features"),
        (f.TimeOfDay(), {}, "The 'time' parameter is required"),
        (f.TimeOfDay(), {"time": np.zeros(3)}, "'time' parameter of Features must be 2 times"),
        (f.TimeOfDay(), {"time": ["a", "b"]}, "'time' parameter of Features must be 2 times"),
        (f.OneHot("turn"), {}, "'labels' parameter of warm_up must have 'turn'"),
        (f.OneHot("turn"), {"labels": {"turn": ["a"]}}, "one label per row, 2 in all"),
        (f.OneHot("turn"), {"labels": {"turn": [None, None]}}, "'labels' parameter of warm_up"),
    ],
)
def test_bad_warm_ups_are_refused_and_change_nothing(part: Part, call: dict[str, Any], message: str) -> None:
    maker = f.Features([part])
    with pytest.raises(ValueError, match=re.escape(message)):
        maker.warm_up(**{"values": np.ones((2, 3)), "names": NAMES, **call})
    for use in (lambda: maker.n, maker.names, maker.cut, maker.save, lambda: maker.norm, lambda: maker([1.0, 2, 3])):
        with pytest.raises(RuntimeError, match="warmed up before use"):
            use()


def test_bad_rows_are_refused_and_change_nothing() -> None:
    maker, values, more = everything()
    before = maker.save()[1]
    good = {"values": values[:5], **more(slice(5))}
    for bad, message in (
        ({"values": values[:5, :2]}, "'values' parameter of Features must have shape (B, 3)"),
        ({"values": values[:5].astype(str)}, "'values' parameter of Features must be real numbers"),
        ({"time": None}, "The 'time' parameter is required"),
        ({"labels": None}, "'labels' parameter of Features must have 'turn'"),
        ({"missing": np.zeros((5, 3))}, "'missing' parameter of Features"),
        ({"missing": np.zeros((4, 3), bool)}, "'missing' parameter of Features"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            maker(**{**good, **bad})
    for name, array in maker.save()[1].items():
        np.testing.assert_array_equal(array, before[name])


# ------------------------------------------------------------------ the page


def test_the_pictures_are_those_that_the_script_draws(tmp_path: Path) -> None:
    drawn = runpy.run_path(str(DOCS / "make_pictures.py"))
    drawn["main"].__globals__["FOLDER"] = tmp_path
    drawn["main"]()
    shown = re.findall(r"\(pictures/(.*?)\)", (DOCS / "features.md").read_text(encoding="utf-8"))
    assert sorted(shown) == sorted(path.name for path in tmp_path.iterdir())
    number = r"-?\d+(?:\.\d+)?"
    for name in shown:
        ours, kept = ((folder / name).read_text(encoding="utf-8") for folder in (tmp_path, DOCS / "pictures"))
        assert re.sub(number, "", ours) == re.sub(number, "", kept)
        a, b = ([float(x) for x in re.findall(number, text)] for text in (ours, kept))
        np.testing.assert_allclose(a, b, rtol=0, atol=0.15)  # a pixel's tenth may be rounded otherwise elsewhere


@pytest.mark.parametrize("timed", [False, True])
def test_a_complete_row_by_itself_has_the_features_that_it_has_among_others(timed: bool) -> None:
    """Its codes are always the same, and not looked for: also after a row that is not complete."""
    rng = np.random.default_rng(0)
    values, time = rng.normal(size=(60, 2)), 1.7e9 + 3600.0 * np.arange(60)
    missing = rng.random((60, 2)) < 0.2
    kinds = [f.Bias(), f.SoftBins("*", bins=4), f.Missing("*"), *([f.TimeOfDay()] if timed else [])]
    together, alone = (f.Features(kinds).warm_up(values, names=["a", "b"], time=time) for _ in range(2))
    phi = together(values, time=time, missing=missing)
    for t in range(60):
        row = alone(values[t : t + 1], time=time[t : t + 1], missing=missing[t : t + 1])
        assert (row.indices == phi.indices[t]).all()
        assert (row.values == phi.values[t]).all()
    assert 0 < missing.any(axis=1).sum() < 60


def test_features_are_ready_where_all_is_given() -> None:
    """The signals are those that the parts name, until ``warm_up`` tells of others."""
    parts = [f.Bias(), f.Tiles(["x", "y"], range=[(0, 1), (0, 2)], tiles=4), f.SoftBins("z", range=(0, 5))]
    ready, told = f.Features(parts), f.Features(parts)
    told.warm_up(np.empty((0, 3)), names=["x", "y", "z"])
    assert (ready.n, ready.signals, ready.named) == (told.n, ("x", "y", "z"), ("x", "y", "z"))
    row = [0.3, 1.7, 2.2]
    assert repr(ready(row)) == repr(told(row))
    assert [maker.is_warm for maker in (ready, told)] == [False, True]
    ready.warm_up(np.empty((0, 4)), names=["t", "z", "y", "x"])
    assert repr(ready([9.0, *row[::-1]])) == repr(told(row))
    assert ready.is_warm
    for part in (f.SoftBins("*", range=(0, 1)), f.Tiles(["x", "y"]), f.Bias(), f.Function(lambda row: 1.0, name="one")):
        with pytest.raises(RuntimeError, match="warmed up before use"):
            f.Features([part])(row)
