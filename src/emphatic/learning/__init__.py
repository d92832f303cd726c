"""Learners, and the sequences that define what they learn: returns, ratios, interest and cumulants."""

from emphatic.learning.sequences import interest, returns, rho, terminal_cumulant, xi

__all__ = ["interest", "returns", "rho", "terminal_cumulant", "xi"]
