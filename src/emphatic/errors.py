"""The exceptions that this library defines besides plain ``ValueError``s, and the warning that many learners share."""

from __future__ import annotations

__all__ = ["CheckpointError", "Diverged", "DivergenceWarning"]


class Diverged(ArithmeticError):
    """A step would have made a number infinite or NaN; the learner is left as it was before that step.

    Args:
        step: The row of the call to ``run`` (from 0); in ``learn`` it is ``learner.steps``, the steps learned so far.
        learner: The index k of the first learner to diverge.
        of: The name of the call.
        remedy: What the message suggests.
    """

    def __init__(
        self, step: int, learner: int = 0, of: str = "run", remedy: str = "a smaller alpha, or smaller rho or I"
    ) -> None:
        super().__init__(
            f"Learner {learner} diverged at step {step} of {of}: its update is no longer a finite number. "
            f"Every learner is left as it was before that step. Try {remedy}."
        )
        self.step = step
        self.learner = learner
        self.of = of
        self.remedy = remedy

    def __reduce__(self) -> tuple[type[Diverged], tuple[int, int, str, str]]:
        return type(self), (self.step, self.learner, self.of, self.remedy)


class CheckpointError(ValueError):
    """The file is not a complete, well-formed checkpoint of this library."""


class DivergenceWarning(UserWarning):
    """A question of a Horde predicts what is impossible, or its learner diverged and is frozen.

    Its predictions mean nothing from there on.
    """
