"""Every example runs: in the README, on every page, in docstrings; and what they say of commands and speed is so."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import io
import json
import os
import pkgutil
import re
import shlex
import subprocess
import sys
import tomllib
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import typer

import emphatic
from benchmarks.__main__ import SUITES
from benchmarks.report import RESULTS, SPEEDS, with_speeds
from emphatic.nexting.cli import app
from emphatic.nexting.runs.settings import Settings
from emphatic.studies.grid import settings
from emphatic.studies.sweep_config import SweepConfig as Order
from tools import trace_modules
from tools.list_rules import LISTS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted((ROOT / "docs").rglob("*.md"))
TEXTS = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")), *PAGES]
#: The packages that have a page of reference.
REFERENCE = (
    "features", "gvfs", "gymnasium", "problems", "studies", "stepsizes", "nexting", "nexting.scores", "nexting.tables",
)  # fmt: skip


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.S | re.M)


def run(text: str, folder: Path) -> None:
    """Run the Python of a page, one block after the other; each must print what stands beside its prints."""
    namespace: dict[str, Any] = {}
    for i, block in enumerate(blocks(text, "python")):
        path = folder / f"block_{i}.py"  # a rule's source must be in a file
        path.write_text(block, encoding="utf-8")
        out = io.StringIO()
        with redirect_stdout(out):
            exec(compile(block, str(path), "exec"), namespace)
        assert out.getvalue().splitlines() == re.findall(r"^ *print\(.*\)  # (.*)$", block, re.M)


def test_the_readme_runs_and_prints_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(blocks(README, "python")) >= 2
    run(README, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    run(text, tmp_path)
    for block in blocks(text, "json"):
        json.loads(block)
    for block in blocks(text, "toml"):
        given = tomllib.loads(block)
        if "grid" in given:
            settings(Order(**given).grids)
        else:
            Settings.of(given)


def commands() -> list[str]:
    """Every command of ours that a page shows."""
    lines = (line for path in TEXTS for block in blocks(path.read_text("utf-8"), "sh") for line in block.splitlines())
    parts = (part.strip() for line in lines for part in re.split(r"&&|\|", line.partition("#")[0]))
    return sorted({part for part in parts if re.match(r"(\S*/)?emphatic ", part)})


@pytest.mark.parametrize("command", commands())
def test_a_command_is_one_that_the_program_takes(command: str) -> None:
    _, name, *arguments = shlex.split(command)
    group: Any = typer.main.get_command(app)
    group.commands[name].make_context(name, arguments)


@pytest.mark.parametrize("text", TEXTS, ids=shown)
def test_links_lead_somewhere(text: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", text.read_text(encoding="utf-8")):
        path, _, place = link.partition("#")
        if "://" in path:
            continue
        target = (text.parent / path).resolve() if path else text
        assert target.exists(), link
        if place and target.suffix == ".md":
            titles = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.M)
            assert place in [re.sub(r"[^\w\- ]", "", title).lower().replace(" ", "-") for title in titles], link


def modules() -> list[str]:
    found = pkgutil.walk_packages(emphatic.__path__, "emphatic.")
    return ["emphatic", *(module.name for module in found if not module.name.endswith(".__main__"))]  # which runs


@pytest.mark.parametrize(
    "package",
    [
        # Those of engines import torch, which takes long, as do the tests in this group.
        pytest.param(package, marks=pytest.mark.xdist_group("triton") if package == "engines" else ())
        for package in sorted({name.split(".")[1] for name in modules()[1:]})
    ],
)
def test_examples_in_docstrings_run(package: str) -> None:
    within = [name for name in modules() if f"{name}.".startswith(f"emphatic.{package}.")]
    for name in within:
        if not importable(name):
            continue
        module = importlib.import_module(name)
        result = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE, exclude_empty=True)
        assert result.failed == 0, name
        assert module.__doc__, f"{name} does not say what it is"


def importable(name: str) -> bool:
    """Whether what a module needs is installed."""
    on_a_gpu = name.startswith("emphatic.engines.cuda.")
    return not on_a_gpu or all(importlib.util.find_spec(needed) for needed in ("torch", "triton"))


def test_the_first_screen_has_a_sentence_a_command_a_picture_and_python() -> None:
    lines = README.splitlines()
    assert lines[2].startswith("Learn long-term predictions")
    assert lines.index("```sh") < 15
    assert next(i for i, line in enumerate(lines) if line.startswith("![")) < 20
    assert lines.index("```python") < 25


def test_the_readme_is_short_and_wrapped() -> None:
    lines = README.splitlines()
    assert len(lines) <= 160
    long = [line for line in lines if len(line) > 100 and not line.startswith(("|", "python3 -m venv"))]
    assert not long


def test_ci_is_the_readme_s_own_test_command() -> None:
    command = next(line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line.endswith("-m pytest"))
    assert command in README.splitlines()
    assert command.endswith("-m pytest")


def test_every_engine_is_in_the_readme() -> None:
    for name in emphatic.engines.available():
        assert f"| `{name}` |" in README


@pytest.mark.parametrize("path", LISTS)
def test_rules_are_listed_as_they_say(path: str) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    assert LISTS[path](text) == text, "python -m tools.list_rules writes the lists"
    assert all(f"`{name}`" in README for name in emphatic.rules.names())


def test_short_names_are_those_of_rules() -> None:
    short = {"ETD", "GTD", "TD", "TDRC", "TreeBackup", "TrueOnlineETD", "TrueOnlineTD"}
    assert short <= set(dir(emphatic)) & set(emphatic.__all__)
    for name in short:
        rule = getattr(emphatic, name)(3, engine="reference").rule
        assert rule is emphatic.rules.get(rule.name)
        assert rule.name.replace("_", "") == name.lower()


def test_every_suite_and_its_table_are_on_the_page() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", page, re.M) == list(SUITES)
    for table in RESULTS.iterdir():
        assert table.stem in SUITES
        assert f"(../benchmarks/results/{table.stem}.md)" in page


def test_the_readme_s_six_ratios_are_measured_ones() -> None:
    assert with_speeds(README) == README
    quoted = README.split("<!-- speeds -->")[1].split("<!-- /speeds -->")[0]
    assert len(SPEEDS) == 6
    assert quoted.count("\n| ") == 7
    assert with_speeds(README.replace(quoted, "\nold\n")) == README


def test_public_names_are_there_and_documented() -> None:
    for name in emphatic.__all__:
        assert getattr(emphatic, name) is not None
        assert name in dir(emphatic)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = emphatic.nonsense
    assert emphatic.__version__ in (ROOT / "pyproject.toml").read_text()


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    newest = re.search(r"^## \[(\d.+?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert newest is not None
    assert project["version"] == emphatic.__version__ == newest[1]
    assert f"\nversion: {emphatic.__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")


def test_every_package_is_in_the_tree() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    tree = text.split("## The tree")[1].split("## ")[0]
    listed = set(re.findall(r"── (\S+)", tree))
    folder = ROOT / "src" / "emphatic"
    found = [*folder.glob("*/__init__.py"), *folder.glob("engines/*/__init__.py")]
    packages = {f"{path.parent.name}/" for path in found}
    assert listed == packages | {"reference.py", "errors.py", "cluster.py"}


def test_the_ways_are_those_that_a_run_takes() -> None:
    pytest.importorskip("gymnasium", reason="needs pip install 'emphatic[gym]'")
    command = [sys.executable, "-m", "tools.trace_modules", "--print"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, encoding="utf-8").stdout
    assert "kernel " in found
    page = trace_modules.PAGE.read_text(encoding="utf-8")
    listings = re.findall(r"^\d+ modules, .*?(?=\n\n\d|\Z)", found.strip(), re.S | re.M)
    assert len(listings) == 3
    for listing in listings:
        assert listing in page, "python -m tools.trace_modules writes the lists"
    changed = trace_modules.with_ways(page, {"nexting": "a", "step": "b"})
    assert "<!-- way: nexting -->\na\n\n<!-- /way -->" in changed
    assert "<!-- way: step -->\nb\n\n<!-- /way -->" in changed


@pytest.mark.long
def test_the_site_is_built_without_a_warning_and_loads_nothing(tmp_path: Path) -> None:
    for needed in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(needed, reason="needs pip install --group docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    pages = {path.relative_to(tmp_path).as_posix(): path.read_text("utf-8") for path in tmp_path.rglob("*.html")}
    for name in ("src/emphatic/engines/sparse/SPARSE", "benchmarks/results/core"):  # which lie outside docs/
        assert f"source/{name}.html" in pages
    for name, page in pages.items():
        assert not re.search(r"""<(script|img|iframe)[^>]*src=["']?(https?:)?//""", page), name
        assert not re.search(r"""<link[^>]*rel=["']?(stylesheet|preconnect)[^>]*href=["']?(https?:)?//""", page), name
    for package in REFERENCE:
        module = importlib.import_module(f"emphatic.{package}")
        page = pages[f"api/{package.split('.')[-1]}.html"]
        for name in filter(lambda name: callable(getattr(module, name)), getattr(module, "__all__", ())):
            assert re.search(rf'id="emphatic\.{package}\.{name}(\.{name})?"', page), f"{package}: {name}"
    for name in emphatic.__all__:
        value = getattr(emphatic, name)
        is_documented = f'id="emphatic.{name}"' in pages["api/emphatic.html"]
        assert is_documented or isinstance(value, partial) or not callable(value), name
