"""Rules: WHAT is learned.  One short file per algorithm, scalars only.

Every linear TD algorithm keeps a few vectors X (θ, e, perhaps w, …) and, each step, does

    X ← A X + B [φ ; φ']            A is m×m, B is m×2, both made of scalars.

A rule is one pure function that computes those scalars:

    A, B, memory = function(step, memory, x, x_next, g)

    step    (alpha, I, lambda_, rho, gamma_next, delta, *extra)     δ = R + γ'θ·φ' − θ·φ comes from the engine
    memory  the remembered scalars, all 0 at the start and after ``cut``
    x       X·φ,  one inner product per vector, before the update
    x_next  X·φ', the same
    g       (φ·φ, φ·φ', φ'·φ')

Weights (θ, w) come before traces in X, and A is an *arrow*: a weight scales itself and takes multiples of the
traces, a trace scales only itself, and only weights take φ', besides a trace that is the last φ' itself and that no
weight takes. Products of two vectors (e·w) are memory, with recursions in x, x_next and g; no memory depends on the
value of θ, so θ may be set at any time.

The same Python source is run by NumPy, compiled by numba and by Triton, so it holds only numbers, + − * /,
two-argument ``min`` and ``max``, and comparisons used as factors. A compiler that has its own ``min`` and ``max``
is given the same code with other globals. ``Rule`` checks all this, and ``Rule.source`` is the function in one form.

What scalars cannot express, such as a step size for each weight, is an ``ElementwiseRule``: the same language, applied
to the components of the vectors, in which ``exp``, ``sqrt`` and ``log`` may be called too. ``emphatic.stepsizes`` makes
such rules.
"""

from __future__ import annotations

import functools

from emphatic.common.discovery import discover
from emphatic.common.names import suggestion
from emphatic.rules._elementwise import ElementwiseRule
from emphatic.rules._fields import RANGES, STEP
from emphatic.rules._functions import exp, log, sqrt
from emphatic.rules._replacing import replacing_td
from emphatic.rules._rule import Rule, Scalars, Update
from emphatic.rules._separate import separate
from emphatic.rules._truncated import nstep_etd, truncated_etd

__all__ = [
    "RANGES",
    "STEP",
    "AnyRule",
    "ElementwiseRule",
    "Rule",
    "Scalars",
    "Update",
    "exp",
    "get",
    "log",
    "names",
    "nstep_etd",
    "replacing_td",
    "separate",
    "sqrt",
    "truncated_etd",
]

#: What a learner takes for a rule: linear ones run on every engine, elementwise ones on some.
AnyRule = Rule | ElementwiseRule

#: Family by family; a rule that is not among these comes after them.
_ORDER = (
    *("td", "true_online_td", "etd", "etd_beta", "true_online_etd", "true_online_etd_beta", "bounded_etd"),
    *("gtd", "gtd2", "true_online_gtd", "htd", "proximal_gtd2", "tdrc", "gq"),
    *("tree_backup", "vtrace", "abtd", "residual_gradient"),
    *("emphatic_q", "differential_td", "differential_etd", "per_etd", "clipped_etd"),
)

_PLUGINS = discover(__name__, "emphatic.rules")


def names() -> tuple[str, ...]:
    """The names of the rules: those of the library, each a module of this package, and those of entry points.

    >>> "true_online_etd" in names()
    True
    """
    return (*_library(), *_PLUGINS.entry_points)


def get(name: str) -> Rule:
    """The rule of that name.

    Args:
        name: a module of this package, whose ``rule`` it is, or an entry point of the group "emphatic.rules".

    Raises:
        ValueError: if there is no such rule.
    """
    rule: Rule
    if not isinstance(name, str) or name not in _PLUGINS:
        wanted = f"The 'rule' parameter must be one of {', '.join(names())}. Got {name!r} instead."
        raise ValueError(f"{wanted}{suggestion(name, names())}")
    if name in _PLUGINS.files:
        rule = _PLUGINS[name].rule
    else:
        wanted = f"an emphatic.Rule with the name {name!r}"
        rule = _PLUGINS.objects(name, lambda value: isinstance(value, Rule) and value.name == name, wanted)[0]
    return rule


@functools.cache
def _library() -> tuple[str, ...]:
    """The rules that ship with the library."""
    files = _PLUGINS.files
    return (*(name for name in _ORDER if name in files), *(name for name in files if name not in _ORDER))


def is_own(rule: AnyRule) -> bool:
    """Whether a rule is not the library's: of another name, or of a library rule's name and different from it."""
    return rule.name not in _PLUGINS or rule.plain != get(rule.name)
