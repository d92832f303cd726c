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
traces, a trace scales only itself, and only weights take φ'. Products of two vectors (e·w) are memory, with
recursions in x, x_next and g; no memory depends on the value of θ, so θ may be set at any time.

The same Python source is run by NumPy, compiled by numba and by Triton, so it holds only numbers, + − * /,
two-argument ``min`` and ``max``, and comparisons used as factors. A compiler that has its own ``min`` and ``max``
is given the same code with other globals. ``Rule`` checks all this, and ``Rule.source`` is the function in one form.

What scalars cannot express, such as a step size for each weight, is an ``ElementwiseRule``: the same language, applied
to the components of the vectors, in which ``exp`` may be called too. ``emphatic.stepsizes`` makes such rules.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil

from emphatic.rules._elementwise import ElementwiseRule
from emphatic.rules._exponential import exp
from emphatic.rules._fields import RANGES, STEP
from emphatic.rules._rule import Rule, Scalars, Update

__all__ = [
    "RANGES",
    "STEP",
    "AnyRule",
    "ElementwiseRule",
    "Rule",
    "Scalars",
    "Update",
    "class_names",
    "exp",
    "get",
    "names",
]

#: What a learner takes for a rule: linear ones run on every engine, elementwise ones on some.
AnyRule = Rule | ElementwiseRule

#: Family by family; a rule that is not among these comes after them.
_ORDER = (
    "td",
    "true_online_td",
    "etd",
    "etd_beta",
    "true_online_etd",
    "true_online_etd_beta",
    "gtd",
    "gtd2",
    "true_online_gtd",
    "htd",
    "proximal_gtd2",
    "tdrc",
    "gq",
    "tree_backup",
    "vtrace",
    "abtd",
)


@functools.cache
def names() -> tuple[str, ...]:
    """The rules that ship with the library, each a module of this package.

    >>> "true_online_etd" in names()
    True
    """
    found = {module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")}
    return (*(name for name in _ORDER if name in found), *sorted(found.difference(_ORDER)))


def get(name: str) -> Rule:
    """The rule of that name: ``rule`` in the module ``emphatic.rules.<name>``."""
    if not isinstance(name, str) or name not in names():
        raise ValueError(f"The 'rule' parameter must be one of {', '.join(names())}. Got {name!r} instead.")
    rule: Rule = importlib.import_module(f"emphatic.rules.{name}").rule
    return rule


def is_own(rule: AnyRule) -> bool:
    """Whether a rule is not the library's: of another name, or of a library rule's name and different from it."""
    return rule.name not in names() or rule != get(rule.name)


@functools.cache
def class_names() -> dict[str, str]:
    """The short names of learners in ``emphatic``, and the rule of each.

    >>> class_names()["TrueOnlineETD"]
    'true_online_etd'
    """
    return {rule.class_name: rule.name for rule in map(get, names()) if rule.class_name}
