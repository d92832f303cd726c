"""Whether runs have values at each horizon: in most tests only where the settings say so, which is quicker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from emphatic.answers.asked import Asked
from emphatic.nexting import learning, predictor
from emphatic.nexting.settings import Settings

__all__ = ["make_asked", "make_wanted", "patch"]

make_asked = learning.make_asked


def make_wanted(settings: Settings, *arguments: Any) -> Asked:
    """What is asked by default where the settings ask for it, and what else they ask."""
    is_wanted = settings.exponential_only is not None
    return make_asked(settings if is_wanted else replace(settings, exponential_only=True), *arguments)


def patch(monkeypatch: pytest.MonkeyPatch, make: Any) -> None:
    """Let runs ask by this function."""
    for module in (learning, predictor):
        monkeypatch.setattr(module, "make_asked", make)
