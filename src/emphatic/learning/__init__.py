"""Learners: any rule on any engine, from the check of the input to the checkpoint."""
