"""Experience sampled from an ``MDP``, in the form that ``Learner.run`` expects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic import rules
from emphatic.problems.checks import FloatArray

__all__ = ["Stream"]


@dataclass(frozen=True, eq=False, repr=False)
class Stream:
    """One run of T steps, or several with a leading axis on every array: ``stream[i]`` is then run i.

    Row t of each array is step t: φ_t, A_t, R_{t+1}, γ_{t+1}, and so on; ``states`` and ``Phi`` have one more row.
    Where an episode ends γ_{t+1} is 0 and the next row is the first state of the next episode, so no row is spent on
    an end. ``pi`` and ``mu`` are the probabilities of the chosen action, ``rho`` their ratio. For ``Tasks`` the arrays
    from ``R`` on are (T, K).

    ``active`` marks where the target policy is defined. Elsewhere ρ = I = 0; as that alone does not keep every rule
    from learning (w of a gradient rule continues to move), the step size should be 0 there too:
    ``alpha=0.01 * stream.active``.

    >>> from emphatic import Learner, problems
    >>> stream = problems.collision().simulate(1000)
    >>> learner = Learner("td", 6, engine="reference")
    >>> learner.run(**stream.inputs("td"), alpha=0.01).shape
    (1000,)
    """

    states: NDArray[np.int64]
    actions: NDArray[np.int64]
    Phi: FloatArray
    R: FloatArray
    gamma_next: FloatArray
    rho: FloatArray
    pi: FloatArray
    mu: FloatArray
    I: FloatArray
    lambda_: FloatArray
    lambda_next: FloatArray
    active: NDArray[np.bool_]

    @property
    def T(self) -> int:
        """The number of steps of a run."""
        return int(self.actions.shape[-1])

    @property
    def runs(self) -> int | None:
        """The number of runs; None for a single run without that axis."""
        return len(self.actions) if self.actions.ndim == 2 else None

    def __len__(self) -> int:
        """How many runs, or the steps of a single one."""
        return len(self.R)

    def __getitem__(self, i: int) -> Stream:
        """Run i."""
        if self.runs is None:
            raise TypeError("This stream is a single run: its arrays are its fields, stream.R, stream.Phi, ….")
        return Stream(*(getattr(self, field.name)[i] for field in fields(self)))

    def __iter__(self) -> Iterator[Stream]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        runs = "" if self.runs is None else f"runs={self.runs}, "
        return f"Stream({runs}T={self.T}, n={self.Phi.shape[-1]})"

    def inputs(self, rule: str | rules.AnyRule) -> dict[str, Any]:
        """Keywords for ``Learner.run``: all that the rule takes except α and its own parameters (β, ξ, …).

        ``stream.inputs(rule) | {"lambda_": 0.9}`` has another λ. λ' is left to follow it unless the MDP's λ varies.
        """
        of = rules.get(rule) if isinstance(rule, str) else rule
        if self.runs is not None:
            raise ValueError(f"'inputs' is for a single run and this stream has {self.runs}: use stream[i].inputs(…).")
        if of.action_values and (self.rho != 1.0).any():
            raise ValueError(
                f"{of.class_name or of.name} learns values of states and actions, and these are features of states: "
                "off-policy it would learn those of the behaviour policy. Give it φ(s, a) and φ̄' = Σ_a π(a|s')φ(s', a) "
                "of your own."
            )
        names = ("Phi", "R", "gamma_next", "rho", "lambda_", *("I",) * of.interest)
        varies = bool((self.lambda_ != self.lambda_next).any())
        names += tuple(name for name in ("lambda_next",) * varies + ("pi", "mu") if name in of.extra)
        return {name: getattr(self, name) for name in names}
