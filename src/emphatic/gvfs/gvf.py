"""Questions about named signals: general value functions, each with a cumulant, a γ, a policy, interest and λ.

    v(s) = E[ Σ_k (γ_{t+1} … γ_{t+k}) R_{t+k+1} | S_t = s, actions by π ]

Sutton, Modayil, Delp, Degris, Pilarski, White & Precup (2011), "Horde".
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from emphatic.gvfs import durations
from emphatic.learning.inputs import refusal

__all__ = [
    "GVF",
    "LARGEST",
    "REACHED",
    "Observations",
    "Policy",
    "action_name",
    "can_take",
    "sure_action",
    "takes_action",
]

Quantity = float | str | Callable[..., float | None]
Array = NDArray[np.float64]

#: Larger readings count as missing, so that squares stay finite.
LARGEST = 1e100
#: How often readings reach their least value, or their largest, before it is a bound for predictions and intervals.
REACHED = 10.0
#: The largest default of λ; and how many times 1 − γ it stays below 1.
_LAMBDA, _ROOM = 0.9, 4.0


@dataclass(slots=True)
class Observations:
    """Some rows: ``values`` (B, C) of the signals (NaN missing), each category's labels, actions and μ if given.

    ``originals`` are the observations from which the rows were made, where a question's functions need them.
    ``complete`` is set for one row without a missing reading, or one beyond ``LARGEST``.
    """

    names: Sequence[str]
    values: Array
    labels: Mapping[str, Sequence[Any]]
    actions: Sequence[Any] | None = None
    mu: Sequence[Any] | None = None
    originals: Sequence[Any] | None = None
    complete: bool = False

    def __len__(self) -> int:
        return len(self.values)

    @property
    def signals(self) -> dict[str, Array]:
        """Each signal's values."""
        return dict(zip(self.names, self.values.T, strict=True))

    def row(self, t: int) -> dict[str, Any]:
        """One row as {name: value}."""
        row: dict[str, Any] = dict(zip(self.names, self.values[t].tolist(), strict=True))
        return row | {name: values[t] for name, values in self.labels.items()}

    def observation(self, t: int) -> Any:
        """One observation: the original, or the row itself."""
        return self.row(t) if self.originals is None else self.originals[t]

    def column(self, name: str) -> Sequence[Any]:
        """The values of a category or a signal."""
        return self.labels[name] if name in self.labels else self.values[:, self.names.index(name)].tolist()

    def part(self, rows: slice) -> Observations:
        """Some of the rows."""
        labels = {name: column[rows] for name, column in self.labels.items()}
        actions, mu, originals = (None if c is None else c[rows] for c in (self.actions, self.mu, self.originals))
        return Observations(self.names, self.values[rows], labels, actions, mu, originals)


@dataclass(frozen=True)
class Policy:
    """The target policy of a question, in contrast to the behaviour in the log.

    In tables 1, 1.0, True and "1" are the same action. A row whose action or μ is missing has ρ = 0.

    Args:
        target: π(a), as a table {action: probability} (others 0), or a function of (observation, action), which may
            give densities.
        column: The column that holds the action chosen in each row.
        behaviour: μ(a): a number, a table, the name of a column that holds it, a function of (observation, action), or
            "count", the fraction of past actions that were a (unless μ comes with the step, or the stream has
            one of its own).

    >>> Policy({"left": 0.2, "right": 0.8}, column="move", behaviour=0.5)
    Policy(target={'left': 0.2, 'right': 0.8}, column='move', behaviour=0.5)
    """

    target: Mapping[Any, float] | Callable[[Any, Any], float]
    column: str | None = None
    behaviour: float | str | Mapping[Any, float] | Callable[[Any, Any], float] = "count"

    def __post_init__(self) -> None:
        for argument in ("target", "behaviour"):
            value = _plain(getattr(self, argument))
            if isinstance(value, Mapping):
                value = _check_table(argument, value)
            else:
                _check_chance(argument, value)
            object.__setattr__(self, argument, value)
        if not isinstance(self.column, str | None):
            raise refusal("column", "Policy", "be the name of a column", repr(self.column))


def sure_action(policy: Policy) -> str | None:
    """The action that a policy always takes, by its name; None if it is a function or may take several.

    Args:
        policy: The policy.

    >>> sure_action(Policy({"left": 1.0, "right": 0.0})), sure_action(Policy({"left": 0.5, "right": 0.5}))
    ('left', None)
    """
    target = policy.target
    if not isinstance(target, Mapping):
        return None
    return next((action for action, chance in target.items() if chance > 1.0 - 1e-6), None)


