"""How large the base installation is: ``python -m tools.measure_install``.

Installs this checkout into a new virtual environment, and prints what each package takes on disk, largest first. Exits
with 1 if the environment is larger than ``LIMIT``.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from importlib.metadata import distributions
from pathlib import Path

ROOT = Path(__file__).parent.parent
#: The size that the environment may have, in MB of 2²⁰ bytes.
LIMIT = 530
#: Packages of less than this are counted together.
SMALL = 2.0


def measure_packages(folder: Path) -> dict[str, float]:
    """The packages that are installed in a folder, and the MB that their files take on disk, largest first."""
    sizes = {}
    for package in distributions(path=[str(folder)]):
        paths = [Path(str(package.locate_file(file))) for file in package.files or ()]
        sizes[package.metadata["Name"]] = sum(_size(path) for path in paths if path.is_file())
    return dict(sorted(sizes.items(), key=lambda entry: -entry[1]))


def _size(path: Path) -> float:
    return path.stat().st_blocks * 512 / 2**20


def main() -> None:
    """Install, measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        subprocess.run([f"{folder}/bin/pip", "install", "-q", str(ROOT)], check=True)
        [site] = Path(folder).glob("lib/python*/site-packages")
        total = sum(_size(path) for path in Path(folder).rglob("*") if not path.is_symlink())
        sizes = measure_packages(site)
    large = {name: size for name, size in sizes.items() if size >= SMALL}
    rows = [*large.items(), (f"{len(sizes) - len(large)} smaller ones", sum(sizes.values()) - sum(large.values()))]
    print("| Package | MB |\n|---|---|")
    for name, size in rows:
        print(f"| {name} | {size:.0f} |")
    print(f"| the whole environment | {total:.0f} (limit {LIMIT}) |")
    sys.exit(total > LIMIT)


if __name__ == "__main__":
    main()
