"""Every rule on every engine, by discovery, against the equations: one tolerance, streams that vary everything."""

from __future__ import annotations

import pytest

import emphatic
from tests.contract import violations
from tests.equations import RULES


def test_every_rule_has_its_equations() -> None:
    assert set(emphatic.rules.names()) == set(RULES)


@pytest.mark.parametrize("rule", emphatic.rules.names())
@pytest.mark.parametrize("engine", emphatic.engines.available())
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("K", [None, 1, 2, 7])
def test_run_and_learn_follow_the_equations(rule: str, engine: str, dtype: str, K: int | None) -> None:
    def learner(n: int, K: int | None) -> emphatic.Learner:
        return emphatic.Learner(rule, n, K, dtype=dtype, engine=engine)

    for by in ("run", "learn"):
        assert violations(rule, learner, K, dtype, by=by) == []


@pytest.mark.parametrize("active", [False, True])
def test_auto_decides_at_the_first_step(active: bool) -> None:
    def learner(n: int, K: int | None) -> emphatic.Learner:
        return emphatic.Learner("true_online_etd", n, K)

    assert violations("true_online_etd", learner, None, "float64") == []
    made = emphatic.Learner("td", 3)
    assert made.engine == "auto"
    phi = emphatic.Active([1]) if active else [0.0, 1.0, 0.0]
    made.learn(0.1, 1.0, 0.5, phi, 1.0, 1.0, phi, 0.5)
    assert made.engine == ("sparse" if active else "dense")
    assert repr(made) == f"Learner('td', n=3, dtype='float64', engine='{made.engine}')"
