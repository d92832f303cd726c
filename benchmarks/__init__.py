"""How fast the library is, beside the alternatives on the same work: ``python -m benchmarks core``."""
