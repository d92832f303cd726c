"""Kernels: compiled once, kept on disk, never stale, never in the way. No test here looks at a clock."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numba.core import event

import emphatic
from emphatic import Active, Learner
from emphatic.engines import compiled, dense, generated
from emphatic.engines.dense import lanes
from tests.support.plain import COMPILED_ON_IMPORT
from tests.support.processes import Forked, run

ROOT = Path(__file__).parents[2]

#: Learns a little on some engines, prints θ, and then the names of the functions that had to be compiled for it.
START = """
import sys
import numpy as np
from numba.core import event
import emphatic

def main(engine):
    learner = emphatic.Learner("td", 3, engine=engine)
    learner.theta = [1.0, 2.0, 3.0]
    Phi = emphatic.Active([[0, 1], [1, 2], [2, 0]]) if engine == "sparse" else np.eye(3)
    learner.run(Phi, 1.0, 0.5, alpha=0.25, lambda_=0.5)
    learner.predict(Phi)
    return learner.copy().theta.tolist()

with event.install_recorder("numba:compile") as recorder:
    thetas = [main(engine) for engine in sys.argv[1:]]
print(thetas)
print(sorted({e.data["dispatcher"].py_func.__name__ for _, e in recorder.buffer}))
"""


#: The least that goes through the cache: prints f(1) and whether it came from the disk.
TINY = """
from numba import types
from emphatic.engines import compiled

made = compiled.module("tiny", "def f(x):\\n    return x + 41.0\\n")
f = compiled.kernel(made, "f", types.float64)
print(f(1), bool(f.stats.cache_hits))
"""


def environment(**changed: str | Path | None) -> dict[str, str]:
    """This process's own, without what says where caches are, but for what is changed."""
    env = {name: value for name, value in os.environ.items() if name not in ("EMPHATIC_CACHE_DIR", "NUMBA_CACHE_DIR")}
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    for name, new in changed.items():
        if new is None:
            env.pop(name, None)
        else:
            env[name] = str(new)
    return env


def start(env: dict[str, str], *engines: str, code: str = START) -> list[str]:
    """What another process prints, line by line."""
    command = [sys.executable, "-W", "error", "-c", code, *engines]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def tiny(env: dict[str, str], code: str = TINY) -> str:
    """What ``TINY`` prints, or a variant of it."""
    done = run(code, env=env)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode()


def expected(*engines: str) -> str:
    """The same as ``START`` prints, from this process."""
    scope: dict[str, Any] = {}
    exec(START.split("with event")[0], scope)
    return str([scope["main"](engine) for engine in engines])


def close(a: str, b: str) -> bool:
    return bool(np.allclose(eval(a), eval(b), rtol=1e-14, atol=0.0))


def files(folder: Path) -> dict[str, int]:
    """Every file and when it was written."""
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_a_second_start_compiles_nothing(tmp_path: Path) -> None:
    """All that was compiled is read from the disk, and nothing is written again. (The sparse engine: test_kernels.)"""
    env = environment(EMPHATIC_CACHE_DIR=tmp_path, NUMBA_CACHE_DIR=tmp_path / "numba")
    first, _ = start(env, "dense")
    kept = files(tmp_path)
    assert any(name.endswith(".nbc") for name in kept)
    second, again = start(env, "dense")
    assert second == first
    assert again == "[]"
    assert files(tmp_path) == kept


