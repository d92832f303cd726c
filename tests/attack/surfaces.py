"""Everything else that takes input: expressions, features, tables, pipes, files, and rules of all kinds.

Each function makes one attempt from a seed, and raises AssertionError where anything but a documented error comes out.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import emphatic
from emphatic import GVF, CheckpointError, Horde, Learner
from emphatic import features as f
from emphatic.gvfs.evaluator import Expression
from emphatic.nexting.tables import open_table
from emphatic.nexting.tables.pipe import Malformed, Readings
from tests.attack.hostile import FOLDER, NUMBERS, strange_array, strange_value
from tests.attack.own_rules import own_elementwise_rules, own_rules, own_stepsizes

__all__ = ["SURFACES"]

Rng = np.random.Generator

WORDS = [
    "x", "y", "`x y`", "abs", "min", "max", "where", "(", ")", "+", "-", "*", "/", "**", "%", ",", "<", ">=", "==",
    "and", "or", "not", "1", "0.5", "1e308", "x.y", "__import__", "lambda", ":", "[", "]", '"', "`", "'", "é", "if",
    "else", "0", "\n",
]  # fmt: skip


def expressions(rng: Rng) -> None:
    """Any text: a ValueError, or numbers."""
    text = " ".join(rng.choice(WORDS, size=int(rng.integers(1, 12))))
    signals = {"x": rng.normal(size=4), "y": np.array([0.0, np.nan, 1e308, -5e-324]), "x y": np.ones(4)}
    try:
        made = Expression(text)
    except ValueError:
        return
    with np.errstate(all="ignore"):
        try:
            value = np.asarray(made(signals), np.float64)
        except ValueError:
            return
        except KeyError:  # a name that is not one of the signals: what asks the question looks first
            return
    assert value.shape in ((), (4,)), text


def features(rng: Rng) -> None:
    """Parts with any arguments, on rows with any numbers: what is made are features below n, and finite."""
    kinds: list[Callable[[], Any]] = [
        f.Bias,
        lambda: f.SoftBins("x", bins=int(rng.integers(0, 9))),
        lambda: f.SoftBins(["x", "y"], bins=3, range=(strange_value(rng), strange_value(rng))),
        lambda: f.SoftBins(f.Trace("*", steps=strange_value(rng)), bins=4),
        lambda: f.Tiles(["x", "y"], tiles=int(rng.integers(1, 4)), tilings=2, hashed=int(rng.integers(0, 40)) or None),
        lambda: f.OneHot("x", categories=[strange_value(rng), 1.0]),
        lambda: f.Missing("*"),
        lambda: f.TimeOfDay(bins=int(rng.integers(0, 5))),
        lambda: f.Change("x", steps=strange_value(rng)),
    ]
    try:
        parts = [kinds[i]() for i in rng.integers(0, len(kinds), size=int(rng.integers(1, 4)))]
        maker = f.Features(parts)
        rows = rng.normal(size=(6, 2)) * rng.choice([1.0, 1e300, 1e-300])
        maker.warm_up(rows, names=("x", "y"), time=np.arange(6.0) * 3600)
        hostile = rows.copy()
        hostile[rng.random(rows.shape) < 0.3] = NUMBERS[rng.integers(len(NUMBERS))]
        phi = maker(hostile, time=np.arange(6.0) * 3600, missing=~np.isfinite(hostile))
    except (ValueError, TypeError):
        return
    assert len(phi) == 6
    assert phi.indices.max(initial=-1) < maker.n
    assert np.isfinite(phi.values).all()


def damage(rng: Rng, data: bytes) -> bytes:
    """Some bytes changed, removed, doubled or put in."""
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(0, len(out) + 1))
        kind = rng.integers(5)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            del out[at : at + int(rng.integers(1, 20))]
        elif kind == 2:
            out[at:at] = rng.bytes(int(rng.integers(1, 20)))
        elif kind == 3:
            out[at:at] = out[at : at + 30]
        else:
            out = out[:at]
    return bytes(out)


CSV = b"time,x,y\n" + b"".join(b"2024-01-01 00:%02d:00,%d.5,%d\n" % (i, i, i % 3) for i in range(20))
JSON = b"".join(b'{"x": %d, "y": "a", "t": %d}\n' % (i, i) for i in range(20))
TOKENS = [
    b'"', b"\n", b"\r", b",", b";", b"\t", b"\0", b"\xff", b"NaN", b"1e999", b"{", b"}", b"\xef\xbb\xbf", b"%s", b"#",
    b"'",
]  # fmt: skip


def table_bytes(rng: Rng) -> bytes:
    data = damage(rng, [CSV, JSON][rng.integers(2)])
    at = int(rng.integers(0, len(data) + 1))
    return data[:at] + b"".join(TOKENS[i] for i in rng.integers(0, len(TOKENS), size=2)) + data[at:]


def tables(rng: Rng) -> None:
    """Damaged CSV and JSON lines: read, or refused in words."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("log.csv" if rng.random() < 0.5 else "log.jsonl")
        path.write_bytes(table_bytes(rng))
        try:
            table = open_table(path)
            rows = sum(len(block) for block in table.blocks(7))
            assert table.rows is None or table.rows == rows
        except (ValueError, OSError):
            pass


def pipes(rng: Rng) -> None:
    """The same, line by line: every line is a reading or ``Malformed``, or the pipe is refused."""
    lines = table_bytes(rng).split(b"\n")
    try:
        for number, reading in Readings(iter(lines), look=5):
            assert 0 < number <= len(lines) + 1
            assert isinstance(reading, dict | Malformed)
    except ValueError:
        pass


def _checkpoint() -> bytes:
    learner = Learner("true_online_etd", 3, 2, engine="reference")
    learner.run(np.eye(3), 1.0, 0.5, alpha=0.1)
    with tempfile.TemporaryDirectory() as folder:
        learner.save(Path(folder) / "m", note="δ", more=np.arange(4))
        return (Path(folder) / "m").read_bytes()


GOOD = _checkpoint()


def checkpoints(rng: Rng) -> None:
    """A damaged file does not load."""
    data = damage(rng, GOOD)
    path = FOLDER / "damaged"
    path.write_bytes(data)
    try:
        emphatic.load(path)
    except CheckpointError:
        return
    assert data == GOOD


def observations(rng: Rng) -> None:
    """Rows of a stream with anything in them; a refused row changes nothing."""
    horde = Horde([GVF("x", horizon=3)], f.Features([f.Bias(), f.SoftBins("*", bins=3)]), engine="reference")
    horde.warm_up({"x": rng.normal(size=9), "y": rng.normal(size=9)})
    for _ in range(4):
        rows = horde.rows
        given: Any = {"x": strange_value(rng), "y": float(rng.normal())}
        if rng.random() < 0.3:
            given = strange_array(rng, (2,))
        try:
            answer = horde.observe(given, learn=bool(rng.random() < 0.5))
        except ValueError:
            assert horde.rows == rows
            continue
        assert answer.shape == (1,)
        assert np.isfinite(answer).all()


SURFACES: dict[str, Callable[[Rng], None]] = {
    function.__name__: function
    for function in (
        expressions, features, tables, pipes, checkpoints, observations,
        own_rules, own_elementwise_rules, own_stepsizes,
    )
}  # fmt: skip