def _check_table(argument: str, probabilities: Mapping[Any, Any]) -> dict[str, float]:
    """A table of probabilities, by the names of the actions."""
    table = {action_name(action): _plain(p) for action, p in probabilities.items()}
    for action, p in table.items():
        if not (_is_number(p) and 0.0 <= p <= 1.0):
            raise refusal(argument, "Policy", f"give action {action!r} a probability from 0 to 1", repr(p))
    total = sum(table.values())
    if len(table) < len(probabilities) or total > 1.0 + 1e-6 or (argument == "target" and total < 1.0 - 1e-6):
        raise refusal(
            argument, "Policy", "have different actions, and probabilities that add up to 1", repr(probabilities)
        )
    return table


def _check_chance(argument: str, value: object) -> None:
    """π or μ that is no table."""
    if argument == "target" and not callable(value):
        raise refusal(argument, "Policy", "be a table of probabilities or a function", repr(value))
    if not (callable(value) or isinstance(value, str) or (_is_number(value) and 0.0 < value <= 1.0)):
        wanted = "be a probability above 0, a table of them, a column, a function or 'count'"
        raise refusal(argument, "Policy", wanted, repr(value))
    if callable(value) and not takes_action(value):
        raise refusal(argument, "Policy", "be a function of (observation, action)", repr(value))


def takes_action(function: Callable[..., Any]) -> bool:
    """Whether it can be called with (observation, action), as far as its signature is known."""
    try:
        return can_take(inspect.signature(function), 2)
    except (TypeError, ValueError):  # a builtin without a signature
        return True


def can_take(signature: inspect.Signature, count: int) -> bool:
    """Whether a function with this signature can be called with so many positional arguments."""
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def action_name(action: object) -> str:
    """The name of an action in tables and files: 1, 1.0, True and "1" are the same."""
    value = _plain(action)
    if isinstance(value, bool) or (isinstance(value, float) and value.is_integer()):
        value = int(value)
    if not isinstance(value, str | int | float) or value != value:
        raise refusal("action", "observe", "be text or a number", repr(action))
    return str(value)


def _plain(value: object) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


#: The range of each quantity of a question where it is a number, and what else it may be.
_QUANTITY = "a number, an expression of signals or a function"
_RANGES = {
    "cumulant": (-LARGEST, LARGEST, _QUANTITY),
    "gamma": (0.0, 1.0, _QUANTITY),
    "interest": (0.0, LARGEST, _QUANTITY),
    "terminal": (-LARGEST, LARGEST, _QUANTITY),
    "horizon": (1.0, LARGEST, "a number of steps, or a duration such as '2min'"),
    "lambda_": (0.0, 1.0, "a number"),
}


def _check_quantity(argument: str, value: object) -> None:
    """A number in its range; or text or a function, where the argument may be one."""
    least, most, kind = _RANGES[argument]
    if _is_number(value):
        fine, kind = least <= value <= most, f"between {least:g} and {most:g}"
    else:
        fine = value is None or (isinstance(value, str) and argument != "lambda_")
        fine = fine or (callable(value) and argument not in ("horizon", "lambda_"))
    if not fine:
        raise refusal(argument, "GVF", f"be {kind}", repr(value))


