"""Whether runs have values at each horizon: in most tests only where the settings say so, which is quicker."""

from __future__ import annotations

from typing import Any

import pytest

from emphatic.asking.headline import Headline
from emphatic.nexting import learning, predictor
from emphatic.nexting.settings import Settings

__all__ = ["make_headline", "make_wanted", "patch"]

make_headline = learning.make_headline


def make_wanted(settings: Settings, *arguments: Any) -> Headline | None:
    """The headline where the settings ask for it."""
    return None if settings.exponential_only is None else make_headline(settings, *arguments)


def patch(monkeypatch: pytest.MonkeyPatch, make: Any) -> None:
    """Let runs make their headline by this function."""
    for module in (learning, predictor):
        monkeypatch.setattr(module, "make_headline", make)
