"""Step by step, vectors as they are; for small n, lanes across learners."""

from emphatic.engines.dense.engine import Dense

__all__ = ["Dense"]
