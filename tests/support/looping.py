"""Tests that go through many cases themselves: pytest takes longer for a test than most of these cases do."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["for_each"]

Test = Callable[..., None]


def for_each(**values: Iterable[Any]) -> Callable[[Test], Test]:
    """Call a test with every combination of these values, as ``pytest.mark.parametrize`` does, but in one test.

    A failure names the combination.
    """
    combinations = [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def through_all(*args: Any, **kwargs: Any) -> None:
            for combination in combinations:
                try:
                    test(*args, **kwargs, **combination)
                except Exception as error:
                    error.add_note(f"with {combination}")
                    raise

        signature = inspect.signature(test)
        others = [parameter for name, parameter in signature.parameters.items() if name not in values]
        through_all.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return through_all

    return decorate
