"""Arrays of libraries of which nothing is known but DLPack."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["Foreign"]


class Foreign:
    """An array with ``__dlpack__`` and nothing else; on a device that cannot be read, if ``device`` says so."""

    def __init__(self, array: Any, device: int = 1) -> None:
        self._array, self._device = np.ascontiguousarray(array), device

    def __dlpack__(self, **how: Any) -> Any:
        if self._device != 1:
            raise BufferError("this memory is on a device")
        return self._array.__dlpack__(**{name: how[name] for name in how if name != "stream"})

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device, 0
