"""Features of one's own: functions of a row, and kinds of part."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emphatic
from emphatic import GVF, Horde
from emphatic import features as f
from emphatic.features.plan import FeaturePlan, Unit

VALUES = np.array([[1.0, 4.0], [math.nan, 2.0], [3.0, 0.0], [-2.0, 2.0]])
LABELS = {"turn": ["left", "right", None, "left"]}


def ratio(row: Any) -> float | None:
    """a/b; none where b is 0."""
    return None if row["b"] == 0 else row["a"] / row["b"]


def state(row: Any) -> tuple[float | None, ...]:
    return row["turn"] == "left", None if row.time is None else row.time / 10


def warmed(*parts: f.Part) -> f.Features:
    return f.Features(parts).warm_up(VALUES, names=["a", "b"], time=np.arange(4.0), labels=LABELS)


def dense(phi: emphatic.Active, n: int) -> np.ndarray:
    return emphatic.Active(phi.indices, phi.values).rows.dense(n, np.float64)


def test_a_function_of_a_row() -> None:
    maker = warmed(f.Bias(), f.Function(ratio), f.Function(state, size=2), f.Missing("a"))
    assert (maker.n, maker.active) == (5, 5)
    assert maker.names() == ["bias", "ratio", "state 0", "state 1", "a missing"]
    phi = maker(VALUES, time=np.arange(4.0), labels=LABELS)
    expected = [[1, 0.25, 1, 0, 0], [1, 0, 0, 0.1, 1], [1, 0, 0, 0.2, 0], [1, -1, 1, 0.3, 0]]
    np.testing.assert_array_equal(dense(phi, 5), expected)
    np.testing.assert_array_equal(phi.indices < 0, np.array(expected) == 0)
    assert maker.norm == pytest.approx(np.square(expected).sum(1).mean())
    one = maker(VALUES[3], time=3.0, labels={"turn": "left"})
    np.testing.assert_array_equal(dense(one, 5)[0], expected[3])
    without = maker(VALUES[:1], labels={"turn": ["right"]})
    np.testing.assert_array_equal(dense(without, 5), [[1, 0.25, 0, 0, 0]])
    assert repr(maker) == "Features([Bias(), Function('ratio'), Function('state', size=2), Missing('a')], n=5)"


@pytest.mark.parametrize("returned", [2, 2.0, np.float64(2), np.array(2.0), np.array([2.0]), [2], (2.0,), True])
def test_what_a_function_may_return(returned: Any) -> None:
    maker = warmed(f.Function(lambda row: returned, name="it"))
    assert maker(VALUES[0]).values.tolist() == [1.0 if returned is True else 2.0]


@pytest.mark.parametrize("returned", [None, math.nan, math.inf, [None], 0.0])
def test_what_makes_no_feature_active(returned: Any) -> None:
    assert warmed(f.Function(lambda row: returned, name="it"))(VALUES[0]).indices.tolist() == [-1]


@pytest.mark.parametrize("returned", ["2", [1, 2], [], {"a": 1}, 1j, [[1]]])
def test_what_a_function_may_not_return(returned: Any) -> None:
    good = [True]
    maker = warmed(f.Function(lambda row: 1.0 if good[0] else returned, name="it"), f.SoftBins(f.Trace("a", steps=3)))
    before = maker.save()[1]
    good[0] = False
    with pytest.raises(ValueError, match=r"'it' must return a number or None. Got .* at row 0 of the call"):
        maker(VALUES)
    for name, array in maker.save()[1].items():
        np.testing.assert_array_equal(array, before[name])


def test_saved_by_name_and_given_again() -> None:
    maker = warmed(f.Function(ratio), f.Function(lambda row: row["a"], name="the reading"), f.SoftBins("*", bins=3))
    header, arrays = maker.save()
    header = json.loads(json.dumps(header))
    assert header["parts"][:2] == [{"kind": "function", "name": "ratio"}, {"kind": "function", "name": "the reading"}]
    functions: dict[str, Callable[..., Any]] = {"ratio": ratio, "the reading": lambda row: row["a"]}
    again, later = f.Features.load(header, arrays, functions), f.Features.load(header, arrays)
    with pytest.raises(ValueError, match=r"'ratio' is a Python function, .* Give it again"):
        later(VALUES)
    later.provide({"ratio": ratio})
    with pytest.raises(ValueError, match="'the reading' is a Python function"):
        later(VALUES)
    assert later.provide(functions) is later
    phi = maker(VALUES)
    for other in (again, later):
        np.testing.assert_array_equal(other(VALUES).values, phi.values)
        np.testing.assert_array_equal(other.names(), maker.names())
    with pytest.raises(ValueError, match=r"'functions' parameter of Features must .*: ratio, the reading"):
        later.provide({"ratios": ratio})


def test_a_horde_with_functions_goes_on_bit_for_bit(tmp_path: Path) -> None:
    log = {"x": np.sin(np.arange(1500.0) / 7)}

    def square(row: Any) -> float:
        return float(row["x"] ** 2)

    parts = [f.Bias(), f.SoftBins("x", bins=4), f.Function(square)]
    horde = Horde([GVF("x", horizon=5)], f.Features(parts), rate=0.3).warm_up(log)
    horde.run({"x": log["x"][:700]})
    horde.save(tmp_path / "model.safetensors")
    again = Horde.load(tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="'square' is a Python function"):
        again.observe({"x": 0.5})
    again.features.provide({"square": square})
    rest = {"x": log["x"][700:]}
    np.testing.assert_array_equal(horde.run(rest), again.run(rest))


@dataclass(frozen=True, repr=False)
class Marked(f.Part):
    """Bins of a signal, and whether it is missing."""

    of: str

    def units(self, plan: FeaturePlan) -> list[Unit]:
        return [*f.SoftBins(self.of, bins=3).units(plan), *f.Missing(self.of).units(plan)]


class Nothing(f.Part):
    """A part that makes nothing."""


def test_a_kind_of_ones_own() -> None:
    own, plain = warmed(Marked("a"), f.Bias()), warmed(f.SoftBins("a", bins=3), f.Missing("a"), f.Bias())
    assert own.names() == plain.names()
    np.testing.assert_array_equal(own(VALUES).values, plain(VALUES).values)
    for refused in (own.save, own.to_config):
        with pytest.raises(ValueError, match=r"Marked\('a'\) cannot be saved: Marked is not one of"):
            refused()


def test_a_kind_that_makes_nothing_is_refused() -> None:
    for part in (Nothing(), f.Part()):
        with pytest.raises(ValueError, match=rf"for your own use Function.* Got {type(part).__name__}, which has no"):
            f.Features([f.Bias(), part])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: f.Function(lambda row: 1), "'name' parameter of Function must be given"),
        (lambda: f.Function(3), "'function' parameter of Function must be a function of a row"),  # type: ignore[arg-type]
        (lambda: f.Function(ratio, size=0), "'size' parameter of Function"),
        (lambda: f.Function(ratio, name=""), "'name' parameter of Function must be given"),
        (lambda: f.Features([f.Function(ratio), f.Function(ratio)]), "have functions of different names"),
        (lambda: f.Features.from_config([{"kind": "function"}]), "'name' parameter of Function must be given"),
    ],
)
def test_bad_functions_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
