"""The error of each setting of the Collision study, looked up by its parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.studies.results import Sweep, over_runs

__all__ = ["Errors", "power"]


class Errors:
    """Mean RMSVE and standard error of every setting swept, found by rule and parameters."""

    def __init__(self, swept: Sweep) -> None:
        self.mean, self.se = over_runs(swept.mean)
        self.rules, self.parameters = np.array(swept.rules), swept.parameters

    def at(self, rule: str, **values: Any) -> NDArray[np.intp]:
        """The settings of a rule with these values."""
        fit = self.rules == rule
        for name, value in values.items():
            fit = fit & np.isin(self.parameters[name], value)
        return np.flatnonzero(fit)

    def best(self, rule: str, **values: Any) -> int:
        """The one of them with the least error."""
        there = self.at(rule, **values)
        return int(there[np.argmin(np.nan_to_num(self.mean[there], nan=np.inf))])

    def describe(self, i: int) -> str:
        """A setting in words."""
        values = {name: column[i] for name, column in self.parameters.items() if not np.isnan(column[i])}
        return ", ".join(
            f"{name} {power(value) if name in ('alpha', 'eta') else f'{value:g}'}" for name, value in values.items()
        )


def power(value: float) -> str:
    return f"2^{round(np.log2(value))}"
