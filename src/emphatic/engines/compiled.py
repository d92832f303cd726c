"""Compiling with numba: kernels for one rule, kept on disk so that a second start is quick.

A kernel is an ordinary module of functions. What is compiled for a rule is one text: the rule's own source, its small
functions (``unrolled``), and the kernel's source. It is written to a file that is named after the hash of that text, so
an edited rule, engine or constant never meets old machine code, which numba keeps beside the file. A kernel therefore
imports nothing of this package but this module and ``intrinsics``. Where no folder can be written the kernels are
compiled in memory: slower to start, otherwise the same.

A kernel is compiled when it is first called. Two processes that need it at the same time do not both compile it: one
does, and the other waits and reads the result from the disk.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import importlib
import inspect
import os
import re
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numba
import numba.core.caching
import numba.core.config
import numpy as np
from numba.core.cpu import CPUContext
from numba.core.runtime.nrt import rtsys
from numba.core.typeinfer import register_dispatcher

from emphatic.common.locks import lock
from emphatic.engines import generated
from emphatic.engines.generated import cache_folder

if TYPE_CHECKING:
    from emphatic.engines.unrolled import Functions

__all__ = [
    "FASTMATH",
    "LazyKernel",
    "blas_threads",
    "cache_folder",
    "compose",
    "direct",
    "exact",
    "inner",
    "interpreted",
    "jit_for",
    "kernel",
    "lean",
    "module",
    "njit",
    "several",
    "small",
    "source_of",
    "strict",
]

F = TypeVar("F", bound=Callable[..., Any])

#: What LLVM may assume: sums in any order, but NaN and infinity stay what they are.
FASTMATH = frozenset({"reassoc", "contract", "nsz", "arcp", "afn"})

#: How every function is compiled.
OPTIONS: dict[str, Any] = {"fastmath": set(FASTMATH), "error_model": "numpy", "nogil": True}
#: A function that only kernels call needs no way in from Python or C.
INNER: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
#: References to arrays are not counted: see ``lean``.
LEAN: dict[str, Any] = {"_nrt": False}
#: A rule's scalars are computed as they are written: λI + (1−λ)F must not become F + λ(I−F), which loses I beside F.
STRICT: dict[str, Any] = OPTIONS | {"fastmath": set(FASTMATH - {"reassoc"})}


def interpreted() -> bool:
    """Whether kernels run as the Python that they are (NUMBA_DISABLE_JIT=1)."""
    return bool(numba.core.config.DISABLE_JIT)  # type: ignore[attr-defined]


def small(function: F) -> F:
    """A function that becomes a part of whatever calls it."""
    return njit(function, inline="always", **OPTIONS, **INNER)


def strict(function: F) -> F:
    """A function that keeps its own order of operations, in whatever calls it."""
    return njit(function, forceinline=True, **STRICT, **INNER)


def inner(function: F) -> F:
    """A function that kernels call.

    LLVM makes it a part of them: called as it is, a process that has just compiled it would use another copy, with
    other last bits, than one that reads the kernel from the disk.
    """
    return njit(function, forceinline=True, **OPTIONS, **INNER)


def exact(function: F) -> F:
    """A function that kernels call, in which every operation is rounded as it stands, as NumPy would."""
    return njit(function, forceinline=True, **OPTIONS | {"fastmath": False}, **INNER)


def njit(function: F, **options: Any) -> F:
    """``numba.njit``, which has no types of its own."""
    compiled: F = numba.njit(**options)(function)
    return compiled


def compose(functions: Functions, *kernels: str) -> str:
    """The text that is compiled: the rule, its small functions, and the source of these kernel modules."""
    texts = [
        "from __future__ import annotations\n\nimport numpy as np\n\n"
        "from emphatic.engines.compiled import small, strict\n"
        "from emphatic.engines.intrinsics import get_apart, put_apart\n\n"
        f"# compiled by {_compiler()}\n",
        functions.rule.source,
        "rule = small(rule)\n",
        *functions.text,
        *(source_of(name) for name in kernels),
    ]
    return "\n\n".join(texts)


def lean(text: str) -> str:
    """The same text, to be compiled by the decorators of ``lean``."""
    return (
        text.replace("from emphatic.engines.compiled import", "from emphatic.engines.lean import") + "\n\nLEAN = True\n"
    )


def _compiler() -> str:
    """What a kernel may import of this package, as a hash."""
    return _digest("compiled", "intrinsics", "lean")


@functools.cache
def _digest(*names: str) -> str:
    """The source of modules beside this one, as a hash."""
    texts = (Path(__file__).with_name(f"{name}.py").read_bytes() for name in names)
    return hashlib.sha256(b"".join(texts)).hexdigest()


def source_of(kernel: str) -> str:
    """The source of a kernel module, to stand in the midst of another; one that is no engine's has its whole name."""
    name = kernel if kernel.startswith("emphatic.") else f"emphatic.engines.{kernel}"
    source = inspect.getsource(importlib.import_module(name))
    return source.replace("from __future__ import annotations\n", "", 1)


