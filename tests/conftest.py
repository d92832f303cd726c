"""Hypothesis draws the same examples every time, without a deadline: kernels compile on first use.

Tests marked ``plain`` run kernels as the Python that they are; so does, in files of short streams, every test of a rule
that is not in ``COMPILED`` (``tests.support.contract``), unless its parameter ``compiled`` says otherwise. Tests of one
rule go to one worker, and so do the others of one file, so that no kernel is compiled or loaded twice and what the
tests of a file share is made once. Files that take long come first, so that no worker waits for another at the end.
"""

import gc
import os
import re
import shutil
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from emphatic.engines.dense import lanes
from emphatic.rules import Rule
from tests.support.contract import COMPILED
from tests.support.plain import plain_python
from tests.support.processes import wait_for_no_disk

# Bytecode is kept, whatever the environment says: each of the processes that tests start would compile the package.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

wait_for_no_disk()

settings.register_profile(
    "emphatic",
    deadline=None,
    derandomize=True,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("emphatic")
# Hypothesis also draws numbers and strings that it finds in the modules loaded so far. Examples would depend on which
# tests ran before, and to read the modules takes ten seconds in each worker.
providers._get_local_constants = lambda: providers._local_constants

#: Files of short streams, which ask the same of every rule.
SHORT = (
    "test_checkpoint", "test_checks", "test_contract", "test_diverged", "test_forward_view", "test_freezing",
    "test_identities", "test_invariants",
)  # fmt: skip


#: Files of tests that take long: studies run again, benchmarks, notebooks, attacks, Triton's interpreter.
LONG = (
    "test_reproductions",
    "test_benchmarks",
    "test_benchmarks_forecasting",
    "test_benchmarks_gates",
    "test_notebooks",
    "test_faults",
    "test_lines",
    "test_attack",
    "test_cuda",
)


#: Files that take longest.
FIRST = (
    "test_nexting", "test_docs", "test_live", "test_instrument", "test_streams", "test_local",
    "test_app",
)  # fmt: skip

#: Features up to which learners run side by side, except in tests that take long: there is a kernel for each number of
#: features, which compiles for ten seconds. Those of more are tested as plain Python (``test_contract``).
FEW = 6


def pytest_configure(config: pytest.Config) -> None:
    if _without_long(config):
        lanes.MOST_FEATURES = FEW
    config.option.loadscopereorder = False  # the groups are in order already


def pytest_collection_finish() -> None:
    """The garbage collector does not go through what was imported and collected: it stays to the end."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files whose tests would all be deselected are not imported: they import torch, ray and playwright."""
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    mark = re.search(r"^pytestmark = \[?\s*pytest\.mark\.(\w+)", collection_path.read_text("utf-8"), re.MULTILINE)
    is_long = collection_path.stem in LONG and _without_long(config)
    return True if is_long or (mark is not None and f"not {mark[1]}" in config.option.markexpr) else None


@pytest.fixture(scope="module")
def browser() -> Generator[Any]:
    """Chromium."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed")
    with sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield found
        found.close()


@pytest.fixture
def window(browser: Any) -> Generator[Callable[..., Any]]:
    """Open a window of its own; nothing may go wrong on its pages meanwhile."""
    contexts, wrong = list[Any](), list[str]()

    def open_window(**options: Any) -> Any:
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append(dialog.message))
        page.on(
            "console",
            lambda message: (
                wrong.append(message.text) if "Security" in message.text or "Refused" in message.text else None
            ),
        )
        return page

    yield open_window
    for context in contexts:
        context.close()
    assert wrong == []


def _without_long(config: pytest.Config) -> bool:
    return "not long" in config.option.markexpr


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(FIRST)}
    items.sort(key=lambda item: ("test_benchmarks" in item.nodeid, places.get(item.path.stem, len(places))))
    for item in items:
        if item.path.stem in LONG and item.get_closest_marker("cluster") is None:
            item.add_marker(pytest.mark.long)
        given = item.callspec.params if hasattr(item, "callspec") else {}
        rule = given.get("rule")
        name = rule.name if isinstance(rule, Rule) else rule
        if isinstance(name, str):
            compiled = given.get("compiled", name in COMPILED[given.get("dtype", "float64")])
            if item.path.stem in SHORT and not compiled:
                item.add_marker(pytest.mark.plain)
            group = name
        elif item.get_closest_marker("xdist_group") is None:
            group = f"{item.path.parent.name}/{item.path.stem}"
        else:
            continue
        if config.pluginmanager.hasplugin("xdist"):
            item.add_marker(pytest.mark.xdist_group(group))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    given = item.callspec.params if hasattr(item, "callspec") else {}
    if item.get_closest_marker("plain") is None or given.get("compiled"):
        return (yield)
    with plain_python():
        return (yield)
