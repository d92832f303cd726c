"""Hordes put together; ``Learner.select`` takes them apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from emphatic import inputs
from emphatic.learner import Learner

__all__ = ["join"]


def join(hordes: Sequence[Learner]) -> Learner:
    """One horde of all these learners, which have the same rule, n and dtype, in order; on the first one's engine."""
    first = hordes[0] if len(hordes) else None
    if first is None:
        raise inputs.refusal("hordes", "join", "be a list of one learner or more", "none")
    for i, other in enumerate(hordes):
        if (other.rule, other.n, other.dtype, other.engine) != (first.rule, first.n, first.dtype, first.engine):
            raise inputs.refusal("hordes", "join", f"all be like the first, {first!r}", f"{other!r} at {i}")
    if len({other.steps for other in hordes}) > 1:
        raise inputs.refusal("hordes", "join", "have learned the same number of steps", "different numbers")
    parts = [other._engine for other in hordes]
    whole = parts[0].like(sum(part.K for part in parts))
    whole.join(parts)
    return first._with(whole, whole.K, np.concatenate([other._frozen for other in hordes]))
