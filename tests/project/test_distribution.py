"""What is released: a wheel with the package, its data and its licence, and the sources with all that tests read."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tools.lowest_versions import lowest_versions
from tools.measure_install import measure_packages

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
#: What no release has.
UNWANTED = re.compile(
    r"__pycache__|\.py[cod]$|\.(mypy|ruff|pytest|import_linter)_cache|\.hypothesis|\.venv|\.nb[ic]$|\.partial$"
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[set[str], set[str], str]:
    """The names in a wheel and in a source distribution (without its top folder), and the wheel's metadata."""
    pytest.importorskip("hatchling", reason="needs hatchling: pip install --group test")
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", folder], cwd=ROOT, check=True, capture_output=True
    )
    (wheel,) = folder.glob("*.whl")
    (source,) = folder.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        text = archive.read(metadata).decode("utf-8")
    with tarfile.open(source) as archive_of_sources:
        sources = {name.split("/", 1)[1] for name in archive_of_sources.getnames() if "/" in name}
    return names, sources, text


def package() -> set[str]:
    """The files of the package as they are here."""
    found = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*") if path.is_file()}
    return {name for name in found if not UNWANTED.search(name)}


def test_the_wheel(built: tuple[set[str], set[str], str]) -> None:
    names, _, metadata = built
    inside = {name for name in names if ".dist-info/" not in name}
    assert inside == package()
    assert {"emphatic/py.typed", "emphatic/reference.py"} <= inside
    assert any(name.startswith("emphatic/nexting/data/") and not name.endswith(".py") for name in inside)
    beside = {name.split(".dist-info/")[1] for name in names - inside}
    licences = {"licenses/LICENSE", "licenses/src/emphatic/nexting/report/uplot/LICENSE"}
    assert beside == {"METADATA", "WHEEL", "RECORD", "entry_points.txt", *licences}
    assert "License-Expression: Apache-2.0" in metadata
    for requirement in PROJECT["project"]["dependencies"]:
        assert f"Requires-Dist: {requirement}" in metadata
    assert not [name for name in names if UNWANTED.search(name)]


def test_the_source_distribution(built: tuple[set[str], set[str], str]) -> None:
    _, sources, _ = built
    assert {f"src/{name}" for name in package()} <= sources
    wanted = {"LICENSE", "README.md", "SECURITY.md", "CHANGELOG.md", "CONTRIBUTING.md", "pyproject.toml", "PKG-INFO"}
    wanted |= {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").glob("*/__init__.py")}
    assert wanted <= sources
    assert not [name for name in sources if UNWANTED.search(name)]


def test_every_dependency_has_a_lowest_version() -> None:
    """Which CI installs, and runs the smoke test on."""
    lowest = lowest_versions()
    assert len(lowest) == len(PROJECT["project"]["dependencies"])
    assert "numpy==1.26" in lowest
    assert "bash .ci/smoke" in (ROOT / ".ci" / "run").read_text("utf-8").splitlines()


def test_packages_are_measured_by_what_their_files_take_on_disk(tmp_path: Path) -> None:
    for name, kilobytes in (("small", 4), ("large", 400)):
        (tmp_path / f"{name}.py").write_bytes(b"#" * 1024 * kilobytes)
        info = tmp_path / f"{name}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (info / "RECORD").write_text(f"{name}.py,,\ngone.py,,\n")
    sizes = measure_packages(tmp_path)
    assert list(sizes) == ["large", "small"]
    assert sizes["large"] == pytest.approx(400 / 1024, abs=0.02)
