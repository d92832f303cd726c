"""Validation of the fields of a rule, with one form of message."""

from __future__ import annotations

import keyword
import math
import unicodedata
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from emphatic.common import names

if TYPE_CHECKING:
    from emphatic.rules import AnyRule

__all__ = ["ATTRIBUTES", "KEYWORDS", "RANGES", "STEP", "check_fields", "refusal"]

#: What ``step`` holds before a rule's extra parameters.
STEP = ("alpha", "I", "lambda_", "rho", "gamma_next", "delta")

#: The least and the largest value each parameter may have; any finite number where none is given.
RANGES = {
    "alpha": (0.0, math.inf),
    "I": (0.0, math.inf),
    "lambda_": (0.0, 1.0),
    "rho": (0.0, math.inf),
    "gamma_next": (0.0, 1.0),
    "beta": (0.0, math.inf),
    "decay": (0.0, 1.0),
    "eta": (0.0, math.inf),
    "lambda_next": (0.0, 1.0),
    "kappa": (0.0, math.inf),
    "pi": (0.0, 1.0),
    "mu": (math.ulp(0.0), 1.0),  # an action that was chosen had a positive probability
    "xi": (0.0, math.inf),
}

#: Attributes of ``Learner``: a vector or a remembered scalar of such a name could not be read. (``theta`` is θ.)
ATTRIBUTES = frozenset(
    (
        *("n", "K", "dtype", "engine", "steps", "frozen", "nbytes", "rule", "grain", "stepsize", "position"),
        *("learn", "run", "predict", "cut", "copy", "select", "save", "load_with"),
    )
)

#: Keywords of ``Learner.learn`` and ``Learner.run``: an extra parameter of such a name could not be given.
KEYWORDS = frozenset(
    (
        *("self", "alpha", "I", "lambda_", "phi", "rho", "R", "phi_next", "gamma_next", "Phi", "Phi_next", "first"),
        *("predictions", "returns", "probe", "probe_every", "on_divergence"),
    )
)

_EMPHASES = ("", "gamma", "decay")
_FIXED_POINTS = ("", "projected", "cut", "residual")


def refusal(rule: str, field: str, wanted: str, got: str) -> ValueError:
    """The error for an invalid field of a rule."""
    return names.refusal(field, f"Rule({rule!r}, …)", wanted, got)


def check_fields(rule: AnyRule) -> None:
    """ValueError unless every field except the function is valid."""
    if not isinstance(rule.name, str) or not rule.name:
        raise refusal(rule.name, "name", "be a name of one letter or more", repr(rule.name))
    for field in ("weights", "traces", "memory", "extra"):
        _check_identifiers(rule.name, field, getattr(rule, field))
    if not rule.weights:
        raise refusal(rule.name, "weights", "name one vector or more, such as ('theta',)", "none")
    _check_kept(rule)
    if not isinstance(rule.lasting, tuple) or rule.lasting != rule.memory[len(rule.memory) - len(rule.lasting) :]:
        raise refusal(rule.name, "lasting", "name the last of the memory, in order", repr(rule.lasting))
    _check_of_extra(rule, "defaults", rule.defaults)
    _check_extra(rule)
    _check_defaults(rule)
    _check_ranges(rule)
    _check_ordered(rule)
    for kind, names_of_kind in ((bool, ("interest", "action_values", "continuing")), (str, ("paper", "update"))):
        for field in names_of_kind:
            if not isinstance(getattr(rule, field), kind):
                raise refusal(rule.name, field, f"be a {kind.__name__}", repr(getattr(rule, field)))
    for field, kinds in (("emphasis", _EMPHASES), ("fixed_point", _FIXED_POINTS)):
        if getattr(rule, field) not in kinds:
            raise refusal(rule.name, field, f"be one of {', '.join(map(repr, kinds))}", repr(getattr(rule, field)))
    for field in ("change", "eager"):
        value = getattr(rule, field, "")
        if value and value not in rule.memory:
            raise refusal(rule.name, field, f"be one of the memory, {', '.join(rule.memory)}", repr(value))


def _is_identifier(name: Any) -> bool:
    """Whether this name is valid in Python source and as the name of a keyword argument."""
    return (
        isinstance(name, str)
        and name.isidentifier()
        and not keyword.iskeyword(name)
        and name != "__debug__"
        and unicodedata.normalize("NFKC", name) == name
    )


