"""What is released: a wheel with the package, its data and its licence, and the sources with all that tests read."""

from __future__ import annotations

import os
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
    assert any(name.startswith("emphatic/data/") and not name.endswith(".py") for name in inside)
    beside = {name.split(".dist-info/")[1] for name in names - inside}
    licences = {"licenses/LICENSE", "licenses/src/emphatic/report/uplot/LICENSE"}
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


#: Compiles one kernel, or reads it from a disk, and prints how often which of both happened.
ACCUMULATE = """
import numpy as np
from emphatic.engines import generated
from emphatic.learning import sequence_kernels
x = np.ones((3, 1))
sequence_kernels.accumulate(x, 0.5 * x, np.empty((3, 1)), np.empty((3, 1), bool), 0.0)
stats = sequence_kernels.accumulate.stats
print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()), generated.packaged_kernels() is not None)
"""


def run_code(code: str, package: Path, cache: Path) -> str:
    """What code prints with the package of that folder."""
    env = os.environ | {"PYTHONPATH": str(package), "EMPHATIC_CACHE_DIR": str(cache)}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout


def build_wheel(folder: Path, kernels: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    env = os.environ | {"EMPHATIC_KERNELS": str(kernels)}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


@pytest.mark.long
def test_a_wheel_with_kernels_does_not_compile_them(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="needs hatchling: pip install --group test")
    kernels, package, cache = tmp_path / "kernels", tmp_path / "package", tmp_path / "cache"
    refused = build_wheel(tmp_path, kernels)
    assert refused.returncode != 0
    assert "emphatic warm" in refused.stderr
    fill = f"{ACCUMULATE}\ngenerated.name_processor(generated.cache_folder())"
    assert run_code(fill, ROOT / "src", kernels).split() == ["0", "1", "False"]
    built = build_wheel(tmp_path, kernels)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert not wheel.name.endswith("none-any.whl")  # machine code is of one platform
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(package)
    assert run_code(ACCUMULATE, package, cache).split() == ["1", "0", "True"]
    assert not [path for path in cache.rglob("*") if path.is_file()]
    # On another processor they are of no use: the cache folder is filled as ever.
    with (package / "emphatic" / "kernels" / "processor").open("a") as file:
        file.write("another")
    assert run_code(ACCUMULATE, package, cache).split() == ["0", "1", "False"]
    assert run_code(ACCUMULATE, package, cache).split() == ["1", "0", "False"]
