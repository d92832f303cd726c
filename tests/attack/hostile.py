"""Arrays and values as no caller should give them, and as callers do: made from a seed."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["FOLDER", "LARGEST", "LAYOUTS", "Raises", "disguise", "strange_array", "strange_value"]

#: For files, removed at the end of this process.
FOLDER = Path(tempfile.mkdtemp(prefix="attack-"))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
#: Beyond it a result says nothing about rounding any more.
LARGEST = {"float64": 1e100, "float32": 1e12}

TINY = 5e-324
NUMBERS = (
    0.0, -0.0, 1.0, -1.0, 0.5, TINY, -TINY, 1e-310, 1e-300, 1e300, -1e300, 1.7e308, np.inf, -np.inf, np.nan, 2**53,
)  # fmt: skip


class Raises:
    """An object that becomes nothing."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("no array")

    def __float__(self) -> float:
        raise KeyError("no number")


def strange_value(rng: np.random.Generator) -> Any:
    """In the place of a number."""
    return (
        lambda: NUMBERS[rng.integers(len(NUMBERS))],
        lambda: np.float32(rng.choice([0.1, 1e38, np.inf, np.nan, 1e-45])),
        lambda: int(rng.integers(-5, 5)),
        lambda: 10**400,
        lambda: None,
        lambda: "0.5",
        lambda: True,
        lambda: 1j,
        lambda: [0.5],
        dict,
        Raises,
        lambda: np.array(0.5, ">f8"),
        lambda: np.ma.masked,
        lambda: np.datetime64("2024-01-01"),
    )[rng.integers(14)]()


def strange_array(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """In the place of numbers of this shape."""
    array = rng.normal(size=shape)
    kind = rng.integers(16)
    if kind == 0:
        return None
    if kind == 1:
        return Raises()
    if kind == 2:
        return array[..., :-1] if array.ndim else array[None]
    if kind == 3:
        return array[None]
    if kind == 4:
        return [[1.0], [1.0, 2.0]]
    if kind == 5:
        return array.astype(object)
    if kind == 6:
        return array.astype(str)
    if kind == 7:
        return array + 1j
    if kind == 8:
        return np.ma.masked_array(array, rng.random(shape) < 0.5)
    if kind == 9:
        return np.zeros(shape, [("a", "f8")])
    if kind == 10:
        return np.empty((0, *shape))
    if kind == 11:
        return np.broadcast_to(np.float64(NUMBERS[rng.integers(len(NUMBERS))]), shape)
    flat = array.reshape(-1) if array.ndim else np.empty(0)
    for at in rng.integers(0, flat.size, size=2) if flat.size else ():
        flat[at] = NUMBERS[rng.integers(len(NUMBERS))]
    return disguise(rng, array)


def disguise(rng: np.random.Generator, array: npt.NDArray[Any]) -> Any:
    """The same numbers, laid out in another way."""
    return LAYOUTS[str(rng.choice(list(LAYOUTS)))](array)


def misaligned(array: Any) -> Any:
    """The same values at an odd address, as a packed binary file gives them."""
    a = np.asarray(array)
    odd: npt.NDArray[Any] = np.ndarray(a.shape, a.dtype, bytearray(a.nbytes + 1), 1)
    odd[...] = a
    return odd


def read_only(array: Any) -> Any:
    a = np.array(array)
    a.flags.writeable = False
    return a


#: Order, strides, bytes, type, list, or not to be written to.
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "lists": lambda a: np.asarray(a).tolist(),
    "big-endian": lambda a: np.asarray(a, np.asarray(a).dtype.newbyteorder(">")),
    "read-only": read_only,
    "Fortran order": lambda a: np.array(a, order="F"),
    "every other row": lambda a: np.repeat(a, 2, axis=0)[::2] if np.ndim(a) else a,
    "backwards": lambda a: np.asarray(a)[::-1].copy()[::-1] if np.ndim(a) else a,
    "inside a wider array": lambda a: np.pad(a, [(0, 0)] * (np.ndim(a) - 1) + [(1, 2)])[..., 1:-2] if np.ndim(a) else a,
    "misaligned": misaligned,
    "as it is": lambda a: a,
}
