"""Rules and step-size methods that nobody has written: every engine that accepts one gives what the reference gives.

A rule that is refused is refused for a reason that can be seen with numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

import emphatic
from emphatic import Learner, Rule
from emphatic.rules import AnyRule
from emphatic.stepsizes.scalar import Method, ScalarStepSize
from tests.support.plain import plain_python
from tests.support.random_elementwise import breaches, draft_rule
from tests.support.random_rules import Pick, bounded, functions_of, make_rule, unpack
from tests.support.streams import TOLERANCE, Stream, make, relative_error

__all__ = ["own_elementwise_rules", "own_rules", "own_stepsizes"]

Rng = np.random.Generator
#: A short stream has several chunks: see ``plain_python``.
STEPS, FEATURES = 17, 5


def picking(rng: Rng) -> Pick:
    return lambda options: options[int(rng.integers(len(options)))]


def outcome(rule: AnyRule, engine: str, stream: Stream, extra: dict[str, Any], **kind: Any) -> dict[str, Any]:
    """Everything that a learner has after the stream, and what it predicted."""
    learner = Learner(rule, stream.n, stream.K, engine=engine, **kind)
    learner.theta = np.random.default_rng(1).normal(size=learner.theta.shape).astype(np.float32)
    Phi, Phi_next = stream.features()
    p: dict[str, Any] = stream.parameters() | extra
    if not rule.interest:
        p["I"] = 1.0
    R, gamma_next = p.pop("R"), p.pop("gamma_next")
    predictions = learner.run(Phi, R, gamma_next, Phi_next=Phi_next, **p)
    own = {name: np.broadcast_to(value, R.shape) for name, value in (p | {"R": R, "gamma_next": gamma_next}).items()}
    for t in range(stream.T // 2):  # and a few steps one by one
        phi, phi_next = stream.step_features(t)
        learner.learn(phi=phi, phi_next=phi_next, **{name: value[t] for name, value in own.items()})
    return {name: getattr(learner, name) for name in learner.rule.vectors + learner.rule.memory} | {"θ·φ": predictions}


def compare(
    rule: AnyRule, rng: Rng, engines: tuple[str, ...], described: str, dtype: str = "float64", **kind: Any
) -> None:
    """AssertionError unless each of these engines gives what the reference gives."""
    K = [None, 3][rng.integers(2)]
    active = [None, 2][rng.integers(2)]
    stream = make(
        int(rng.integers(2**32)), STEPS, FEATURES, K, active=active, binary=False, separate=active is not None
    )
    extra = {name: rng.uniform(0.0, 1.0, stream.R.shape) * (-1.0 if name == "low" else 1.0) for name in rule.extra}
    wanted = outcome(rule, "reference", stream, extra, **kind)
    for engine in engines:
        values = outcome(rule, engine, stream, extra, dtype=dtype, **kind)
        for name, value in wanted.items():
            error = relative_error(values[name], value)
            assert error <= TOLERANCE[dtype], f"{name} on {engine} is off by {error:.1e} (K={K}):\n{described}"


def linear_engines(rng: Rng) -> tuple[str, ...]:
    """Those that run every linear rule; one rule in ten is compiled for a GPU, if there is one."""
    has_cuda = "cuda" in emphatic.engines.available() and rng.random() < 0.1
    return ("dense", "sparse", "chunked") + ("cuda",) * has_cuda


def own_rules(rng: Rng) -> None:
    """A linear rule of random structure, on every engine."""
    with plain_python():
        rule = make_rule(picking(rng))
        compare(rule, rng, linear_engines(rng), rule.source, ["float64", "float32"][rng.integers(2)])


def own_elementwise_rules(rng: Rng) -> None:
    """An elementwise rule of random structure: refused for a true reason, or right wherever it is accepted."""
    draft = draft_rule(picking(rng))
    with plain_python():
        try:
            rule = draft.rule()
        except ValueError as error:
            message = str(error)
        else:
            message = ""
        if message:
            assert "must be A X where φ and φ' are 0" in message, draft.source
            assert breaches(draft.fields, rng), draft.source
            return
        assert emphatic.engines.choose(FEATURES, None, 1, 2.0, rule) == ("sparse" if rule.is_lazy else "dense")
        if not rule.is_lazy:
            assert "does not show" not in rule.not_lazy_because or rule.eager, (rule.not_lazy_because, draft.source)
            assert breaches(draft.fields, rng), (rule.not_lazy_because, draft.source)
            with pytest.raises(ValueError, match=re.escape(rule.not_lazy_because)):
                Learner(rule, FEATURES, engine="sparse")
        compare(rule, rng, ("dense", "sparse") if rule.is_lazy else ("dense",), draft.source)


@dataclass(frozen=True, eq=False)
class OwnStepSize(ScalarStepSize):
    """A step size that some expression computes."""

    rate: Any = 0.3
    bound: Any = None

    name: ClassVar[str] = "own"
    made: ClassVar[Any] = None

    def method(self) -> Method:
        return Method((("name", "own"),), self.made, ("stepsize_seen", "stepsize_rate", "stepsize_inverse_bound"))


def own_stepsizes(rng: Rng) -> None:
    """A step-size method whose factor is drawn, with any rule of the library, on every engine."""
    pick = picking(rng)
    scalars = ["alpha", "I", "lambda_", "rho", "gamma_next", "delta", "seen", "square", "product", "square_next"]
    rule: Rule = emphatic.rules.get(pick(emphatic.rules.names()))
    names = rule.arguments["step"][6:]
    source = "def factor(step, memory, g):\n" + unpack([*scalars[:6], *names], "step")
    source += unpack(["seen", "rate", "inverse_bound"], "memory") + unpack(scalars[-3:], "g")
    source += f"    return rate * (0.5 + {bounded(pick, scalars)}), ({bounded(pick, scalars)}, rate, inverse_bound)\n"
    OwnStepSize.made = staticmethod(functions_of(source)["factor"])
    method = OwnStepSize(rate=float(rng.uniform(0.05, 0.3)), bound=pick((None, 0.5)))
    with plain_python():
        compare(rule, rng, linear_engines(rng), f"{rule.name}:\n{source}", stepsize=method)
