"""The project itself: its examples, its style, its benchmarks."""
