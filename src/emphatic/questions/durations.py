"""Durations as people write them, of horizons: see ``emphatic.common.durations``."""

from emphatic.common.durations import format_duration, seconds

__all__ = ["format_duration", "seconds"]
