"""Questions about a stream: general value functions, and what they ask of each row."""

from emphatic.questions.gvf import GVF, Policy

__all__ = ["GVF", "Policy"]
