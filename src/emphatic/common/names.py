"""Messages for bad parameters, and for unknown names: the closest match, and the list of known names."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import ParamSpec, TypeVar

__all__ = ["check_names", "refusal", "show", "suggestion", "suggests_keywords"]

P = ParamSpec("P")
T = TypeVar("T")


def refusal(name: str, function: str, wanted: str, got: str, remedy: str = "") -> ValueError:
    """The error for a bad parameter, in the form that all messages share; ``remedy`` is a sentence after it.

    >>> refusal("n", "Learner", "be a whole number of 1 or more", "0")
    ValueError("The 'n' parameter of Learner must be a whole number of 1 or more. Got 0 instead.")
    """
    return ValueError(f"The '{name}' parameter of {function} must {wanted}. Got {got} instead. {remedy}".rstrip())


def show(value: object, most: int = 60) -> str:
    """A short text of any value, for a message.

    >>> show([1, 2])
    '[1, 2]'
    """
    try:
        text = repr(value)
    except Exception:  # its own, or of something nested too deeply
        return f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= most else f"{type(value).__name__} {text[: most - 10]}…"


def suggestion(name: object, known: Iterable[str]) -> str:
    """A sentence with the closest known name, or nothing. Capital letters do not count.

    >>> suggestion("horizon", ["predict", "horizons"])
    " Did you mean 'horizons'?"
    >>> suggestion("temperature", ["TEMP", "PRES"])
    " Did you mean 'TEMP'?"
    """
    names = {other.lower(): other for other in reversed(list(known))}
    text = str(name).lower()
    close = get_close_matches(text, list(names), 1) or [
        other for other in names if len(min(other, text, key=len)) >= 3 and text[: len(other)] == other[: len(text)]
    ]
    return f" Did you mean {names[close[0]]!r}?" if close else ""


def check_names(given: Iterable[str], known: Iterable[str], where: str, kind: str = "setting") -> None:
    """ValueError for the first unknown name, with the closest match and all known names."""
    known = list(known)
    for name in given:
        if name not in known:
            hint = suggestion(name, known)
            raise ValueError(f"{where}: there is no {kind} {name!r}.{hint} Known: {', '.join(known)}.")


def suggests_keywords(function: Callable[P, T]) -> Callable[P, T]:
    """The function, whose TypeError for an unknown keyword names the closest parameter.

    >>> suggests_keywords(lambda *, horizons: horizons)(horizon=[5])
    Traceback (most recent call last):
    TypeError: <lambda>() has no parameter 'horizon'. Did you mean 'horizons'?
    """
    known = inspect.signature(function).parameters

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        for name in kwargs:
            if name not in known:
                raise TypeError(f"{function.__name__}() has no parameter {name!r}.{suggestion(name, known)}")
        return function(*args, **kwargs)

    return checked