@pytest.mark.long
def test_where_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No cache folder, no home and a package that cannot be written to: slower, but the same."""
    file = tmp_path / "file"
    file.write_text("")
    package = tmp_path / "site" / "emphatic"
    shutil.copytree(ROOT / "src" / "emphatic", package, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in (package, *(path for path in package.rglob("*") if path.is_dir())):
        (folder / "__pycache__").write_text("")  # even root cannot write into it
    before = files(tmp_path)
    env = environment(PYTHONPATH=package.parent, HOME="/proc/none", XDG_CACHE_HOME=file / "cache")
    theta, compiled_here = start(env, "dense")
    assert close(theta, expected("dense"))
    assert "run" in compiled_here
    assert files(tmp_path) == before
    for folder in (file, file / "cache", Path("/proc/none"), Path("/dev/null")):
        monkeypatch.setenv("EMPHATIC_CACHE_DIR", str(folder))
        assert compiled.cache_folder() is None


LIMITED = f"""
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
{TINY.replace("41.0", "41.0 " + 2000 * "#")}
import emphatic
emphatic.Active([[1, 2], [3, 4]])
"""


@pytest.mark.long
def test_a_full_disk(tmp_path: Path) -> None:
    """Kernels that cannot be stored are compiled in memory, those of the checks too; no half of a file stays."""
    env = environment(EMPHATIC_CACHE_DIR=tmp_path / "a", NUMBA_CACHE_DIR=tmp_path / "b")
    assert start(env, code=LIMITED) == ["42.0 False"]
    assert [name for name in files(tmp_path) if not name.endswith((".nbi", ".nbc", ".py"))] == []


def test_four_at_once_on_an_empty_folder(tmp_path: Path) -> None:
    """Whoever writes first, all are right; and what they leave is whole."""
    env = environment(EMPHATIC_CACHE_DIR=tmp_path / "cache")
    with ExitStack() as stack:
        crowd = [stack.enter_context(Forked(TINY, env=env)) for _ in "1234"]
        answers = [process.stdout.read() for process in crowd if process.stdout]
        assert [process.wait() for process in crowd] == [0] * 4
    assert [answer.split()[0] for answer in answers] == [b"42.0"] * 4
    assert tiny(env).startswith("42.0")


def test_a_cache_damaged_or_shared(tmp_path: Path) -> None:
    """Others can read it, as far as the umask goes; what a power failure leaves of it costs a compilation only."""
    cache = tmp_path / "cache"
    assert tiny(environment(EMPHATIC_CACHE_DIR=cache)) == "42.0 False\n"
    umask = os.umask(0)
    os.umask(umask)
    assert {path.stat().st_mode & 0o777 for path in cache.rglob("*") if path.is_file()} == {0o666 & ~umask}
    for kind, rest in (("nbi", b""), ("nbc", b""), ("nbc", b"\xffgarbage"), ("py", b"\xffgarbage")):
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        shutil.copytree(cache, tmp_path / "copy")
        (path,) = (tmp_path / "copy").rglob(f"*.{kind}")
        path.write_bytes(rest)
        assert tiny(environment(EMPHATIC_CACHE_DIR=tmp_path / "copy")).startswith("42.0")


FOLDER = (
    """
import warnings
from emphatic.engines import compiled
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    print([str(compiled.cache_folder()) for _ in range(3)])
print(sorted({str(one.message) for one in told}), len(told))
"""
    + TINY
)


@pytest.mark.skipif(sys.platform == "win32", reason="permissions are of another kind")
def test_a_folder_that_others_can_write_to_is_not_used(tmp_path: Path) -> None:
    """Nothing is loaded from it and nothing put there; one warning says why, and what to do."""
    cache = tmp_path / "cache"
    assert tiny(environment(EMPHATIC_CACHE_DIR=cache)) == "42.0 False\n"
    for folder, mode in ((cache, 0o777), (cache, 0o775), (cache / "__pycache__", 0o770)):
        folder.chmod(mode)
        before = files(cache)
        env = environment(EMPHATIC_CACHE_DIR=cache) | {"PYTHONWARNINGS": "ignore"}
        done = run(FOLDER, env=env)
        folders, told, answer = done.stdout.decode().splitlines()
        assert eval(folders) == ["None"] * 3
        assert "can be written to by others" in told
        assert "chmod go-w" in told
        assert told.endswith("] 1")
        assert answer == "42.0 False"
        assert files(cache) == before
        folder.chmod(0o755)
    assert tiny(environment(EMPHATIC_CACHE_DIR=cache)) == "42.0 True\n"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    os.chown(cache, 12345, -1)
    monkeypatch.setenv("EMPHATIC_CACHE_DIR", str(cache))
    with pytest.warns(RuntimeWarning, match="belongs to user 12345 and not to you"):
        assert compiled.cache_folder() is None


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become somebody else")
def test_a_folder_of_root_that_is_read_only_is_read_from() -> None:
    """As in an image: what is there is loaded, what is not is compiled in memory, and nothing is written."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        cache = Path(folder) / "cache"
        assert tiny(environment(EMPHATIC_CACHE_DIR=cache)) == "42.0 False\n"
        env = environment(EMPHATIC_CACHE_DIR=cache, HOME="/proc/none")
        kept = files(cache)
        somebody = "import os\nos.setuid(12345)\n" + TINY
        assert run(somebody, env=env).stdout == b"42.0 True\n"
        assert run(somebody.replace("41.0", "40.0"), env=env).stdout == b"41.0 False\n"
        assert files(cache) == kept
        assert {path.stat().st_mtime for path in cache.glob("*.py")} == {315_532_800}


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o077])
def test_a_new_folder_is_for_its_owner_alone_to_write_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: int
) -> None:
    """Whatever the umask; and ``~`` is the home folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("EMPHATIC_CACHE_DIR", "~/kernels")
    before = os.umask(umask)
    try:
        assert compiled.cache_folder() == tmp_path / "kernels"
        assert compiled.cache_folder() == tmp_path / "kernels"
    finally:
        os.umask(before)
    assert not (tmp_path / "kernels").stat().st_mode & 0o022


HOMELESS = (
    """
