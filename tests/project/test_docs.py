"""Every example runs: in the README, in docstrings; and what the README says of commands and speed is so."""

from __future__ import annotations

import doctest
import importlib
import io
import pkgutil
import re
import tomllib
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

import emphatic
from benchmarks.__main__ import SUITES
from benchmarks.report import RESULTS, headline
from emphatic.nexting.settings import Settings
from emphatic.studies.grid import settings
from emphatic.studies.order import Order
from tools.list_rules import with_names, with_table

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_runs_and_prints_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README, re.S)
    assert len(blocks) >= 5
    namespace: dict[str, Any] = {}
    for block in blocks:
        out = io.StringIO()
        with redirect_stdout(out):
            exec(block, namespace)
        promised = re.findall(r"^print\(.*\)  # (.*)$", block, re.M)
        assert out.getvalue().splitlines() == promised


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.stem)
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    namespace: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.S):
        out = io.StringIO()
        with redirect_stdout(out):
            exec(block, namespace)
        assert out.getvalue().splitlines() == re.findall(r"^print\(.*\)  # (.*)$", block, re.M)
    for block in re.findall(r"```toml\n(.*?)```", text, re.S):
        given = tomllib.loads(block)
        if "grid" in given:
            settings(Order(**given).grids)
        else:
            Settings.of(given)


def modules() -> list[str]:
    found = pkgutil.walk_packages(emphatic.__path__, "emphatic.")
    return ["emphatic", *(module.name for module in found)]


@pytest.mark.parametrize("name", modules())
def test_examples_in_docstrings_run(name: str) -> None:
    if name.startswith("emphatic.engines.cuda.engine"):
        for needed in ("torch", "triton"):
            pytest.importorskip(needed, reason="needs pip install 'emphatic[cuda]'")
    module = importlib.import_module(name)
    result = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0
    assert module.__doc__, f"{name} does not say what it is"


def test_what_it_is_by_line_3_and_python_by_line_15() -> None:
    lines = README.splitlines()
    assert lines[2].startswith("Learn long-term predictions")
    assert any(line == "```python" for line in lines[:15])


def test_ci_is_the_readme_s_own_test_command() -> None:
    command = (ROOT / ".ci" / "run").read_text().splitlines()[-1]
    assert command in README.splitlines()
    assert command.endswith("-m pytest")


def test_every_engine_is_in_the_readme() -> None:
    for name in emphatic.engines.available():
        assert f"| `{name}` |" in README


@pytest.mark.parametrize(("path", "change"), [("README.md", with_table), ("src/emphatic/__init__.py", with_names)])
def test_rules_are_listed_as_they_say(path: str, change: Callable[[str], str]) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    assert change(text) == text, "python -m tools.list_rules writes the lists"


def test_every_rule_has_a_name_for_its_learners() -> None:
    for name, rule in emphatic.rules.class_names().items():
        assert {name} <= set(dir(emphatic)) & set(emphatic.__all__)
        assert getattr(emphatic, name)(3, engine="reference").rule is emphatic.rules.get(rule)
    assert tuple(emphatic.rules.class_names().values()) == emphatic.rules.names()


def test_every_suite_has_its_place_in_the_readme() -> None:
    assert re.findall(r"^<!-- speed: (.*) -->$", README, re.M) == list(SUITES)


@pytest.mark.parametrize("measured", sorted(RESULTS.glob("*.md")), ids=lambda path: path.stem)
def test_a_speed_table_is_the_measured_one(measured: Path) -> None:
    quoted = README.split(f"<!-- speed: {measured.stem} -->\n")[1].split("<!-- /speed -->")[0]
    assert quoted.strip() == headline(measured.read_text(encoding="utf-8")).strip()
    assert "| yes |" in quoted


def test_public_names_are_there_and_documented() -> None:
    for name in emphatic.__all__:
        assert getattr(emphatic, name) is not None
        assert name in dir(emphatic)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = emphatic.nonsense
    assert emphatic.__version__ in (ROOT / "pyproject.toml").read_text()


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    newest = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert newest is not None
    assert project["version"] == emphatic.__version__ == newest[1]
