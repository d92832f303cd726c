"""Several tasks on one stream of behaviour: each its own target policy, rewards, discount, interest and values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emphatic.learning.inputs import refusal
from emphatic.problems.checks import FloatArray, kept, weights
from emphatic.problems.mdp import MDP
from emphatic.problems.stream import Stream

__all__ = ["Tasks"]

#: What all tasks have in common: the world, behaviour in it, and features.
_SHARED = ("P", "mu", "Phi", "start", "cells")
#: What a stream has but once for all tasks.
_ONCE = ("states", "actions", "Phi")


class Tasks:
    """K ``MDP``s that differ in π, R, γ, I and λ, and are the same in P, μ, Φ, the first states and ``cells``.

    Learner k of K learns task k: pass ``simulate``'s stream and ``probe`` to ``Learner(rule, n, K)`` unchanged.
    ``tasks[k]`` is task k by itself, and arrays have a leading axis K.

    >>> from emphatic import Learner, problems
    >>> rooms = problems.four_rooms()
    >>> rooms
    Tasks('four_rooms', K=8, S=104, A=4, n=12)
    >>> stream = rooms.simulate(1000)
    >>> learner = Learner("etd", rooms.n, rooms.K)
    >>> _, error = learner.run(**stream.inputs("etd"), alpha=0.01 * stream.active, probe=rooms.probe)
    >>> error.shape
    (1000, 8)
    """

    def __init__(self, tasks: Sequence[MDP], name: str = "") -> None:
        self.tasks = tuple(tasks) if isinstance(tasks, Sequence) else ()
        if not self.tasks or not all(isinstance(task, MDP) for task in self.tasks):
            raise refusal("tasks", "Tasks", "be a list of MDPs", repr(tasks))
        first = self.tasks[0]
        for k, task in enumerate(self.tasks):
            for field in _SHARED:
                if not np.array_equal(getattr(task, field), getattr(first, field)):
                    raise refusal("tasks", "Tasks", f"have one {field!r}", f"another in task {k} than in task 0")
        self.name = name or first.name

    def __repr__(self) -> str:
        return f"Tasks({self.name!r}, K={self.K}, S={self.S}, A={self.A}, n={self.n})"

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[MDP]:
        return iter(self.tasks)

    def __getitem__(self, k: int) -> MDP:
        return self.tasks[k]

    # ------------------------------------------------------------------ what they share

    @property
    def K(self) -> int:
        """The number of tasks."""
        return len(self.tasks)

    @property
    def S(self) -> int:
        """The number of states."""
        return self.tasks[0].S

    @property
    def A(self) -> int:
        """The number of actions."""
        return self.tasks[0].A

    @property
    def n(self) -> int:
        """The number of features."""
        return self.tasks[0].n

    @property
    def P(self) -> FloatArray:
        """(S, A, S+1)"""
        return self.tasks[0].P

    @property
    def mu(self) -> FloatArray:
        """(S, A)"""
        return self.tasks[0].mu

    @property
    def Phi(self) -> FloatArray:
        """(S, n)"""
        return self.tasks[0].Phi

    @property
    def start(self) -> FloatArray:
        """(S,)"""
        return self.tasks[0].start

    @property
    def cells(self) -> NDArray[np.int64]:
        """(S,)"""
        return self.tasks[0].cells

    @property
    def d_mu(self) -> FloatArray:
        """d_μ (S,)"""
        return self.tasks[0].d_mu

    # ------------------------------------------------------------------ what each has

    @cached_property
    def pi(self) -> FloatArray:
        """π of each task, (K, S, A)."""
        return self._each("pi")

    @cached_property
    def R(self) -> FloatArray:
        """R of each task, (K, S, A, S+1)."""
        return self._each("R")

    @cached_property
    def gamma(self) -> FloatArray:
        """γ of each task, (K, S)."""
        return self._each("gamma")

    @cached_property
    def I(self) -> FloatArray:  # noqa: E743
        """The interest of each task, (K, S)."""
        return self._each("I")

    @cached_property
    def lambda_(self) -> FloatArray:
        """λ of each task, (K, S)."""
        return self._each("lambda_")

    @cached_property
    def v_pi(self) -> FloatArray:
        """The true values of each task, (K, S)."""
        return self._each("v_pi")

    @cached_property
    def objective(self) -> FloatArray:
        """d_μ·I of each task, (K, S)."""
        return self._each("objective")

    @cached_property
    def best(self) -> FloatArray:
        """The θ of least error of each task, (K, n)."""
        return self._each("best")

    @property
    def probe(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(Phi, v_pi, d_μ·I) of shapes (S, n), (K, S) and (K, S), for ``Learner.run(probe=…)`` of K learners."""
        return self.Phi, self.v_pi, self.objective

    def msve(self, theta: ArrayLike, d: ArrayLike | None = None) -> FloatArray:
        """Each task's ``MDP.msve`` for θ (…, K, n), (…, K); ``d`` is (S,) for all of them or (K, S)."""
        each = weights(theta, self.n, "msve")
        if each.ndim < 2 or each.shape[-2] != self.K:
            raise refusal("theta", "msve", f"have shape (…, {self.K}, {self.n})", f"shape {each.shape}")
        other = [None] * self.K if d is None else np.broadcast_to(np.asarray(d, np.float64), (self.K, self.S))
        errors = [task.msve(each[..., k, :], other[k]) for k, task in enumerate(self.tasks)]
        return np.stack(errors, axis=-1)

    def rmsve(self, theta: ArrayLike, d: ArrayLike | None = None) -> FloatArray:
        """The root of ``msve``."""
        return np.sqrt(self.msve(theta, d))

    def simulate(self, T: int, *, seed: int | Sequence[int] = 0, runs: int | None = None) -> Stream:
        """T steps of behaviour, as ``MDP.simulate`` makes them for any of the tasks, with R, γ', ρ, … (T, K)."""
        streams = [task.simulate(T, seed=seed, runs=runs) for task in self.tasks]
        names = [field.name for field in fields(Stream)]
        shared = {name: getattr(streams[0], name) for name in _ONCE}
        return Stream(
            **shared,
            **{name: np.stack([getattr(one, name) for one in streams], axis=-1) for name in names if name not in _ONCE},
        )

    def _each(self, name: str) -> FloatArray:
        return kept(np.stack([getattr(task, name) for task in self.tasks]))
