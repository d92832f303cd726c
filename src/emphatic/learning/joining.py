"""Join hordes into one; ``Learner.select`` splits them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np

from emphatic.common.names import show
from emphatic.learning import inputs
from emphatic.learning.learner import Learner

__all__ = ["join"]


def join(hordes: Sequence[Learner]) -> Learner:
    """One horde of all these learners, in order: frozen learners stay frozen, and each keeps its own step count.

    They must have the same rule, n, dtype and engine, and be at the same position of their stream.
    """
    if not isinstance(hordes, Sequence) or not all(isinstance(other, Learner) for other in hordes) or not hordes:
        raise inputs.refusal("hordes", "join", "be a list of one learner or more", show(hordes))
    first = hordes[0]
    for i, other in enumerate(hordes):
        if (other.rule, other.n, other.dtype, other.engine) != (first.rule, first.n, first.dtype, first.engine):
            raise inputs.refusal("hordes", "join", f"all be like the first, {first!r}", f"{other!r} at {i}")
    positions = sorted({other.position for other in hordes})
    if len(positions) > 1:
        found = f"steps {', '.join(map(str, positions))}"
        raise inputs.refusal("hordes", "join", "be at the same position of the stream", found)
    parts = [other._engine for other in hordes]
    whole = parts[0].like(sum(part.K for part in parts))
    with ExitStack() as stack:
        for other in hordes:
            stack.enter_context(other._guard.shared)
        whole.join(parts)
    return first._with(whole, whole.K, np.concatenate([other._frozen for other in hordes]), first.position)
