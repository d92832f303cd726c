"""Hypothesis draws the same examples every time, without a deadline: kernels compile on first use.

Tests of one rule go to one worker, and benchmarks come last, so that no kernel is compiled twice.
"""

import pytest
from hypothesis import HealthCheck, settings

from emphatic.rules import Rule

settings.register_profile(
    "emphatic",
    deadline=None,
    derandomize=True,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("emphatic")


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: "test_benchmarks" in item.nodeid)
    for item in items if config.pluginmanager.hasplugin("xdist") else ():
        rule = getattr(item, "callspec", None) and item.callspec.params.get("rule")  # type: ignore[attr-defined]
        if rule:
            item.add_marker(pytest.mark.xdist_group(rule.name if isinstance(rule, Rule) else str(rule)))
