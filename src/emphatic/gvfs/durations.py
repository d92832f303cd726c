"""Durations as people write them, of horizons: see ``emphatic.common.settings``."""

from emphatic.common.settings import format_duration, seconds

__all__ = ["format_duration", "seconds"]