def several(kind: numba.types.Type, count: int) -> Any:
    """The type of a tuple of so many of these."""
    uniform_tuple: Any = numba.types.UniTuple
    return uniform_tuple(kind, count)


def module(name: str, source: str) -> types.ModuleType:
    """The module that ``source`` makes, in a file beside which numba keeps its machine code."""
    return _module(name, source, interpreted())


@functools.cache
def _module(name: str, source: str, interpreted: bool) -> types.ModuleType:
    return generated.module(f"plain_{name}" if interpreted else name, source, numba.__version__)


def kernel(module: types.ModuleType, name: str, *signature: numba.types.Type) -> Any:
    """One function of a generated module, compiled for exactly these argument types and never again for others."""
    function = getattr(module, name)
    if interpreted():
        return np.errstate(all="ignore")(function)  # as compiled: overflow says nothing, the bounds find it
    path = Path(module.__file__ or "")
    options = OPTIONS | (LEAN if getattr(module, "LEAN", False) else {})
    with _announced(module.__name__, path, name), _alone(path, wait=True), _without_collection():
        compiled = _compiled(function, path.is_file(), [signature], options)
    compiled.disable_compile()
    return compiled


#: Seconds after which it is said what is compiled, and what has been said.
_PATIENCE = 1.0
_SAID: set[str] = set()


@contextmanager
def _announced(module: str, path: Path, name: str) -> Iterator[None]:
    """Print one line if a kernel is not compiled within a second: one for each rule, engine and dtype."""
    what = re.sub(r"_[0-9a-f]{16}$", "", module.removeprefix(generated.PREFIX))

    def announce() -> None:
        _SAID.add(what)
        print(f"emphatic: compiling {what}, which takes some seconds. Later runs load it.", file=sys.stderr, flush=True)

    timer = threading.Timer(_PATIENCE, announce)
    timer.daemon = True
    if what not in _SAID and not _is_stored(path, name):
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _is_stored(path: Path, name: str) -> bool:
    """Whether the machine code of a function is on the disk, for some of its argument types."""
    return any((path.parent / "__pycache__").glob(f"{path.stem}.{name}-*.nbi"))


@functools.cache
def direct(kernel: Any) -> Any:
    """A kernel without numba's look at the type of each argument, which in a short step takes as long as all else.

    Only for callers all of whose arguments have the kernel's types because of what the callers are: the arrays are
    read as these types, whatever they are.
    """
    if interpreted():
        return np.errstate(all="ignore")(kernel)  # as compiled: overflow says nothing
    return next(iter(kernel.overloads.values())).entry_point


@contextmanager
def _without_collection() -> Iterator[None]:
    """A compiler keeps millions of small objects: to look through them again and again takes a tenth of its time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@functools.cache
def _pools() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def blas_threads(count: int) -> Any:
    """A context in which NumPy's matrix products use so many threads."""
    return _pools().limit(limits=count, user_api="blas")