def _check_identifiers(rule: str, field: str, names: Any) -> None:
    if not isinstance(names, tuple):
        raise refusal(rule, field, "be a tuple of names, such as ('e',) or ()", repr(names))
    for name in names:
        if not _is_identifier(name):
            raise refusal(rule, field, "hold Python identifiers that are not keywords", repr(name))
        if names.count(name) > 1:
            raise refusal(rule, field, "name each once", f"{name!r} {names.count(name)} times")


def _check_kept(rule: AnyRule) -> None:
    """The names of vectors and memory, which are attributes of a learner."""
    seen: dict[str, str] = {}
    for field in ("weights", "traces", "memory"):
        for name in getattr(rule, field):
            if name.startswith("_"):
                raise refusal(rule.name, field, "hold names that do not begin with an underscore", repr(name))
            if name in ATTRIBUTES:
                raise refusal(rule.name, field, "hold names that are not attributes of Learner itself", repr(name))
            if name == "theta" and rule.weights[0] != "theta":
                raise refusal(rule.name, field, "use 'theta' only for the first of the weights", f"it in {field!r}")
            if name in seen:
                raise refusal(rule.name, field, f"hold other names than {seen[name]!r}", f"{name!r} in both")
            seen[name] = field


def _check_extra(rule: AnyRule) -> None:
    """The names of extra parameters, which are keywords of ``learn`` and ``run``."""
    for name in rule.extra:
        if name in KEYWORDS or name in STEP:
            wanted = "hold names that a step, learn and run do not have already"
        elif name in (*rule.weights, *rule.traces, *rule.memory):
            wanted = "hold names that the rule's vectors and memory do not have"
        elif name == "eta" and "eta" in rule.defaults.values():
            wanted = "hold other names than 'eta', which a default is made of"
        else:
            continue
        raise refusal(rule.name, "extra", wanted, repr(name))


def _check_defaults(rule: AnyRule) -> None:
    known = [name for name in STEP if name != "delta"] + ["R"]
    for name in rule.extra:
        value = rule.defaults.get(name)
        if name not in rule.defaults or (isinstance(value, str) and (value == "eta" or value in known)):
            pass
        elif not _is_number(value):  # (a parameter whose default is infinite may be infinite)
            wanted = "be finite numbers, ∞, −∞, 'eta', or names of parameters that come before"
            raise refusal(rule.name, "defaults", wanted, f"{value!r} for {name!r}")
        known.append(name)


def _check_ranges(rule: AnyRule) -> None:
    _check_of_extra(rule, "extra_ranges", rule.extra_ranges)
    for name, pair in rule.extra_ranges.items():
        fine = isinstance(pair, tuple) and len(pair) == 2 and all(_is_number(end) for end in pair)
        if not (fine and pair[0] <= pair[1]):
            wanted = "be pairs of the least and the largest value"
            raise refusal(rule.name, "extra_ranges", wanted, f"{pair!r} for {name!r}")
    for name, value in rule.defaults.items():
        low, high = {**RANGES, **rule.extra_ranges}.get(name, (-math.inf, math.inf))
        if not isinstance(value, str) and not low <= value <= high:
            wanted = f"be in the range of the parameter, from {low:g} to {high:g} for {name!r}"
            raise refusal(rule.name, "defaults", wanted, repr(value))


def _check_ordered(rule: AnyRule) -> None:
    pair = rule.ordered
    if not isinstance(pair, tuple) or len(pair) not in (0, 2):
        raise refusal(rule.name, "ordered", "be a pair of extra parameters, or ()", repr(pair))
    _check_of_extra(rule, "ordered", dict.fromkeys(pair))
    ends = [end for end in map(rule.defaults.get, pair) if isinstance(end, int | float)]
    if ends != sorted(ends):
        wanted = f"be in order, {pair[0]!r} at most {pair[1]!r}"
        raise refusal(rule.name, "defaults", wanted, " and ".join(map(repr, ends)))


def _check_of_extra(rule: AnyRule, field: str, mapping: Any) -> None:
    if not isinstance(mapping, Mapping):
        raise refusal(rule.name, field, "be a mapping from extra parameters", repr(mapping))
    for name in mapping:
        if name not in rule.extra:
            known = ", ".join(rule.extra) or "none"
            raise refusal(rule.name, field, f"be of extra parameters, here {known}", repr(name))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
