"""One answer to each question about the future, from one mechanism. ``ANSWERS.md`` has the derivation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emphatic.answers.answers import Answers as Answers

__all__ = ["Answers"]


def __getattr__(name: str) -> Any:
    """The mechanism is imported when it is first used: the language of questions needs none of its kernels."""
    if name != "Answers":
        raise AttributeError(f"module 'emphatic.answers' has no attribute {name!r}")
    from emphatic.answers.answers import Answers

    return Answers