import os, pwd
def unknown(uid): raise KeyError(uid)
pwd.getpwuid = unknown  # as for a user that the system does not know
"""
    + TINY
)


@pytest.mark.skipif(sys.platform == "win32", reason="homes are of another kind")
def test_a_user_without_a_home(tmp_path: Path) -> None:
    """Kernels are compiled in memory, or kept where XDG_CACHE_HOME says."""
    assert tiny(environment(HOME=None, XDG_CACHE_HOME=None), HOMELESS) == "42.0 False\n"
    assert tiny(environment(HOME=None, EMPHATIC_CACHE_DIR="~/x"), HOMELESS) == "42.0 False\n"
    for kept in (False, True):
        assert tiny(environment(HOME=None, XDG_CACHE_HOME=tmp_path), HOMELESS) == f"42.0 {kept}\n"


RULE = """
from emphatic import Rule

def mine(step, memory, x, x_next, g):
    alpha, I, lambda_, rho, gamma_next, delta = step
    w = FACTOR * alpha * delta
    return ((1.0, 0.0), (0.0, 0.0)), ((w, 0.0), (rho, 0.0)), (gamma_next,)

rule = Rule("mine", mine, weights=("theta",), traces=("e",), memory=("gamma",))
"""
USE = """
import numpy as np, emphatic, own
learner = emphatic.Learner(own.rule, 1, engine="dense")
learner.run(np.ones((2, 1)), 1.0, 0.0, alpha=0.25)
print(float(learner.theta[0]))
"""


@pytest.mark.long
def test_an_edited_rule_meets_no_old_kernel(tmp_path: Path) -> None:
    """Under the same name, of the same length and with the same time stamp."""
    env = environment(EMPHATIC_CACHE_DIR=tmp_path / "cache", PYTHONPATH=tmp_path)
    seen = []
    for factor in ("1.0", "2.0"):
        path = tmp_path / "own.py"
        path.write_text(RULE.replace("FACTOR", factor))
        os.utime(path, (1e9, 1e9))
        seen.append(start(env, code=USE))
    assert seen == [["0.25"], ["0.5"]]


# ------------------------------------------------------------------------------------------------ in this process


def test_a_long_compilation_is_announced_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compiled, "_SAID", set())
    name, path = "emphatic_dense_mine_float64_0123456789abcdef", tmp_path / "mine.py"
    for patience, said in ((60.0, 0), (0.0, 1), (0.0, 0)):
        monkeypatch.setattr(compiled, "_PATIENCE", patience)
        with compiled._announced(name, path, "run"):
            time.sleep(0.05)
        lines = capsys.readouterr().err.splitlines()
        assert lines == ["emphatic: compiling dense_mine_float64, which takes some seconds. Later runs load it."] * said
    compiled._SAID.clear()
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "mine.run-3.nbi").touch()  # to read what is stored takes no time that is worth a line
    with compiled._announced(name, path, "run"):
        time.sleep(0.05)
    assert capsys.readouterr().err == ""


def use(learner: Learner, Phi: Any, index: Any, R: Any, one: Any) -> None:
    """Everything that a learner does, with features and numbers of some make."""
    learner.theta = np.zeros_like(learner.theta)
    learner.run(Phi, R, one, alpha=0.001, lambda_=one, rho=one, I=one)
    learner.run(Active(index), R, 0.5, alpha=0.001)
    learner.run(sp.csr_array(np.asarray(Phi, np.float64)), R, 0.5, alpha=0.001)
    for phi in (Phi[0], Active(index[0]), Active(list(index[0]), [1, 2])):
        learner.learn(one, one, one, phi, one, one, phi, one)
        learner.predict(phi)
    learner.predict(Phi)
    learner.predict(Active(index))
    learner.cut()
    learner.copy()


@pytest.mark.parametrize("engine", ["dense", "sparse"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("K", [None, 2])
@pytest.mark.filterwarnings("ignore::emphatic.UndiscountedWarning")
def test_no_input_compiles_again(engine: str, dtype: str, K: int | None) -> None:
    """Kernels are for one set of types: ints, float32, other layouts and read-only arrays are brought to those."""
    T, n = 600, 10  # more components than are looked over without a kernel
    rng = np.random.default_rng(0)
    Phi = rng.integers(0, 2, (T + 1, n)).astype(np.float64)
    index = np.array([rng.choice(n, 2, replace=False) for _ in range(T + 1)])
    R = rng.integers(0, 2, T).astype(np.float64)

    def fixed(array: Any) -> Any:
        array = np.array(array)
        array.flags.writeable = False
        return array

    learner = Learner("true_online_etd", n, K, engine=engine, dtype=dtype)
    use(learner, Phi, index, R, 0.0)
    with event.install_recorder("numba:compile") as recorder:
        use(learner, Phi.astype(dtype), index, R.astype(dtype), np.dtype(dtype).type(0.0))
        use(learner, Phi.astype(np.int64), index.astype(np.int32), R.astype(np.int32), 0)
        use(learner, Phi.astype(np.float32), index.astype(">i8"), R.astype(np.float32), np.float32(0.0))
        use(learner, Phi.astype(bool), index.astype(np.uint8), R.astype(bool), False)
        use(learner, fixed(Phi), fixed(index), fixed(R), np.float64(0.0))
        use(learner, np.asfortranarray(Phi), np.asfortranarray(index), R[::-1], np.array(0.0))
        use(learner, Phi[::-1], index[:, ::-1], np.repeat(R, 2)[::2], np.int8(0))
        use(learner, Phi.tolist(), index.tolist(), R.tolist(), 0.0)
        use(Learner("true_online_etd", n, K, engine=engine, dtype=dtype), Phi, index, R, 1.0)
    assert recorder.buffer == []


LIGHT = """
import sys
import emphatic
heavy = ("numba", "llvmlite", "numpy", "scipy", "safetensors", "typer", "rich", "pandas", "torch", "matplotlib")
print([name for name in heavy if name in sys.modules])
dir(emphatic), emphatic.__version__, emphatic.rules.names(), emphatic.engines.available()
emphatic.Diverged, emphatic.CheckpointError, emphatic.Rule
print([name for name in heavy if name in sys.modules])
learner = emphatic.Learner("true_online_etd", 2, engine="reference")
learner.learn(0.1, 1.0, 0.9, [1, 0], 1.0, 0.5, [0, 1], 0.95)
learner.run([[1, 0], [0, 1]], [1.0], 0.5, alpha=0.1)
learner.predict([1.0, 2.0])
learner.cut()
print([name for name in heavy if name in sys.modules])
"""


def test_plain_tests_know_every_module_that_is_compiled_on_import() -> None:
    """Imported first by a plain test, a module missing from the list would stay plain for all tests after it."""
    source = ROOT / "src"
    paths = [path for path in source.rglob("*.py") if "\n@jit_for(" in path.read_text(encoding="utf-8")]
    assert sorted(COMPILED_ON_IMPORT) == sorted(".".join(p.relative_to(source).with_suffix("").parts) for p in paths)


def test_importing_is_light() -> None:
    """Nothing but the standard library; and numba only where something is compiled."""
    names, after, reference = (eval(line) for line in start(environment(), code=LIGHT))
    assert names == []
    assert "numba" not in after
    assert set(reference) <= {"numpy"}


def test_without_the_compiler() -> None:
    """NUMBA_DISABLE_JIT=1: learners run, and no function is compiled."""
    theta, compiled_here = start(environment(NUMBA_DISABLE_JIT="1"), "dense", "sparse", "chunked")
    assert close(theta, expected("dense", "sparse", "chunked"))
    assert compiled_here == "[]"


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="reads x86 assembly")
@pytest.mark.parametrize("name", ["run", "learn"])
def test_inner_loops_are_vectorised_in_float32(name: str) -> None:
    """Sums and updates of a float32 learner are packed single operations, with no conversion to double."""
    import numba

    rule, dtype = emphatic.rules.get("true_online_etd"), "float32"
    (signature,) = dense.kernel(rule, dtype, name, False).signatures
    function = dense.kernel(rule, dtype, name, False).py_func
    fresh: Any = numba.njit(signature, **compiled.OPTIONS)(function)  # one from the cache has no assembly to show
    (assembly,) = fresh.inspect_asm().values()
    operations = re.findall(r"\bv?(?:fn?madd\d*|mul|add)(ps|pd)\b", assembly)
    assert operations.count("ps") >= 10
    assert operations.count("pd") == 0
    assert not re.search(r"\bv?cvt(ps2pd|pd2ps)\b", assembly)


@pytest.mark.long
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="reads x86 assembly")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_lanes_are_vectorised(dtype: str) -> None:
    """Learners side by side are one vector: of arrays that LLVM cannot tell apart it would make none."""
    import numba

    kernel = lanes.kernel(emphatic.rules.get("true_online_etd"), dtype, 6, False, False)
    (signature,) = kernel.signatures
    fresh: Any = numba.njit(signature, **compiled.OPTIONS)(kernel.py_func)
    (assembly,) = fresh.inspect_asm().values()
    assert len(re.findall(r"\bvfn?m(?:add|sub)\d*p[sd]\b", assembly)) >= 20
    assert '"prefer-vector-width"="512"' in next(iter(fresh.inspect_llvm().values()))


SLOW = """
import sys, time
from numba import types
from emphatic.engines import compiled
@compiled.jit_for((types.float64,))
def double(x):
    return 2.0 * x
