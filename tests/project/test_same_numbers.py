"""The comparison of two commits: what counts as a difference (``python -m tools.same_numbers OLD NEW`` runs it)."""

from __future__ import annotations

import numpy as np
import pytest

from tools.observations import SECTIONS as OBSERVED
from tools.observations import describe
from tools.same_numbers import SECTIONS, Comparison, compare, compare_all, compare_interface

LAST_BIT = float(np.nextafter(1.0, 2.0))


def test_every_section_is_observed() -> None:
    assert list(SECTIONS) == list(OBSERVED)


@pytest.mark.parametrize(
    "value",
    [np.array([1.0, np.nan, -0.0]), np.array(["a", None], object), {"a": [1, 2.5, None]}, "two\nlines", float("nan")],
)
def test_equal_values(value: object) -> None:
    assert compare(value, value) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (np.array([1.0, 1.0]), np.array([1.0, LAST_BIT]), "1 of 2 values differ, the first at (1,)"),
        (np.array([0.0]), np.array([-0.0]), "1 of 1 values differ"),
        (np.zeros(2), np.zeros(3), "float64 (2,), now float64 (3,)"),
        (np.zeros(2), np.zeros(2, np.float32), "float64 (2,), now float32 (2,)"),
        (np.array(["a"], object), np.array(["b"], object), "'a', now 'b'"),
        ({"a": {"b": 1.0}}, {"a": {"b": LAST_BIT}}, "a: b: 1.0, now 1.0000000000000002"),
        ({"a": 1}, {"a": 1, "b": 2}, "b: missing in OLD"),
        ({"a": 1, "b": 2}, {"a": 1}, "b: missing in NEW"),
        ([1, 2], [1], "2 items, now 1"),
        ("a\nb", "a\nc", "-b"),
        (1, 1.0, "1, now 1.0"),
        (0, False, "0, now False"),
    ],
)
def test_differences_are_found(old: object, new: object, said: str) -> None:
    assert said in " ".join(compare(old, new))


def test_an_added_name_is_no_difference() -> None:
    old = {"learn": "(self, phi)", "run": "(self)"}
    assert compare_interface(old, old | {"advance": "(self)"}) == ([], ["advance"])
    assert compare_interface(old, {"learn": "(self, phi)"})[0] == ["run: missing in NEW"]
    assert compare_interface(old | {"Agents": {"train": "(self)"}}, old) == ([], [])
    assert compare_interface(old, old | {"run": "(self, rows)"})[0] == ["run: '(self)', now '(self, rows)'"]


def test_every_observation_is_compared() -> None:
    old, new = {"θ": np.zeros(2), "lost": 1, "__all__": {"a": 1}}, {"θ": np.ones(2), "new": 1, "__all__": {"a": 1}}
    lines = {comparison.name: comparison.line(allowed=False) for comparison in compare_all(old, new)}
    assert lines["θ"].startswith("DIFFERS  θ: 2 of 2 values differ")
    assert lines["θ"].endswith("the largest difference is 1")
    assert lines["lost"] == "DIFFERS  lost: missing in NEW"
    assert lines["new"] == "DIFFERS  new: missing in OLD"
    assert lines["__all__"] == "equal    __all__"
    assert Comparison("version", ["'1', now '2'"], []).line(allowed=True) == "expected version: '1', now '2'"


def test_numbers_of_a_summary_may_differ_and_verdicts_may_not() -> None:
    old = {"verdict": "better", "known": 9, "skill_best": 0.1, "first": {"mean_high": [1.0]}}
    nexting, study = "nexting: summary.json", "study: summary.json"
    for name, new, expected in (
        (nexting, {"skill_best": 2e-7}, True), (nexting, {"verdict": "worse", "skill_best": 0.2}, False),
        (nexting, {"known": 8}, False), (nexting, {"skill_best": None}, False), (study, {"skill_best": 0.2}, False),
        (study, {"first": {"mean_high": [2.0]}}, True), (study, {"first": {}}, False), ("study: files", {}, True),
    ):  # fmt: skip
        assert Comparison(name, compare([old], [old | new]), []).is_expected(set()) is expected, (name, new)


def test_signatures_without_annotations() -> None:
    class Box:
        def __init__(self, size: float, *, label: str = "") -> None:
            self._size = size

        def fill(self, height: int = 3) -> None: ...

        @property
        def size(self) -> float:
            return self._size

    expected = {"(call)": "(size, *, label='')", "fill": "(self, height=3)", "size": "property"}
    assert describe(Box) == expected
