"""MDPs with exact solutions: problems from the literature and your own, for learning and for checking the results.

>>> from emphatic import Learner, problems
>>> chain = problems.chain()
>>> stream = chain.simulate(100_000, seed=1)
>>> learner = Learner("td", chain.n)
>>> learner.run(**stream.inputs("td"), alpha=0.01, predictions=False)
>>> bool(abs(learner.theta - chain.fixed_point("td")).max() < 0.5)
True
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emphatic.common.names import suggestion
from emphatic.problems.control import (
    Acrobot,
    Environment,
    MountainCar,
    PuddleWorld,
    World,
    access_control,
    cliff_walking,
    windy_gridworld,
)
from emphatic.problems.literature import baird, boyan, chain, collision, example_9_4, garnet, random_walk, two_theta
from emphatic.problems.mdp import MDP, from_gymnasium
from emphatic.problems.stream import Stream
from emphatic.problems.tasks import Tasks, four_rooms

__all__ = ["MDP", "Stream", "Tasks", "baird", "boyan", "chain", "collision", "example_9_4", "four_rooms"]
__all__ += ["Acrobot", "Environment", "MountainCar", "PuddleWorld", "World", "access_control", "cliff_walking"]
__all__ += ["windy_gridworld"]
__all__ += ["from_gymnasium", "garnet", "get", "names", "random_walk", "two_theta"]

_PROBLEMS: tuple[Callable[..., Any], ...] = (
    *(two_theta, chain, baird, example_9_4, random_walk, boyan, collision, four_rooms, garnet),
)


def names() -> tuple[str, ...]:
    """The problems that ship with the library.

    >>> "chain" in names()
    True
    """
    return tuple(problem.__name__ for problem in _PROBLEMS)


def get(name: str) -> Callable[..., Any]:
    """The function that creates the problem of that name, an ``MDP`` or ``Tasks``.

    Args:
        name: One of ``names()``; hyphens count as underscores.

    >>> get("two-theta")()
    MDP('two_theta', S=2, A=2, n=1)
    """
    known = {problem.__name__: problem for problem in _PROBLEMS}
    wanted = str(name).replace("-", "_")
    if wanted not in known:
        hint = suggestion(wanted, known)
        raise ValueError(f"The 'problem' parameter must be one of {', '.join(known)}. Got {name!r} instead.{hint}")
    return known[wanted]
