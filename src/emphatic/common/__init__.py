"""Utilities for every package: atomic files, locks, thread guards, messages for unknown names, versions."""
