"""A name for the learners of each rule: ``TrueOnlineETD(n, …)`` is ``Learner("true_online_etd", n, …)``.

The name is the rule's own ``class_name``.
"""

from __future__ import annotations

from functools import partial

from emphatic import rules
from emphatic.learning.learner import Learner


def __getattr__(name: str) -> partial[Learner]:
    rule = rules.class_names().get(name) if name[0].isupper() else None
    if rule is None:
        raise AttributeError(f"module 'emphatic.learning.shortcuts' has no attribute {name!r}")
    return partial(Learner, rule)