"""


def test_a_kernel_is_compiled_when_it_is_first_called_and_by_one_process(tmp_path: Path) -> None:
    """While another process holds the file of a module, its kernel is waited for or left to that process."""
    (tmp_path / "slow.py").write_text(SLOW)
    code = """
import fcntl, os, sys, threading, time
import slow
from emphatic.engines import compiled
lazy = slow.double
assert isinstance(lazy, compiled.LazyKernel) and not lazy.is_compiled
held = os.open(sys.modules[lazy._function.__module__].__file__, os.O_RDONLY)
fcntl.flock(held, fcntl.LOCK_EX)
assert lazy.compile(wait=False) is None
threading.Timer(0.3, os.close, [held]).start()
began = time.monotonic()
assert slow.double(4.0) == 8.0 and time.monotonic() - began > 0.25
assert lazy.is_compiled and slow.double is not lazy and lazy(1.0) == 2.0
"""
    env = environment(
        EMPHATIC_CACHE_DIR=tmp_path / "cache", PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    )
    subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=120)


def test_a_kernel_on_the_disk_is_read_without_the_compiler(tmp_path: Path) -> None:
    """To import all that numba can compile takes a quarter of a second, which a run that compiles nothing need not."""
    (tmp_path / "slow.py").write_text(SLOW)
    code = "import sys, slow; assert slow.double(4.0) == 8.0; sys.exit('numba.typed.dictimpl' in sys.modules)"
    env = environment(
        EMPHATIC_CACHE_DIR=tmp_path / "cache", PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    )
    ends = [subprocess.run([sys.executable, "-c", code], env=env, timeout=120).returncode for _ in range(2)]
    assert ends == [1, 0]


def test_the_bytecode_of_a_generated_module_is_kept_and_may_be_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMPHATIC_CACHE_DIR", str(tmp_path / "cache"))
    for kept in (b"", b"damaged", None):
        assert generated.module("kept", "x = 6 * 7", "1").x == 42
        (path,) = (tmp_path / "cache" / "__pycache__").glob("*.pyc")
        whole = path.read_bytes()
        if kept is not None:
            path.write_bytes(whole[:16] + kept)
    assert generated.module("kept", "x = 6 * 7", "1").x == 42
    assert generated.module("kept", "x = 7 * 7", "1").x == 49
