"""A standing attack on the library: hostile input of every kind, faults of the disk, leaks and drift."""
