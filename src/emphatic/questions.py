"""Questions about named signals: general value functions, each with a cumulant, a γ, a policy, interest and λ.

    v(s) = E[ Σ_k (γ_{t+1} … γ_{t+k}) R_{t+k+1} | S_t = s, actions by π ]

Sutton, Modayil, Delp, Degris, Pilarski, White & Precup (2011), "Horde".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic import durations
from emphatic.inputs import refusal

__all__ = ["GVF", "Observations", "Policy"]

Quantity = float | str | Callable[..., float]
Array = NDArray[np.float64]

#: The most that λ is by itself; and by how many steps of γ it stays below 1.
_LAMBDA, _ROOM = 0.9, 4.0


@dataclass(frozen=True)
class Observations:
    """Some rows: each signal's values (NaN missing), each category's labels (None missing), actions and μ if given."""

    signals: Mapping[str, Array]
    labels: Mapping[str, Sequence[Any]]
    rows: int
    actions: Sequence[Any] | None = None
    mu: Sequence[Any] | None = None

    def row(self, t: int) -> dict[str, Any]:
        """One row as a question's own function is given it."""
        one = {name: float(values[t]) for name, values in self.signals.items()}
        return one | {name: values[t] for name, values in self.labels.items()}


@dataclass(frozen=True)
class Policy:
    """The policy that a question is about, beside the behaviour that the log shows.

    ``target`` gives π(a), as a table {action: probability} (others 0), or a function of (observation, action).
    ``column`` holds the action taken in each row. ``behaviour`` gives μ(a): a number, a table, the name of a column
    that holds it, a function of (observation, action), or "count", the part of all actions so far that were a.
    """

    target: Mapping[Any, float] | Callable[[Any, Any], float]
    column: str | None = None
    behaviour: Any = "count"

    def __post_init__(self) -> None:
        tables = [part for part in (self.target, self.behaviour) if isinstance(part, Mapping)]
        for table in tables:
            for action, p in table.items():
                if isinstance(p, bool) or not isinstance(p, int | float) or not 0.0 <= p <= 1.0:
                    raise refusal("target", "Policy", f"give action {action!r} a probability from 0 to 1", repr(p))
        if not callable(self.target) and not isinstance(self.target, Mapping):
            raise refusal("target", "Policy", "be a table of probabilities or a function", repr(self.target))
        if isinstance(self.target, Mapping) and sum(self.target.values()) > 1.0 + 1e-9:
            raise refusal("target", "Policy", "have probabilities of at most 1 together", repr(self.target))


