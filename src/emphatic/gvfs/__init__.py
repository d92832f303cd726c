"""Questions about a stream: general value functions, and their evaluation on each row."""

from emphatic.gvfs.gvf import GVF, Policy

__all__ = ["GVF", "Policy"]
