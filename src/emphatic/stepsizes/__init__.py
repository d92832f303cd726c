"""Where α comes from."""

from emphatic.stepsizes.schedules import constant, decaying

__all__ = ["constant", "decaying"]
