"""Learn long-term predictions online, from any stream of experience.

>>> import numpy as np, emphatic
>>> learner = emphatic.TrueOnlineETD(2)
>>> learner.learn(alpha=0.1, I=1.0, lambda_=0.9, phi=np.array([1.0, 0.0]), rho=1.0, R=0.5,
...               phi_next=np.array([0.0, 1.0]), gamma_next=0.95)
0.5
>>> learner.predict(np.array([1.0, 0.0]))
0.05
"""

from __future__ import annotations

import importlib
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emphatic import control as control
    from emphatic import engines as engines
    from emphatic import features as features
    from emphatic import gymnasium as gymnasium
    from emphatic import learning as learning
    from emphatic import nexting as nexting
    from emphatic import problems as problems
    from emphatic import reference as reference
    from emphatic import rules as rules
    from emphatic import stepsizes as stepsizes
    from emphatic import studies as studies
    from emphatic.errors import CheckpointError as CheckpointError
    from emphatic.errors import Diverged as Diverged
    from emphatic.errors import DivergenceWarning as DivergenceWarning
    from emphatic.gvfs.gvf import GVF as GVF
    from emphatic.gvfs.gvf import Policy as Policy
    from emphatic.hordes.horde import Horde as Horde
    from emphatic.learning.inputs import Active as Active
    from emphatic.learning.inputs import SequenceWarning as SequenceWarning
    from emphatic.learning.learner import Learner as Learner
    from emphatic.learning.learner import join as join
    from emphatic.learning.learner import load as load
    from emphatic.learning.least_squares import LeastSquares as LeastSquares
    from emphatic.learning.sequences import UndiscountedWarning as UndiscountedWarning
    from emphatic.rules import ElementwiseRule as ElementwiseRule
    from emphatic.rules import Rule as Rule

    ETD: partial[Learner]
    GTD: partial[Learner]
    TD: partial[Learner]
    TDRC: partial[Learner]
    TreeBackup: partial[Learner]
    TrueOnlineETD: partial[Learner]
    TrueOnlineTD: partial[Learner]

__version__ = "0.3.0"

_HOME = {
    "errors": ("CheckpointError", "Diverged", "DivergenceWarning"),
    "hordes.horde": ("Horde",),
    "learning.inputs": ("Active", "SequenceWarning"),
    "learning.learner": ("Learner", "join", "load"),
    "learning.least_squares": ("LeastSquares",),
    "learning.sequences": ("UndiscountedWarning",),
    "gvfs.gvf": ("GVF", "Policy"),
    "rules": ("ElementwiseRule", "Rule"),
}
#: Short names for learners of these rules; of every other rule, ``Learner(name, n)``.
_ALIASES = {
    "ETD": "etd",
    "GTD": "gtd",
    "TD": "td",
    "TDRC": "tdrc",
    "TreeBackup": "tree_backup",
    "TrueOnlineETD": "true_online_etd",
    "TrueOnlineTD": "true_online_td",
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}
_MODULES = (
    "control",
    "engines",
    "features",
    "learning",
    "nexting",
    "problems",
    "reference",
    "rules",
    "stepsizes",
    "studies",
)


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first used, so that ``import emphatic`` stays light."""
    if name in _MODULE:
        value = getattr(importlib.import_module(f"emphatic.{_MODULE[name]}"), name)
    elif name in _MODULES:
        value = importlib.import_module(f"emphatic.{name}")
    elif name == "__all__":
        value = sorted([*_MODULE, *_MODULES, *_ALIASES])
    elif name in _ALIASES:
        value = partial(__getattr__("Learner"), _ALIASES[name])
    else:
        raise AttributeError(f"module 'emphatic' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__getattr__("__all__"))
