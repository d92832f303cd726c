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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emphatic import data, engines, features, problems, reference, rules, stepsizes, streams, studies
    from emphatic.active import Active
    from emphatic.errors import CheckpointError, Diverged
    from emphatic.horde import Horde
    from emphatic.joining import join
    from emphatic.learner import Learner
    from emphatic.loading import load
    from emphatic.questions import GVF, Policy
    from emphatic.rules import Rule
    from emphatic.sequences import UndiscountedWarning, interest, returns, rho, terminal_cumulant, xi
    from emphatic.shortcuts import (
        ABTD,
        ETD,
        GQ,
        GTD,
        GTD2,
        HTD,
        TD,
        TDRC,
        ETDBeta,
        ProximalGTD2,
        TreeBackup,
        TrueOnlineETD,
        TrueOnlineETDBeta,
        TrueOnlineGTD,
        TrueOnlineTD,
        VTrace,
    )

__all__ = [
    "ABTD",
    "ETD",
    "GQ",
    "GTD",
    "GTD2",
    "GVF",
    "HTD",
    "TD",
    "TDRC",
    "Active",
    "CheckpointError",
    "Diverged",
    "ETDBeta",
    "Horde",
    "Learner",
    "Policy",
    "ProximalGTD2",
    "Rule",
    "TreeBackup",
    "TrueOnlineETD",
    "TrueOnlineETDBeta",
    "TrueOnlineGTD",
    "TrueOnlineTD",
    "UndiscountedWarning",
    "VTrace",
    "data",
    "engines",
    "features",
    "interest",
    "join",
    "load",
    "problems",
    "reference",
    "returns",
    "rho",
    "rules",
    "stepsizes",
    "streams",
    "studies",
    "terminal_cumulant",
    "xi",
]

__version__ = "0.2.0"

_HOME = {
    "active": ("Active",),
    "errors": ("CheckpointError", "Diverged"),
    "horde": ("Horde",),
    "joining": ("join",),
    "learner": ("Learner",),
    "loading": ("load",),
    "questions": ("GVF", "Policy"),
    "rules": ("Rule",),
    "sequences": ("UndiscountedWarning", "interest", "returns", "rho", "terminal_cumulant", "xi"),
    "shortcuts": (
        "ABTD",
        "ETD",
        "ETDBeta",
        "GQ",
        "GTD",
        "GTD2",
        "HTD",
        "ProximalGTD2",
        "TD",
        "TDRC",
        "TreeBackup",
        "TrueOnlineETD",
        "TrueOnlineETDBeta",
        "TrueOnlineGTD",
        "TrueOnlineTD",
        "VTrace",
    ),
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first used, so that ``import emphatic`` stays light."""
    if name in _MODULE:
        value = getattr(importlib.import_module(f"emphatic.{_MODULE[name]}"), name)
    elif name in __all__:
        value = importlib.import_module(f"emphatic.{name}")
    else:
        raise AttributeError(f"module 'emphatic' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
