"""Old module names, from before 0.2: they can still be imported, and give the same modules."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["MOVED", "install"]

#: Old names and new ones, below ``emphatic``.
MOVED = {
    "active": "learning.active",
    "asking": "questions.evaluator",
    "blend": "hordes.blend",
    "blend_kernels": "hordes.blend_kernels",
    "checkpoint": "learning.checkpoint",
    "demo": "cli.demo",
    "device_inputs": "learning.device_inputs",
    "durations": "questions.durations",
    "engines.chunked_functions": "engines.chunked.chunked_functions",
    "engines.chunked_kernels": "engines.chunked.chunked_kernels",
    "engines.chunked_room": "engines.chunked.chunked_room",
    "engines.columns_kernels": "engines.sparse.columns_kernels",
    "engines.cuda_blocks": "engines.cuda.cuda_blocks",
    "engines.cuda_functions": "engines.cuda.cuda_functions",
    "engines.cuda_kernels": "engines.cuda.cuda_kernels",
    "engines.cuda_products": "engines.cuda.cuda_products",
    "engines.cuda_rows": "engines.cuda.cuda_rows",
    "engines.cuda_state": "engines.cuda.cuda_state",
    "engines.cuda_steps": "engines.cuda.cuda_steps",
    "engines.dense_kernels": "engines.dense.dense_kernels",
    "engines.lanes": "engines.dense.lanes",
    "engines.lanes_functions": "engines.dense.lanes_functions",
    "engines.lanes_kernels": "engines.dense.lanes_kernels",
    "engines.lazy": "engines.sparse.lazy",
    "engines.sparse_functions": "engines.sparse.sparse_functions",
    "engines.sparse_kernels": "engines.sparse.sparse_kernels",
    "engines.sparse_many": "engines.sparse.sparse_many",
    "engines.sparse_many_functions": "engines.sparse.sparse_many_functions",
    "engines.sparse_many_kernels": "engines.sparse.sparse_many_kernels",
    "episodes": "hordes.episodes",
    "expressions": "questions.expressions",
    "horde": "hordes.horde",
    "inputs": "learning.inputs",
    "joining": "learning.joining",
    "learner": "learning.learner",
    "live": "nexting.live",
    "loading": "learning.loading",
    "quantities": "questions.quantities",
    "recording": "learning.recording",
    "restoring": "learning.restoring",
    "runs": "learning.runs",
    "sequence_kernels": "learning.sequence_kernels",
    "sequences": "learning.sequences",
    "settings": "nexting.settings",
    "shortcuts": "learning.shortcuts",
    "state": "learning.state",
    "streams.clock": "tables.clock",
    "streams.columns": "tables.columns",
    "streams.delimited": "tables.delimited",
    "streams.errors": "tables.table_errors",
    "streams.files": "tables.files",
    "streams.frames": "tables.frames",
    "streams.hold": "tables.hold",
    "streams.jsonlines": "tables.jsonlines",
    "streams.lines": "tables.pipe",
    "streams.table": "tables.table",
    "streams.times": "tables.times",
    "tensors": "learning.tensors",
    "transitions": "questions.evaluator",
    "unfinished": "nexting.unfinished",
}


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        below = fullname.removeprefix("emphatic.")
        return ModuleSpec(fullname, _Loader(f"emphatic.{MOVED[below]}")) if below in MOVED else None


class _Loader(Loader):
    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has put the old name there


def install() -> None:
    """Install the finder of the old names."""
    sys.meta_path.append(_Finder())
