"""Learners: any rule on any engine, from input validation to checkpoints."""
