"""Distributions that add members to the registries of the library: a folder as ``pip install --target`` leaves it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["run_with", "write_distribution"]


def write_distribution(
    folder: Path, name: str, modules: Mapping[str, str], entry_points: Mapping[str, Mapping[str, str]]
) -> Path:
    """Write a distribution into a folder, and return the folder, which is to be on ``sys.path``.

    Args:
        folder: where modules and metadata go; it may hold other distributions.
        name: of the distribution.
        modules: the source text of each module.
        entry_points: name → value, such as "module:object", for each group.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text, "utf-8")
    metadata = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", "utf-8")
    lines = []
    for group, points in entry_points.items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in points.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n", "utf-8")
    return folder


def run_with(folder: Path, code: str) -> str:
    """What code prints in a new interpreter in a folder, with its distributions; AssertionError if it fails."""
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
