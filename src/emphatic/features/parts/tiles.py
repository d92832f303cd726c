"""Tile coding."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from emphatic.features.parts._scaled import ScaledPart
from emphatic.features.plan import EXACT, HASHED, FeaturePlan, Unit
from emphatic.learning.inputs import refusal, whole

__all__ = ["Tiles"]


@dataclass(frozen=True, repr=False)
class Tiles(ScaledPart):
    """Tile coding: ``tilings`` grids of ``tiles`` a side, each displaced, and one tile active in each.

    One source, or "*", is tiled by itself; a list of sources is tiled jointly. Tiling k is displaced by
    k·(1, 3, 5, …)/tilings of a tile, modulo 1 (asymmetric offsets; ``tilings`` should be a power of 2 and at least 4
    times the number of sources). A tile's value is 1/√tilings, so that φ·φ of the part is 1. With ``hashed``, tiles
    are mapped to that many features by a fixed hash, and those that collide in one row are added.

    Source: Sutton & Barto (2018), section 9.5.4.
    """

    kind: ClassVar[str] = "tiles"
    tiles: int = field(default=8, kw_only=True)
    tilings: int = field(default=8, kw_only=True)
    hashed: int | None = field(default=None, kw_only=True)

    def check(self) -> None:
        super().check()
        for name in ("tiles", "tilings"):
            whole(name, getattr(self, name), "Tiles")
        if self.hashed is not None and whole("hashed", self.hashed, "Tiles") >= 1 << 32:
            raise refusal("hashed", "Tiles", "be below 2**32", repr(self.hashed))
        if isinstance(self.of, tuple):
            for source in self.of:
                names = source if isinstance(source, str) else source.of
                several = not isinstance(source, str) and isinstance(source.steps, tuple)
                if several or not isinstance(names, str) or names == "*":
                    raise refusal("of", "Tiles", "name one signal in each place of a list", repr(source))

    def units(self, plan: FeaturePlan) -> list[Unit]:
        scales = self.scales(plan, self.tiles + 1)
        groups = [scales] if isinstance(self.of, tuple) else [[scale] for scale in scales]
        op, size = (HASHED, self.hashed) if self.hashed else (EXACT, self.tiles + (self.tilings > 1))
        units = []
        for group in groups:
            members, of = tuple(scale for scale, _ in group), ", ".join(source for _, source in group)
            if self.hashed:
                names = partial(_hashed_names, of, size)
            else:
                names = partial(_exact_names, of, self.tilings, size, len(group))
            units.append(Unit(op, names, members, self.tilings, size, (self.tilings**-0.5, 0.0)))
        return units


def _hashed_names(of: str, size: int, knots: Any) -> Iterable[str]:
    return (f"tiles({of}) #{i}" for i in range(size))


def _exact_names(of: str, tilings: int, size: int, dimensions: int, knots: Any) -> Iterable[str]:
    for tiling in range(tilings):
        for at in itertools.product(range(size), repeat=dimensions):
            yield f"tiles({of}) {tiling}: {', '.join(map(str, at))}"
