"""True online learning is the exact online forward view, for arbitrary sequences.

Source: Sutton (2015), and van Hasselt, Mahmood & Sutton (2014) for the proof with ρ, γ and λ varying. The
forward view knows no trace, no F and no D: at every t it goes back to θ_0 and updates all earlier
predictions towards the targets that can be known by then. Its emphasis is the sum over the past, without
F.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import emphatic
from emphatic import reference
from tests.support import equations
from tests.support.equations import Array, Sequence
from tests.support.streams import Stream, make, relative_error, streams

EXACT = 1e-12

EMPHASIS: dict[str, Callable[[Sequence], Array]] = {
    "true_online_td": lambda s: s.I,
    "true_online_etd": equations.emphasis_as_a_sum,
    "true_online_etd_beta": lambda s: equations.emphasis_as_a_sum(s, equations.beta_discount(s)),
}


def forward_view(rule: str, stream: Stream, theta_0: Array) -> Array:
    s = stream.sequence(theta_0=theta_0)
    return equations.forward_view(s, EMPHASIS[rule](s))


def weights_of_every_step(learner: emphatic.Learner | reference.TrueOnlineETD, stream: Stream) -> Array:
    rows = [np.array(learner.theta)]
    for t in range(stream.T):
        stream[t : t + 1].learn(learner)
        rows.append(np.array(learner.theta))
    return np.array(rows)


@pytest.mark.parametrize("rule", EMPHASIS)
@settings(max_examples=30)
@given(data=st.data())
def test_every_weight_vector_is_the_forward_views(rule: str, data: st.DataObject) -> None:
    stream = data.draw(streams(decay=rule.endswith("_beta")))
    theta_0 = np.array(data.draw(st.lists(st.integers(-2, 2), min_size=stream.n, max_size=stream.n)), float)
    expected = forward_view(rule, stream, theta_0)
    for engine in emphatic.engines.available():
        learner = emphatic.Learner(rule, stream.n, engine=engine)
        learner.theta = theta_0
        assert relative_error(weights_of_every_step(learner, stream), expected) < EXACT, engine
        learner = emphatic.Learner(rule, stream.n, engine=engine)
        learner.theta = theta_0
        predictions = stream.run(learner)
        assert relative_error(learner.theta, expected[-1]) < EXACT, engine
        assert relative_error(predictions, np.sum(expected[:-1] * stream.Phi[:-1], axis=1)) < EXACT, engine


@settings(max_examples=60)
@given(streams())
def test_the_pseudocode_is_the_forward_view(stream: Stream) -> None:
    expected = forward_view("true_online_etd", stream, np.zeros(stream.n))
    assert relative_error(weights_of_every_step(reference.TrueOnlineETD(stream.n), stream), expected) < EXACT


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rule", EMPHASIS)
def test_the_equations_are_the_forward_view(rule: str, seed: int) -> None:
    """The two texts outside the library agree with each other, on dense recurrent streams."""
    stream = make(seed, T=30, n=4, decay=True)
    theta_0 = np.random.default_rng(seed).normal(size=4)
    result = equations.RULES[rule](stream.sequence(theta_0=theta_0))
    assert relative_error(result.Theta, forward_view(rule, stream, theta_0)) < EXACT


@pytest.mark.parametrize("seed", range(5))
def test_emphasis_by_F_is_emphasis_as_a_sum(seed: int) -> None:
    s = make(seed, T=30, decay=True).sequence()
    for discount in (s.gamma, equations.beta_discount(s)):
        assert relative_error(equations.emphasis(s, discount), equations.emphasis_as_a_sum(s, discount)) < EXACT
