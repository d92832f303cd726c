"""A chunk of steps at a time, as matrix products (CHUNKED.md)."""

from emphatic.engines.chunked.engine import Chunked

__all__ = ["Chunked"]