@dataclass(frozen=True)
class GVF:
    """One question about a stream of named signals.

    ``cumulant`` is a column, an expression of columns (``"S1 - S2"``), or a function of the observation; the reading
    of the row that follows is what accumulates. ``gamma`` is a number, or an expression or function of the row that
    follows (0 where it ends); instead, ``horizon`` is in steps, γ = 1 − 1/h, or a duration such as "2min". Without a
    ``policy`` the question is about what will be, as things go. ``interest`` is by default 1 − γ for a constant γ,
    which keeps the emphasis at 1, and else 1. ``lambda_`` is by default 1 − 4 (1 − γ), between 0 and .9. ``terminal``
    is Z, paid on termination: the cumulant is R + (1 − γ) Z.

    >>> GVF("S1", horizon=9)
    GVF('S1', horizon=9)
    >>> GVF("S1", horizon=9).name
    'S1@9'
    """

    cumulant: Quantity
    gamma: Quantity | None = None
    horizon: float | str | None = None
    policy: Policy | None = None
    interest: Quantity | None = None
    lambda_: float | None = None
    terminal: Quantity | None = None
    name: str = ""

    def __post_init__(self) -> None:
        if (self.gamma is None) == (self.horizon is None):
            got = "neither" if self.gamma is None else "both"
            raise refusal("gamma", "GVF", "be given, or 'horizon' in its place", got)
        if isinstance(self.gamma, int | float) and not 0.0 <= self.gamma <= 1.0:
            raise refusal("gamma", "GVF", "be between 0 and 1", repr(self.gamma))
        if isinstance(self.horizon, str):
            try:
                durations.seconds(self.horizon)
            except ValueError:
                raise refusal("horizon", "GVF", "be steps or a duration such as '2min'", repr(self.horizon)) from None
        elif self.horizon is not None and not (isinstance(self.horizon, int | float) and 1.0 <= self.horizon < np.inf):
            raise refusal("horizon", "GVF", "be 1 step or more", repr(self.horizon))
        if self.lambda_ is not None and not (isinstance(self.lambda_, int | float) and 0.0 <= self.lambda_ <= 1.0):
            raise refusal("lambda_", "GVF", "be between 0 and 1", repr(self.lambda_))
        for given in ("cumulant", "gamma", "interest", "terminal"):
            value = getattr(self, given)
            if isinstance(value, bool) or not (callable(value) or isinstance(value, str | int | float | None)):
                raise refusal(given, "GVF", "be a number, an expression of signals or a function", repr(value))
        if self.cumulant is None:
            raise refusal("cumulant", "GVF", "be a column, an expression or a function", "None")
        if not self.name:
            object.__setattr__(self, "name", self._named())

    def _named(self) -> str:
        what = self.cumulant if isinstance(self.cumulant, str) else getattr(self.cumulant, "__name__", "question")
        when = self.horizon if self.horizon is not None else self.gamma if isinstance(self.gamma, int | float) else None
        return f"{what}" if when is None else f"{what}@{when}"

    def __repr__(self) -> str:
        parts = [repr(self.cumulant)]
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if value is not None and not (field.name == "name" and value == self._named()):
                parts.append(f"{field.name}={value!r}")
        return f"GVF({', '.join(parts)})"

    # ------------------------------------------------------------------ what it means on a stream

    def constant_gamma(self, step: float | None) -> float | None:
        """γ where it is the same everywhere, given the seconds a step; None where it is not."""
        if isinstance(self.horizon, str):
            if not step or not np.isfinite(step):
                raise refusal("horizon", "GVF", "be in steps, for the stream has no time", repr(self.horizon))
            return 1.0 - 1.0 / max(1.0, durations.seconds(self.horizon) / step)
        if self.horizon is not None:
            return 1.0 - 1.0 / float(self.horizon)
        return float(self.gamma) if isinstance(self.gamma, int | float) else None

    def default_lambda(self, gamma: float | None) -> float:
        """λ: as given, or by γ."""
        if self.lambda_ is not None:
            return float(self.lambda_)
        return _LAMBDA if gamma is None else min(_LAMBDA, max(0.0, 1.0 - _ROOM * (1.0 - gamma)))

    # ------------------------------------------------------------------ in a file

    def config(self) -> dict[str, Any]:
        """The question as a table of a TOML or JSON file; ValueError if a function is part of it."""
        out: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None or (field.name == "name" and value == self._named()):
                continue
            if callable(value):
                raise ValueError(f"question {self.name!r} has a function as its {field.name}, which no file can hold")
            key = "lambda" if field.name == "lambda_" else field.name
            if isinstance(value, Policy):
                if callable(value.target) or callable(value.behaviour):
                    raise ValueError(f"question {self.name!r} has a function as its policy, which no file can hold")
                behaviour = dict(value.behaviour) if isinstance(value.behaviour, Mapping) else value.behaviour
                value = {"target": dict(value.target), "behaviour": behaviour} | (
                    {} if value.column is None else {"column": value.column}
                )
            out[key] = value
        return out

    @staticmethod
    def from_config(table: Mapping[str, Any]) -> GVF:
        """The question that such a table describes.

        >>> GVF.from_config({"cumulant": "S1", "horizon": "2min", "lambda": 0.5})
        GVF('S1', horizon='2min', lambda_=0.5)
        """
        if not isinstance(table, Mapping):
            raise refusal("table", "GVF.from_config", "be a table", repr(table))
        given = {("lambda_" if key == "lambda" else key): value for key, value in table.items()}
        known = {field.name for field in fields(GVF)}
        for key in given:
            if key not in known:
                names = ", ".join(sorted(known - {"lambda_"} | {"lambda"}))
                raise refusal("table", "GVF.from_config", f"have only {names}", repr(key))
        if isinstance(given.get("policy"), Mapping):
            parts = dict(given["policy"])
            if not set(parts) <= {"target", "column", "behaviour"} or "target" not in parts:
                raise refusal("policy", "GVF.from_config", "have target, column and behaviour", repr(parts))
            given["policy"] = Policy(**parts)
        return GVF(**given)
