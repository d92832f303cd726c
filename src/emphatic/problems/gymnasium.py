"""MDPs from Gymnasium's environments with a table of transitions: FrozenLake, CliffWalking, Taxi, …."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from emphatic.learning.inputs import refusal
from emphatic.problems.mdp import MDP

__all__ = ["from_gymnasium"]


def from_gymnasium(
    env: Any, pi: ArrayLike, mu: ArrayLike | None = None, gamma: ArrayLike = 0.99, Phi: ArrayLike | None = None
) -> MDP:
    """The MDP of a Gymnasium environment, an object or an id, that has its transitions in ``env.unwrapped.P``.

    What is flagged as terminated ends the episode; the first states are those of ``initial_state_distrib``, or all.
    A time limit is no part of the table, nor of the MDP. The other arguments are ``MDP``'s.

    >>> lake = from_gymnasium("FrozenLake-v1", pi=[0.25] * 4)
    >>> lake
    MDP('FrozenLake-v1', S=16, A=4, n=16)
    >>> round(float(lake.v_pi[0]), 4)
    0.0124
    """
    env = _make(env) if isinstance(env, str) else env
    bare = getattr(env, "unwrapped", env)
    table = getattr(bare, "P", None)
    if not table:
        wanted = "have a table of transitions, env.unwrapped.P, as FrozenLake, CliffWalking and Taxi do"
        raise refusal("env", "from_gymnasium", wanted, repr(env))
    S, A = len(table), len(table[0])
    P, R = np.zeros((S, A, S + 1)), np.zeros((S, A, S + 1))
    for s in range(S):
        for a in range(A):
            for chance, following, reward, terminated in table[s][a]:
                x = S if terminated else int(following)
                P[s, a, x] += chance
                R[s, a, x] += chance * reward
    R = np.divide(R, P, out=R, where=P > 0.0)
    spec = getattr(bare, "spec", None)
    start = getattr(bare, "initial_state_distrib", None)
    return MDP(P, R, gamma, pi, mu, Phi, start=start, name=spec.id if spec else type(bare).__name__)


def _make(name: str) -> Any:
    try:
        import gymnasium
    except ImportError as error:
        raise ImportError("from_gymnasium needs gymnasium: pip install 'emphatic[gym]'") from error
    return gymnasium.make(name)
