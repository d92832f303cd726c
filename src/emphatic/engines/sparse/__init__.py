"""Active features only, whatever n is: exact, by traces that are closed in epochs (SPARSE.md)."""

from emphatic.engines.sparse.engine import Sparse

__all__ = ["Sparse"]
