"""Every rule that has its equations: those by name, and the true online ones with ``separate_next``."""

from __future__ import annotations

import emphatic
from emphatic.rules import AnyRule, Rule

__all__ = ["EVERY", "find", "name_of"]

_SEPARATE = "_separate"
#: Their names in the tests.
EVERY = emphatic.rules.names() + tuple(
    f"{name}{_SEPARATE}" for name in emphatic.rules.names() if emphatic.rules.get(name).change
)


def find(name: str) -> Rule:
    """The rule of one of these names."""
    rule = emphatic.rules.get(name.removesuffix(_SEPARATE))
    return emphatic.rules.separate(rule) if name.endswith(_SEPARATE) else rule


def name_of(rule: AnyRule) -> str:
    """The name of a rule in the tests."""
    return rule.name if rule.plain is rule else f"{rule.name}{_SEPARATE}"
