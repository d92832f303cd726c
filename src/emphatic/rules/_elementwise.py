"""An algorithm with a step size for each weight, as data: names, and a few functions of scalars and of components."""

from __future__ import annotations

import ast
import functools
import inspect
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from emphatic.rules import _lazy, _source, _structure
from emphatic.rules._fields import STEP, check_fields, refusal
from emphatic.rules._functions import exp, log, sqrt
from emphatic.rules._rule import Scalars
from emphatic.rules._traits import RuleFields

__all__ = ["ElementwiseRule"]


@dataclass(frozen=True)
class ElementwiseRule(RuleFields):
    """An algorithm whose vectors are updated component by component; scalars A and B cannot express it (α_i e_i, …).

        X_i          ← adapt(u, X_i, φ_i)              u = signal(step, memory); where the rule has them
        sums         = Σ_i terms(X_i, φ_i, φ'_i)
        A, s, memory = function(step, memory, sums)
        X_i          ← component(s, X_i, φ_i, φ'_i)

    X_i is a tuple, the i-th component of each vector; A is an arrow as in ``Rule``. A rule is *lazy* if, where
    φ_i = φ'_i = 0, ``adapt`` changes nothing, ``component`` is A X_i and ``terms`` are 0. Components that are not
    active are then updated by scalars, and the sparse engine need not visit them. It rejects a rule that is not lazy;
    this is decided when the rule is created. Linear rules are the special case of a linear ``component``.

    For an ``eager`` rule these conditions must hold only where the traces are 0, and A must be 1 for the weights: each
    component is updated by itself as long as it has a trace. ``eager`` names the scalar of the memory with a fraction:
    the sparse engine drops the traces of a component when they have decayed to this fraction since φ_i was last not 0.
    They must decay as A says, and take only φ.

    Functions are written as those of a ``Rule``; they may also call ``exp``, ``sqrt`` and ``log`` of
    ``emphatic.rules``.

    Args:
        name: The rule's name.
        terms: The terms of the sums: (X_i, φ_i, φ'_i) to a tuple.
        function: The scalars: (step, memory, sums) to A, s and the next memory.
        component: The update of the i-th components: (s, X_i, φ_i, φ'_i) to the next X_i.
        weights: The names of the weight vectors, θ first; θ alone unless given.
        traces: The names of the traces; e unless given.
        memory: The names of the scalars that it remembers.
        signal: The scalars u that ``adapt`` uses, from (step, memory).
        adapt: What happens to X_i before the sums: (u, X_i, φ_i) to X_i.
        change: The entry of the memory into which the engine puts (θ_new − θ)·φ' after the step, true online TD's D.
        eager: The entry of the memory that holds the fraction below which decayed traces are dropped; see above.
        extra: Its parameters besides α, I, λ, ρ and γ'.
        defaults: The values of extra parameters that are not passed, as in ``Rule``.
        interest: Whether steps are weighted by the interest I. A rule without accepts only I = 1.
        paper: Where the rule is from, for the table of rules.
        extra_ranges: The least and the largest value of each extra parameter that is not in ``RANGES``.
        emphasis: The discount of the follow-on trace F: "gamma", "decay", or "" where there is none.
        fixed_point: Where the expected update is 0, as in ``Rule``.
        action_values: Whether φ is of a state and an action.
        update: The update in words, for the table of rules; by default the function's docstring.
        lasting: The last entries of the memory, which ``cut`` leaves unchanged.
        continuing: Whether γ = 1 throughout is meant, as in ``Rule``.
        ordered: Two extra parameters in order, as in ``Rule``.
    """

    name: str
    terms: Callable[[Scalars, Any, Any], Scalars]
    function: Callable[[Scalars, Scalars, Scalars], Any]
    component: Callable[[Scalars, Scalars, Any, Any], Scalars]
    weights: tuple[str, ...] = ("theta",)
    traces: tuple[str, ...] = ("e",)
    memory: tuple[str, ...] = ()
    signal: Callable[[Scalars, Scalars], Scalars] | None = None
    adapt: Callable[[Scalars, Scalars, Any], Scalars] | None = None
    eager: str = ""
    #: The functions as engines compile them.
    source: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_fields(self)
        if (self.adapt is None) != (self.signal is None):
            raise refusal(self.name, "adapt", "be given together with 'signal', or neither", "one of them")
        texts = [_renamed(inspect.getsource(exp), "exp")]
        for name, held in self._arguments.items():
            made = _source.canonical(self.name, getattr(self, name), held, name, exp=exp, sqrt=sqrt, log=log)
            texts.append(_renamed(made, "rule" if name == "function" else name))
        object.__setattr__(self, "source", "\n\n".join(texts))
        _ = self.form
        _ = self.not_lazy_because

    @functools.cached_property
    def _arguments(self) -> dict[str, dict[str, tuple[str, ...]]]:
        """The arguments of each function; the functions themselves determine how many sums and scalars there are."""
        step = {"step": STEP + self.extra, "memory": self.memory}
        found = {"terms": {"z": self.vectors, "p": (), "q": ()}}
        if self.signal is not None:
            (u,) = self._lengths("signal", step)
            found |= {"signal": step, "adapt": {"u": _numbered("u", u), "z": self.vectors, "p": ()}}
        (sums,) = self._lengths("terms", found["terms"])
        found["function"] = step | {"sums": _numbered("sum", sums)}
        _, s, _ = self._lengths("function", found["function"], "A, s, memory")
        found["component"] = {"s": _numbered("s", s), "z": self.vectors, "p": (), "q": ()}
        return found

    def _lengths(self, name: str, held: dict[str, tuple[str, ...]], parts: str = "") -> list[int]:
        """How many numbers there are in the tuple that a function returns, or in each part of it."""
        function = getattr(self, name)
        if not callable(function):
            raise refusal(self.name, name, "be a function written in Python", repr(function))
        try:
            returned = function(*_ones(held))
        except Exception as error:
            wanted = f"take {', '.join(held)} and return numbers"
            raise refusal(self.name, name, wanted, f"{type(error).__name__}: {error}") from error
        groups = returned if parts else (returned,)
        due = len(parts.split(", "))
        if not isinstance(groups, tuple) or len(groups) != due or not all(isinstance(one, tuple) for one in groups):
            raise refusal(self.name, name, f"return {f'the tuples {parts}' if parts else 'a tuple'}", repr(returned))
        return [len(group) for group in groups]

    @property
    def counts(self) -> tuple[int, int, int]:
        """How many sums there are, how many scalars s, and how many u."""
        found = self._arguments
        return len(found["function"]["sums"]), len(found["component"]["s"]), len(found.get("adapt", {"u": ()})["u"])

    @functools.cached_property
    def pure(self) -> dict[str, Any]:
        """The functions by name, for numbers; ``rule`` is ``function``."""
        return self.functions(min, max)

    @functools.cached_property
    def vectorized(self) -> dict[str, Any]:
        """The same for arrays."""
        return self.functions(np.minimum, np.maximum)

    @property
    def set_from_outside(self) -> tuple[str, ...]:
        """The vectors besides θ that need not begin at 0."""
        return ()

    def functions(self, least: Any, most: Any) -> dict[str, Any]:
        """The functions by name, for numbers of another kind.

        Args:
            least: what they call as ``min``.
            most: what they call as ``max``.
        """
        namespace: dict[str, Any] = {"min": least, "max": most, "sqrt": sqrt, "log": log, "__builtins__": {}}
        exec(compile(self.source, "<elementwise rule>", "exec", dont_inherit=True), namespace)
        return namespace

    @functools.cached_property
    def not_lazy_because(self) -> str:
        """Why each step has to visit every component, active or not; "" where it need not."""
        return _lazy.obstacle(self)

    @functools.cached_property
    def form(self) -> _structure.Form:
        """The structure of A; B, which an elementwise rule does not have, is 0."""
        held = self._arguments["function"]
        arguments = [tuple(_structure.Computed() for _ in names) for names in held.values()]
        either = _structure.Computed.either
        rule = types.FunctionType(
            self.pure["rule"].__code__, dict.fromkeys(("min", "max", "exp", "sqrt", "log"), either)
        )
        A, _, memory = rule(*arguments)
        B = tuple((0.0, 0.0) for _ in self.vectors)
        _structure.check_shapes(self, (A, B, memory))
        return _structure.arrow(self, (A, B))

    @property
    def products(self) -> tuple[tuple[bool, ...], tuple[bool, ...], tuple[bool, ...]]:
        """None of the inner products that engines compute for a ``Rule``."""
        none = (False,) * len(self.vectors)
        return none, none, (False,) * 3

    @functools.cached_property
    def uses(self) -> tuple[str, ...]:
        """The parameters of a step that the functions use: assumed to be all of them."""
        return self.parameters


def _ones(held: dict[str, tuple[str, ...]]) -> list[Any]:
    """Numbers with which a function can be called."""
    return [tuple(0.5 for _ in names) if name not in "pq" else 0.5 for name, names in held.items()]


def _numbered(letter: str, count: int) -> tuple[str, ...]:
    return tuple(f"{letter} {i}" for i in range(count))


def _renamed(source: str, name: str) -> str:
    """A function's text under another name, without annotations and docstring."""
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.FunctionDef)
    definition.name, definition.returns = name, None
    for argument in definition.args.args:
        argument.annotation = None
    if isinstance(definition.body[0], ast.Expr):
        del definition.body[0]
    return ast.unparse(definition)
