"""Sources of readings other than HTTP: each a thread of its own, which reads no further than there is room."""
