"""The settings of the Collision study, and its published numbers.

Ghiassian & Sutton (2021); the numbers come from a replay of the authors' updates on their feature draws.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from emphatic.rules import AnyRule
from emphatic.studies.grid import parameters

__all__ = [
    "ALPHAS", "BEST", "CURVE", "CURVE_SE", "ETAS", "LAMBDAS", "TRUE_ONLINE", "Best", "grids", "own_grid", "published",
]  # fmt: skip

ALPHAS = 2.0 ** np.arange(-18, 1)
LAMBDAS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.9, 1.0, *(1.0 - 2.0**-k for k in range(2, 7)))
ETAS = 2.0 ** np.arange(-6, 9)
BETAS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True)
class Best:
    """A rule's best settings over all λ and at λ = 0: λ of the first; α, mean RMSVE and standard error of both.

    ``second`` is a parameter and its two values; ``coarse``: the first was sought at four λ only, and eta by 4×.
    """

    lambda_: float
    alpha: tuple[float, float]
    mean: tuple[float, float]
    se: tuple[float, float]
    second: tuple[str, float, float] | tuple[()] = ()
    coarse: bool = False

    def setting(self, which: int) -> dict[str, float]:
        """Its parameters, of the best over all λ (0) or at λ = 0 (1)."""
        name, *values = self.second or ("", 0.0, 0.0)
        own = {name: values[which]} if name else {}
        return {"alpha": self.alpha[which], self.along: (self.lambda_, 0.0)[which]} | own

    @property
    def along(self) -> str:
        """The parameter in place of λ: ζ, if the rule has it."""
        return "zeta" if "zeta" in self.second else "lambda"


#: Of Tree Backup, V-trace and ABTD: here their traces are the same, as they keep all of an action that π takes.
KEPT = Best(1.0, (2.0**-6, 2.0**-5), (0.1622, 0.326), (0.0083, 0.020))
BEST = {
    "td": Best(0.9, (2.0**-8, 2.0**-5), (0.1025, 0.326), (0.0031, 0.020)),
    "gtd": Best(0.9, (2.0**-8, 2.0**-4), (0.1024, 0.341), (0.0040, 0.033), ("eta", 4.0, 1 / 16), True),
    "gtd2": Best(0.9, (2.0**-8, 2.0**-4), (0.1055, 0.335), (0.0046, 0.032), ("eta", 16.0, 1 / 4), True),
    "htd": Best(0.9, (2.0**-8, 2.0**-5), (0.1049, 0.335), (0.0042, 0.032), ("eta", 1 / 64, 1 / 16), True),
    "proximal_gtd2": Best(0.9, (2.0**-8, 2.0**-4), (0.0981, 0.179), (0.0041, 0.015), ("eta", 16.0, 1.0), True),
    "tdrc": Best(0.9, (2.0**-8, 2.0**-5), (0.1021, 0.327), (0.0030, 0.020), ("eta", 1.0, 1.0)),
    "etd": Best(0.875, (2.0**-8, 2.0**-8), (0.0975, 0.125), (0.0036, 0.006)),
    "etd_beta": Best(0.9, (2.0**-8, 2.0**-9), (0.0987, 0.128), (0.0047, 0.009), ("beta", 0.8, 1.0), True),
    "tree_backup": KEPT,
    "vtrace": KEPT,
    "abtd": replace(KEPT, second=("zeta", 0.5, 0.0)),
}
#: etd at λ = 0 for α = 2⁻¹⁸ … 2⁻⁷; the one standard error given is that at 2⁻⁸.
CURVE = (0.6516, 0.6173, 0.5571, 0.4633, 0.3463, 0.2450, 0.1827, 0.1495, 0.1328, 0.1256, 0.1254, 0.1359)
CURVE_SE = 0.006
#: With λ = .5 and α = 2⁻⁵ etd diverges and this is true_online_etd's mean.
TRUE_ONLINE = 0.185


def grids(quick: bool, rules: tuple[str, ...]) -> list[dict[str, Any]]:
    """What is swept of some rules: the whole published grid, or the published settings, also with half and twice α."""
    made: list[dict[str, Any]] = []
    for rule in rules:
        if quick:
            own = [BEST[rule].setting(which) for which in (0, 1)]
            made += [{"rule": rule} | one | {"alpha": one["alpha"] * np.array([0.5, 1.0, 2.0])} for one in own]
        else:
            made.append(published(rule))
    if "etd" in rules:
        made.append({"rule": "true_online_etd", "alpha": 2.0**-5, "lambda": 0.5})
        if quick:
            made.append({"rule": "etd", "alpha": 2.0**-5, "lambda": 0.5})
            made.append({"rule": "etd", "alpha": ALPHAS[:13], "lambda": 0.0})
    return made


def own_grid(rule: AnyRule, quick: bool) -> dict[str, Any]:
    """The published α and λ for another rule, its other parameters as they are by default; quick, few of them."""
    alphas, lambdas = (ALPHAS[3:17:2], (0.0, 0.5, 0.9, 1.0)) if quick else (ALPHAS, LAMBDAS)
    return {"rule": rule, "alpha": alphas} | ({"lambda": lambdas} if "lambda" in parameters(rule) else {})


def published(rule: str) -> dict[str, Any]:
    """The whole grid of a rule."""
    best = BEST[rule]
    own: dict[str, Any] = {} if best.along == "zeta" else {"lambda": LAMBDAS}
    if best.second:
        name = best.second[0]
        own[name] = 1.0 if rule == "tdrc" else {"eta": ETAS, "beta": BETAS, "zeta": LAMBDAS}[name]
    return {"rule": rule, "alpha": ALPHAS, **own}
