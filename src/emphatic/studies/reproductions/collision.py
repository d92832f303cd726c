"""The Collision study: eleven algorithms over step size, λ and a second parameter.

Ghiassian & Sutton (2021). Eight states in a row, six binary features drawn anew for each run, 50 runs of 20,000 steps;
the RMSVE, weighted by d_μ, before each step. The whole grid has 16,416 settings and takes 1.6·10¹⁰ learner-steps, all
through ``emphatic.studies.sweep``. The numbers compared with are a replay of the authors' updates on their feature
draws; ours are other draws, so that to agree is to be within three standard errors of the difference.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic import problems
from emphatic.report import Axis, Figure, Key, Line, Marks, Panel, Plot, category, shades
from emphatic.studies.agreement import Check, Outcome, claim, compare
from emphatic.studies.parallel import Progress, silent
from emphatic.studies.results import Sweep, over_runs
from emphatic.studies.sweeping import sweep

__all__ = ["SOURCE", "TITLE", "run"]

TITLE = "The Collision study"
SOURCE = (
    "Ghiassian & Sutton, An Empirical Comparison of Off-policy Prediction Learning Algorithms on the Collision Task "
    "(2021); its numbers from a replay of the authors' updates on their feature draws."
)

Array = NDArray[np.float64]
ALPHAS = 2.0 ** np.arange(-18, 1)
LAMBDAS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.9, 1.0, *(1.0 - 2.0**-k for k in range(2, 7)))
ETAS = 2.0 ** np.arange(-6, 9)
BETAS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
RUNS, STEPS = 50, 20_000


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
        along = {} if "zeta" in own else {"lambda": (self.lambda_, 0.0)[which]}
        return {"alpha": self.alpha[which], **along, **own}


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
#: A mean RMSVE above this is taken as divergence: it is .69 before anything is learned.
DIVERGED = 100.0


def grids(quick: bool, rules: tuple[str, ...]) -> list[dict[str, Any]]:
    """The whole published grid of some rules, or of it only what there are numbers for."""
    made = []
    for rule in rules:
        best = BEST[rule]
        if quick:
            made += [{"rule": rule, **best.setting(which)} for which in (0, 1)]
            made += [{"rule": "etd", "alpha": ALPHAS[:13], "lambda": 0.0}] if rule == "etd" else []
            continue
        second = best.second[0] if best.second else ""
        along = {"zeta": LAMBDAS} if second == "zeta" else {"lambda": LAMBDAS}
        own = {"eta": (1.0,) if rule == "tdrc" else ETAS} if second == "eta" else {}
        made.append({"rule": rule, "alpha": ALPHAS, **along, **own, **({"beta": BETAS} if second == "beta" else {})})
    if "etd" in rules:
        made.append({"rule": ["true_online_etd", *["etd"] * quick], "alpha": 2.0**-5, "lambda": 0.5})
    return made


class Scores:
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

    def said(self, i: int) -> str:
        """A setting in words."""
        told = {name: column[i] for name, column in self.parameters.items() if not np.isnan(column[i])}
        return ", ".join(
            f"{name} {_power(value) if name in ('alpha', 'eta') else f'{value:g}'}" for name, value in told.items()
        )


def _power(value: float) -> str:
    return f"2^{round(np.log2(value))}"


def checks(found: Scores, quick: bool, rules: tuple[str, ...]) -> list[Check]:
    """Every published number of these rules."""
    out = []
    for rule in rules:
        best = BEST[rule]
        for which, name in enumerate(("best over λ", "λ = 0")):
            i = found.best(rule, **best.setting(which))
            out.append(_against(f"{rule}, {name}: that setting", best, which, found, i))
            if quick:
                continue
            along = "zeta" if rule == "abtd" else "lambda"
            sought: dict[str, Any] = {along: 0.0} if which else {}
            if best.coarse and which == 0:
                sought = {along: (0.0, 0.5, 0.9, 1.0)}
            if best.coarse and "eta" in best.setting(0):
                sought["eta"] = ETAS[::2]
            out.append(_against(f"{rule}, {name}", best, which, found, found.best(rule, **sought)))
    return out + (_of_etd(found) if "etd" in rules else [])


def _against(name: str, best: Best, which: int, found: Scores, i: int) -> Check:
    tolerance = 3.0 * np.hypot(best.se[which], found.se[i])
    return compare(name, best.mean[which], found.mean[i], tolerance, f"{found.said(i)}; ± {found.se[i]:.4f}")


def _of_etd(found: Scores) -> list[Check]:
    out = []
    there = [found.best("etd", **{"alpha": alpha, "lambda": 0.0}) for alpha in ALPHAS[:13]]
    wider = np.hypot(1.0, CURVE_SE / found.se[there[10]])
    for alpha, i, published in zip(ALPHAS, there, CURVE, strict=False):
        out.append(compare(f"etd, λ = 0, α = {_power(alpha)}", published, found.mean[i], 3.0 * wider * found.se[i]))
    high = {"alpha": 2.0**-5, "lambda": 0.5}
    survivor, lost = found.best("true_online_etd", **high), found.best("etd", **high)
    for name, i in (("etd, λ = 0, α = 2^-6", there[12]), ("etd, λ = .5, α = 2^-5", lost)):
        mean = float(found.mean[i])
        out.append(
            claim(name, "diverges", mean, not mean < DIVERGED, f"agrees if the mean RMSVE is above {DIVERGED:g}")
        )
    tolerance = 3.0 * np.sqrt(2.0) * found.se[survivor]
    out.append(compare("true_online_etd, λ = .5, α = 2^-5", TRUE_ONLINE, found.mean[survivor], tolerance))
    return out


def scores(quick: bool, rules: tuple[str, ...], seed: int = 0, jobs: int = 1, progress: Progress = silent) -> Scores:
    """Learn the grid of some rules; in the quick mode the error is that of every 50th step."""
    return Scores(
        sweep(
            "collision", grids(quick, rules), runs=RUNS, steps=STEPS, every=50 if quick else 1, points=2, seed=seed,
            jobs=jobs, progress=lambda done, total: progress("learner-steps", done, total),
        )
    )  # fmt: skip


def run(quick: bool, seed: int, jobs: int, progress: Progress) -> Outcome:
    """The whole grid, or in the quick mode the published settings."""
    rules = tuple(BEST)
    found = scores(quick, rules, seed, jobs, progress)
    task = problems.collision()
    exact = [
        compare("d_μ × 35", [2, 4, 6, 8, 8, 4, 2, 1], 35 * task.d_mu, 1e-12),
        compare("RMSVE at w = 0", 0.68908, task.rmsve(np.zeros(6)), 5e-6),
    ]
    notes = [
        "Tolerance: three standard errors of the difference, 3·√(se² + se²), as the feature draws differ. Along the "
        "curve of etd one standard error is published, at 2⁻⁸; the others are taken to be in the same proportion to "
        "ours. None is published for true_online_etd: ours, twice.",
        "The published best of gtd, gtd2, htd, proximal_gtd2 and etd_beta were sought at λ = 0, .5, .9 and 1, with eta "
        "by 4×; our best is sought in the same part of the grid.",
    ]
    if quick:
        notes.append("Quick: all runs and steps, but only of the published settings, and the error of every 50th step.")
    figures = [_bests(found, quick), _curve(found), *([] if quick else [_sensitivity(found)])]
    settings = {
        "runs": RUNS,
        "steps": STEPS,
        "settings": len(found.mean),
        "learner-steps": len(found.mean) * RUNS * STEPS,
    }
    return Outcome([*exact, *checks(found, quick, rules)], figures, notes, settings)


def _bests(found: Scores, quick: bool) -> Figure:
    panels = []
    places = np.arange(len(BEST))
    for which, title in enumerate(("best over λ", "λ = 0")):
        ours = []
        for rule, best in BEST.items():
            along = "zeta" if rule == "abtd" else "lambda"
            sought: dict[str, Any] = best.setting(which) if quick else {along: 0.0} if which else {}
            ours.append(found.best(rule, **sought))
        names = [f"{rule}: {found.said(i)}" for rule, i in zip(BEST, ours, strict=True)]
        mine = Marks(
            places - 0.12, found.mean[ours], "ours", category(0), symbol="dot", error=found.se[ours], notes=names
        )
        means, ses = zip(*((best.mean[which], best.se[which]) for best in BEST.values()), strict=True)
        theirs = Marks(places + 0.12, means, "published", error=ses)
        panels.append(Panel(f"mean RMSVE, {title}", [], marks=[mine, theirs]))
    ticks = {float(i): rule for i, rule in enumerate(BEST)}
    x = Axis("", range=(-0.6, len(BEST) - 0.4), ticks=ticks)
    plot = Plot({"all": panels}, "bests", 1, 1, x=x, y=Axis("RMSVE"), closest=True)
    keys = [Key(category(0), "ours", symbol="dot"), Key("truth", "published", symbol="diamond")]
    return Figure(
        "Best settings", plot, "Bars: one standard error. Ours over the whole grid." if not quick else "", keys
    )


def _sensitivity(found: Scores) -> Figure:
    shade = shades(sorted(LAMBDAS))
    panels = []
    for rule, best in BEST.items():
        along = "zeta" if rule == "abtd" else "lambda"
        lines = []
        for value, place in shade.items():
            there = [found.best(rule, **{"alpha": alpha, along: value}) for alpha in ALPHAS]
            name = f"{'ζ' if along == 'zeta' else 'λ'} = {value:g}"
            lines.append(Line(ALPHAS, found.mean[there], name, "ramp", place, width=1.2, key=f"shade{place}"))
        marks = [Marks(best.alpha, best.mean, "published", error=best.se)]
        panels.append(Panel(rule, lines, (0.0, 0.75), marks))
    plot = Plot({"all": panels}, "sensitivity", 3, 1, x=Axis("α", "log2"), y=Axis("RMSVE"), closest=True)
    keys = [Key("ramp", f"λ or ζ = {value:g}", place, f"shade{place}") for value, place in shade.items()]
    caption = "Each line is the least over the second parameter. Diamonds: the published best over λ, and at λ = 0."
    return Figure("Error over α, for each λ", plot, caption, keys)


def _curve(found: Scores) -> Figure:
    there = [found.best("etd", **{"alpha": alpha, "lambda": 0.0}) for alpha in ALPHAS[:12]]
    mean, se = found.mean[there], found.se[there]
    line = Line(ALPHAS[:12], mean, "etd, λ = 0", category(0), low=mean - 2 * se, high=mean + 2 * se)
    marks = Marks(ALPHAS[:12], CURVE, "published")
    plot = Plot(
        {"all": [Panel("mean RMSVE", [line], (0.0, 0.7), [marks])]}, "curve", x=Axis("α", "log2"), y=Axis("RMSVE")
    )
    keys = [Key(category(0), "etd, λ = 0"), Key("truth", "published", symbol="diamond")]
    return Figure("Emphatic TD(0) over α", plot, "Band: two standard errors. At α = 2⁻⁶ it diverges.", keys)
