"""Puts compiled kernels into a wheel, so that a first run need not compile them.

    EMPHATIC_CACHE_DIR=kernels emphatic warm
    EMPHATIC_KERNELS=kernels pip wheel --no-deps .

The first command fills a folder, the second one builds a wheel with it. The wheel is for one version of Python and one
platform. Its kernels are used with the same version of numba on the same kind of processor. Elsewhere they are
compiled as usual. Without EMPHATIC_KERNELS the wheel has none.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

__all__ = ["WheelKernels"]


class WheelKernels(BuildHookInterface[Any]):
    """The build hook; see ``[tool.hatch.build.targets.wheel.hooks.custom]``."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files of the folder to the wheel.

        Args:
            version: "standard" or "editable".
            build_data: What hatchling knows of the wheel.
        """
        chosen = os.environ.get("EMPHATIC_KERNELS")
        if not chosen or version == "editable":
            return
        folder = Path(chosen).resolve()
        if not (folder / "processor").is_file():
            raise ValueError(
                f"EMPHATIC_KERNELS={chosen}: this folder has no kernels. Fill it first: "
                f"EMPHATIC_CACHE_DIR={chosen} emphatic warm"
            )
        kernels = [folder / "processor", *folder.glob("emphatic_*.py"), *folder.glob("__pycache__/emphatic_*.nb[ic]")]
        for path in kernels:
            build_data["force_include"][str(path)] = f"emphatic/kernels/{path.relative_to(folder).as_posix()}"
        build_data["pure_python"], build_data["infer_tag"] = False, True