class LazyKernel:
    """A function of a module of its own that is compiled, or read from the disk, when it is first called.

    Args:
        function: The function, of the module in the cache folder.
        signatures: The argument types that it is compiled for, and never for others.
        options: How it is compiled.
    """

    def __init__(self, function: Callable[..., Any], signatures: Sequence[Any], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self._function, self._signatures, self._options = function, list(signatures), options
        self._compiled: Any = None
        #: The module of this package that the function was written in.
        self.home = function.__module__

    def compile(self, *, wait: bool = True) -> Any:
        """The compiled function, which from now on stands in its module; None if another process compiles it.

        Args:
            wait: Whether to wait for the other process.
        """
        if self._compiled is None:
            path = Path(sys.modules[self._function.__module__].__file__ or "")
            with _alone(path, wait) as may_compile, _without_collection():
                if not may_compile:
                    return None
                compiled = _compiled(self._function, path.is_file(), self._signatures, self._options)
            compiled.disable_compile()
            self._compiled = compiled
            home = sys.modules.get(self.home)
            if home is not None and getattr(home, self._function.__name__, None) is self:
                setattr(home, self._function.__name__, compiled)
        return self._compiled

    @property
    def is_compiled(self) -> bool:
        """Whether it is compiled, in this process or on the disk."""
        path = Path(sys.modules[self._function.__module__].__file__ or "")
        return self._compiled is not None or _is_stored(path, self._function.__name__)

    @property
    def overloads(self) -> Any:
        """The compiled code by its argument types, as numba has it."""
        return self.compile().overloads

    def __call__(self, *arguments: Any) -> Any:
        if self._compiled is None and interpreted():  # (made before the compiler was switched off)
            return self._function(*arguments)
        return self.compile()(*arguments)


#: Seconds after which the compilation of another process is no longer waited for, and between two looks at it.
_LONGEST, _BETWEEN = 120.0, 0.05


@contextmanager
def _alone(path: Path, wait: bool) -> Iterator[bool]:
    """Hold the file of a module while it is compiled; False if another process does, and is not to be waited for."""
    descriptor = -1
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
    try:
        end = time.monotonic() + _LONGEST
        while descriptor >= 0 and lock(descriptor) is False:
            if not wait:
                yield False
                return
            if time.monotonic() > end:  # (it may be stopped: then both compile, which is only slower)
                break
            time.sleep(_BETWEEN)
        yield True
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def jit_for(*signatures: tuple[Any, ...], fastmath: bool = True, allocates: bool = True) -> Callable[[F], F]:
    """A function of a module of its own, compiled for exactly these argument types when it is first called.

    One that never ``allocates`` memory counts no references, see ``lean``; neither do the functions that it calls.

    Without ``fastmath`` every operation is rounded as it stands, so that bits do not depend on how a loop is compiled.
    """

    def compile_for(function: F) -> F:
        if interpreted():
            return function
        out: Any
        if function.__module__.startswith(generated.PREFIX):
            options = (OPTIONS if fastmath else OPTIONS | {"fastmath": False}) | ({} if allocates else LEAN)
            out = LazyKernel(function, signatures, options)
        else:
            out = getattr(_relocated(function.__module__, _constants(function)), function.__name__)
            out.home = function.__module__
        return out  # type: ignore[no-any-return]

    return compile_for


def _constants(function: Callable[..., Any]) -> str:
    """The numbers that a function's module knows, of whatever module they are: they are compiled in."""
    known = {name: value for name, value in function.__globals__.items() if isinstance(value, int | float | tuple)}
    return repr({name: known[name] for name in sorted(known) if not name.startswith("__")})


@functools.cache
def _relocated(name: str, constants: str) -> types.ModuleType:
    """A module of this package once more, in the cache folder, where its machine code is to be."""
    return module(name.removeprefix("emphatic.").replace(".", "_"), relocated_source(name, constants))


def relocated_source(name: str, constants: str) -> str:
    """The text of a module once more, with all that its machine code depends on."""
    path = sys.modules[name].__file__
    assert path is not None
    source = Path(path).read_text(encoding="utf-8")
    parts = [part for part in ("intrinsics", "lanes") if f"from emphatic.engines.{part} import" in source]
    compiler = f"# compiled with {_digest(*parts)}\n" if parts else ""
    return f"{source}\n# with {constants}\n{compiler}"


_caching: Any = numba.core.caching
_in_tree: Any
_cache_base: Any
_in_tree, _cache_base = (  # (of numba 0.60 with an underscore)
    getattr(_caching, name, None) or getattr(_caching, f"_{name}") for name in ("InTreeCacheLocator", "CacheImpl")
)


class _GeneratedFiles(_in_tree):  # type: ignore[misc]
    """Where the machine code of generated modules is: beside them, also if nothing can be written there any more."""

    def ensure_cache_path(self) -> None:
        if not os.path.isdir(self.get_cache_path()):
            super().ensure_cache_path()

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> Any:
        is_generated = os.path.basename(py_file).startswith(generated.PREFIX)
        return super().from_function(py_func, py_file) if is_generated else None


_cache_base._locator_classes.insert(0, _GeneratedFiles)  # for generated modules alone


def _compiled(function: Callable[..., Any], cache: bool, signatures: list[Any], options: dict[str, Any]) -> Any:
    if cache:
        try:
            return _loaded(function, signatures, options)
        except Exception:  # no folder to write to, a full disk, or a damaged file: numba lets anything through
            pass
    jit: Any = numba.njit(signatures, **options)
    return jit(function)


class _QuickCache(_caching.FunctionCache):  # type: ignore[misc]
    """Machine code on the disk, read without what only the compiler needs: to import that takes a quarter of a second.

    The kernels need none of the symbols that numba declares there, but the functions that allocate arrays.
    """

    def load_overload(self, sig: object, target_context: CPUContext) -> Any:
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            loaded = self._load_overload(sig, target_context)
            if loaded is not None:
                return loaded
        return super().load_overload(sig, target_context)


def _loaded(function: Callable[..., Any], signatures: Sequence[object], options: dict[str, Any]) -> Any:
    """``numba.njit`` with its cache, which is a quicker one."""
    dispatcher = numba.njit(**options)(function)
    dispatcher._cache = _QuickCache(dispatcher.py_func)
    with register_dispatcher(dispatcher):
        for signature in signatures:
            dispatcher.compile(signature)
    return dispatcher