@dataclass(frozen=True)
class GVF:
    """One question about a stream of named signals.

    A function with one parameter gets a row, {name: value}: the next row, or for ``interest`` the current one. A
    missing value is NaN, and a missing label is None. A function with four parameters gets the transition:
    (observation, action, reward, next observation). A function returns None or NaN if it has no answer.

    Args:
        cumulant: The quantity to predict: a signal, an expression of signals (``"S1 - S2"``), or a function; its value
            is read from the next row.
        gamma: A number, or an expression or function of the next row (0 where the question ends).
        horizon: In place of ``gamma``: in steps, γ = 1 − 1/h, or a duration such as "2min" (at least one step).
        policy: The target policy; without one the question is about the behaviour itself.
        interest: By default 1 − γ for a constant γ, which brings F to 1 on-policy, and otherwise 1; for a rule without
            emphasis it is 1.
        lambda_: By default 1 − 4 (1 − γ), between 0 and .9.
        terminal: Z, paid on termination: the cumulant is R + (1 − γ) Z.
        name: The name of the question; default: its cumulant with its horizon or γ.

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
        for field in fields(self):
            object.__setattr__(self, field.name, _plain(getattr(self, field.name)))
        if self.cumulant is None:
            raise refusal("cumulant", "GVF", "be a signal, an expression of signals or a function", "None")
        if (self.gamma is None) == (self.horizon is None):
            given = "Neither was given." if self.gamma is None else "Both were given."
            raise ValueError(f"GVF needs one of 'gamma' and 'horizon'. {given}")
        for argument in _RANGES:
            _check_quantity(argument, getattr(self, argument))
        if isinstance(self.horizon, str):
            try:
                durations.seconds(self.horizon)
            except ValueError:
                raise refusal("horizon", "GVF", "be steps or a duration such as '2min'", repr(self.horizon)) from None
        if not isinstance(self.policy, Policy | None):
            raise refusal("policy", "GVF", "be a Policy", repr(self.policy))
        if not isinstance(self.name, str):
            raise refusal("name", "GVF", "be text", repr(self.name))
        if not self.name:
            object.__setattr__(self, "name", self._named())

    def _named(self) -> str:
        what = self.cumulant if isinstance(self.cumulant, str) else getattr(self.cumulant, "__name__", "question")
        when = self.horizon if self.horizon is not None else self.gamma if isinstance(self.gamma, int | float) else None
        return f"{what}" if when is None else f"{what}@{when}"

    def __repr__(self) -> str:
        arguments = [repr(self.cumulant)]
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if value is not None and not (field.name == "name" and value == self._named()):
                arguments.append(f"{field.name}={value!r}")
        return f"GVF({', '.join(arguments)})"

    # ------------------------------------------------------------------ on a stream

    def constant_gamma(self, step: float | None) -> float | None:
        """γ if it is constant; else None.

        Args:
            step: The seconds per step, for a horizon that is a duration; None where the stream has no time.
        """
        if isinstance(self.horizon, str):
            if not step or not np.isfinite(step):
                raise refusal("horizon", "GVF", "be in steps, because the stream has no time", repr(self.horizon))
            return 1.0 - 1.0 / max(1.0, durations.seconds(self.horizon) / step)
        if self.horizon is not None:
            return 1.0 - 1.0 / float(self.horizon)
        return float(self.gamma) if isinstance(self.gamma, int | float) else None

    def default_lambda(self, gamma: float | None) -> float:
        """λ as given, or the default for γ.

        Args:
            gamma: γ if it is constant, else None.
        """
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
                raise ValueError(f"question {self.name!r} has a function as its {field.name}, which a file cannot hold")
            key = "lambda" if field.name == "lambda_" else field.name
            if isinstance(value, Policy):
                if callable(value.target) or callable(value.behaviour):
                    raise ValueError(f"question {self.name!r} has a function as its policy, which a file cannot hold")
                behaviour = dict(value.behaviour) if isinstance(value.behaviour, Mapping) else value.behaviour
                column = {} if value.column is None else {"column": value.column}
                value = {"target": dict(value.target), "behaviour": behaviour} | column
            out[key] = value
        return out

    @staticmethod
    def from_config(table: Mapping[str, Any]) -> GVF:
        """The question that such a table describes.

        Args:
            table: The table, as ``config`` returns it.

        >>> GVF.from_config({"cumulant": "S1", "horizon": "2min", "lambda": 0.5})
        GVF('S1', horizon='2min', lambda_=0.5)
        """
        if not isinstance(table, Mapping):
            raise refusal("table", "GVF.from_config", "be a table", repr(table))
        arguments = {("lambda_" if key == "lambda" else key): value for key, value in table.items()}
        known = {field.name for field in fields(GVF)}
        for key in arguments:
            if key not in known:
                names = ", ".join(sorted(known - {"lambda_"} | {"lambda"}))
                raise refusal("table", "GVF.from_config", f"have only {names}", repr(key))
        if isinstance(arguments.get("policy"), Mapping):
            policy = dict(arguments["policy"])
            if not set(policy) <= {"target", "column", "behaviour"} or "target" not in policy:
                raise refusal("policy", "GVF.from_config", "have target, column and behaviour", repr(policy))
            arguments["policy"] = Policy(**policy)
        return GVF(**{"cumulant": None, **arguments})
