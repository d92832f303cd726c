"""Kernels are ordinary modules: what they may import, what they may call, and that an edit is always compiled."""

from __future__ import annotations

import ast
import os
import shutil
from pathlib import Path

import pytest

import emphatic
from emphatic.engines import compiled
from emphatic.engines.unrolled import Functions
from tests.engines.test_compiled import environment, files, start
from tests.support.plain import COMPILED_ON_IMPORT

PACKAGE = Path(emphatic.__file__).parent
KERNELS = sorted(path for path in (PACKAGE / "engines").rglob("*_kernels.py") if "cuda" not in path.stem)
#: What a kernel may import of this package at run time; each is a part of the hash.
ALLOWED = {"emphatic.engines.compiled", "emphatic.engines.intrinsics"}


def imported(tree: ast.Module) -> dict[str, str]:
    """Every name that a module imports at run time, and from where."""
    found: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name: str(node.module) for alias in node.names}
        if isinstance(node, ast.Import):
            found |= {alias.asname or alias.name: alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda path: path.stem)
def test_a_kernel_imports_nothing_that_its_hash_does_not_know(kernel: Path) -> None:
    tree = ast.parse(kernel.read_text(encoding="utf-8"))
    of_us = {module for module in imported(tree).values() if module.startswith("emphatic")}
    assert of_us <= ALLOWED


def test_no_kernel_calls_one_that_is_compiled_when_python_calls_it() -> None:
    """The compiler could not type it; where the machine code is on the disk already, nobody would notice."""
    for name in COMPILED_ON_IMPORT:
        tree = ast.parse((PACKAGE.parent / name.replace(".", "/")).with_suffix(".py").read_text(encoding="utf-8"))
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        kernels = {f.name for f in functions if any("jit_for" in ast.unparse(node) for node in f.decorator_list)}
        called = {ast.unparse(node.func) for f in functions for node in ast.walk(f) if isinstance(node, ast.Call)}
        assert kernels, name
        assert not kernels & called, name


USE = """
import numpy as np, sys
from numba.core import event
import emphatic
with event.install_recorder("numba:compile") as recorder:
    rng = np.random.default_rng(0)
    index = np.array([rng.choice(50, 5, replace=False) for _ in range(301)])
    learner = emphatic.Learner("td", 50, engine="sparse")
    learner.run(emphatic.Active(index), rng.normal(size=300), 0.9, alpha=0.07, lambda_=0.7)
    print(learner.theta.tobytes().hex())
print(len(recorder.buffer))
"""
NAMES = """
import sys
import emphatic
for K in (None, 9):
    emphatic.Learner("true_online_etd", 50, K, engine="sparse").predict(emphatic.Active([1]))
print(sorted(name for name in sys.modules if "plain_sparse" in name))
"""


@pytest.mark.long
def test_an_edited_constant_meets_no_old_kernel(tmp_path: Path) -> None:
    """SHRUNK, which both sparse engines compile in, edited in a copy of the package: both are compiled again.

    Until then, what is read from the disk gives the bits of what was compiled.
    """
    package = tmp_path / "site" / "emphatic"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    env = environment(EMPHATIC_CACHE_DIR=tmp_path / "cache", PYTHONPATH=package.parent)
    cold, first = start(env, code=USE)
    assert int(first) >= 1
    warm, again = start(env, code=USE)
    assert again == "0"
    assert warm == cold
    # What is compiled is known by the name of its file: both have other names.
    plain = env | {"NUMBA_DISABLE_JIT": "1"}
    (before,) = start(plain, code=NAMES)
    path = package / "engines" / "sparse" / "__init__.py"
    text, stamp = path.read_text(encoding="utf-8"), path.stat()
    assert "SHRUNK = 1e-2" in text
    path.write_text(text.replace("SHRUNK = 1e-2", "SHRUNK = 3e-2"), encoding="utf-8")
    os.utime(path, (stamp.st_atime, stamp.st_mtime))
    (after,) = start(plain, code=NAMES)
    names, others = ast.literal_eval(before), ast.literal_eval(after)
    assert len(names) == len(others) == 2
    assert not set(names) & set(others)


EVERYTHING = """
import gc
from numba.core.caching import NullCache
from numba.core.dispatcher import Dispatcher
import emphatic
from emphatic import problems
from emphatic.nexting import scores
from emphatic.features import kernels as a
from emphatic.hordes import possible_kernels as b
from emphatic.nexting.tables import guard_kernels as c
from emphatic.problems import kernels as d
from emphatic.engines import scan
from emphatic.engines.compiled import LazyKernel
for module in (a, b, c, d, scan):
    for lazy in list(vars(module).values()):
        if isinstance(lazy, LazyKernel):
            lazy.compile()
emphatic.learning.returns([1.0, 2.0], 0.5)
for engine in ("dense", "chunked"):
    learner = emphatic.Learner("td", 4, engine=engine)
    learner.run(emphatic.Active([[0, 1], [1, 2]] * 10), 1.0, 0.5, alpha=0.25, lambda_=0.5)
    learner.learn(0.1, 1.0, 0.5, emphatic.Active([1]), 1.0, 1.0, emphatic.Active([2]), 0.5)
for made in gc.get_objects():
    if isinstance(made, Dispatcher) and made.signatures and "emphatic" in made.py_func.__module__:
        print("" if isinstance(made._cache, NullCache) else made._cache.cache_path)
"""


def test_compiled_code_lies_in_the_cache_folder_alone(tmp_path: Path) -> None:
    package = tmp_path / "site" / "emphatic"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    home = tmp_path / "home"
    home.mkdir()
    before = files(tmp_path)
    cache = compiled.cache_folder()
    assert cache is not None
    env = environment(EMPHATIC_CACHE_DIR=cache, PYTHONPATH=package.parent, HOME=home, XDG_CACHE_HOME=home)
    kept = [Path(folder) for folder in start(env, code=EVERYTHING) if folder]
    assert len(kept) >= 15
    assert set(kept) == {cache / "__pycache__"}
    assert files(tmp_path) == before


def test_the_hash_knows_the_compiler() -> None:
    """What decorators do is not in a kernel's text, but their source's hash is."""
    text = compiled.compose(Functions(emphatic.rules.get("td"), "float64"), "dense.dense_kernels")
    assert compiled._compiler() in text
