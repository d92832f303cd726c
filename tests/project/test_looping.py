"""``tests.support.looping``: all combinations, other arguments left to pytest, and a failure names its own."""

from __future__ import annotations

import inspect

import pytest

from tests.support.looping import for_each


def test_every_combination_is_called_and_a_failure_names_its_own() -> None:
    seen = []

    @for_each(a=[1, 2])
    @for_each(b="xy")
    def test(other: int, a: int, b: str) -> None:
        seen.append((other, a, b))
        assert (a, b) != (2, "y")

    assert list(inspect.signature(test).parameters) == ["other"]
    with pytest.raises(AssertionError) as info:
        test(other=0)
    assert seen == [(0, 1, "x"), (0, 1, "y"), (0, 2, "x"), (0, 2, "y")]
    assert info.value.__notes__[-2:] == ["with {'b': 'y'}", "with {'a': 2}"]
