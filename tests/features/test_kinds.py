"""Every kind is one file, and makes the φ that it made before kinds were files."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import pytest

from emphatic import features as f
from emphatic.features import parts, sources

NAMES = ("S1", "S2", "S3")

PARTS: dict[str, list[f.Part]] = {
    "bias": [f.Bias()],
    "soft_bins": [
        f.SoftBins("*", bins=7),
        f.SoftBins(["S1", f.Trace("*", steps=[3, 30])], bins=5, spacing="equal"),
        f.SoftBins(f.Change("*"), bins=4),
        f.SoftBins("S2", range=(-3, 2)),
    ],
    "tiles": [
        f.Tiles("*", tiles=5, tilings=1),
        f.Tiles(f.Change("*", steps=9)),
        f.Tiles(["S1", f.Trace("S2", steps=5)], tiles=3, hashed=64),
        f.Tiles(["S3", "S1"], tiles=4, tilings=4, range=[(0, 9), (-2, 2)]),
    ],
    "time_of_day": [f.TimeOfDay(), f.TimeOfDay(bins=5)],
    "time_of_week": [f.TimeOfWeek()],
    "time_of_year": [f.TimeOfYear(), f.TimeOfYear(bins=5)],
    "one_hot": [f.OneHot("turn"), f.OneHot("S3", categories=[0.0, 1.5])],
    "missing": [f.Missing(["S3", "S1"]), f.Missing("*")],
}

DIGESTS = {
    "bias": "ba2fa6383294dfe4",
    "soft_bins": "e1908d3b61a143e5",
    "tiles": "e28d10fe58cb8125",
    "time_of_day": "3c55f56733ab32d1",
    "time_of_week": "86baf8f71e2e08a6",
    "one_hot": "f3542d0c7a95c238",
    "missing": "d6620418728969fb",
    "all": "a022decab3d7504b",
}


def stream(T: int = 3000) -> np.ndarray:
    """Three signals whose level and spread stay, with gaps; the third is mostly 0."""
    rng = np.random.default_rng(7)
    values: np.ndarray = np.sin(np.arange(T)[:, None] / [7.0, 31.0, 190.0]) * [1, 5, 20] + rng.normal(size=(T, 3))
    values[:, 2] = np.where(rng.random(T) < 0.7, 0.0, np.abs(values[:, 2]))
    values[rng.random((T, 3)) < 0.05] = np.nan
    return values


def digest(chosen: list[f.Part]) -> str:
    values = stream()
    time = np.arange(len(values)) * 1234.5
    turn = np.array(["a", "b", None, "c"], object)[np.arange(len(values)) // 5 % 4]
    warm: dict[str, Any] = {"time": time[:2000], "labels": {"turn": turn[:2000]}}
    maker = f.Features(chosen).warm_up(values[:2000], names=NAMES, **warm)
    phi = maker(values, time=time, labels={"turn": turn})
    made = hashlib.sha256(phi.indices.tobytes() + phi.values.tobytes() + maker.save()[1]["z"].tobytes())
    facts = [maker.names(), maker.norm, maker.clipped, maker.n, maker.active, phi.top, maker.to_config()]
    made.update(json.dumps(facts).encode())
    return made.hexdigest()[:16]


@pytest.mark.parametrize("kind", DIGESTS)
def test_phi_is_what_it_was_before_kinds_were_files(kind: str) -> None:
    """The digests were made by ``digest`` of this file at commit 9e8b427, where all kinds were in one module."""
    everything = [part for kind in DIGESTS for part in PARTS.get(kind, [])]  # kinds of that time
    assert digest(PARTS.get(kind, everything)) == DIGESTS[kind]


def test_every_kind_is_a_file_and_has_a_public_name() -> None:
    names = {kind.kind: kind for kind in parts.KINDS.values()} | {kind.name(): kind for kind in sources.KINDS.values()}
    assert names == parts.KINDS | sources.KINDS
    for kind in names.values():
        assert kind.__name__ in f.__all__
        assert getattr(f, kind.__name__) is getattr(parts, kind.__name__) is kind
    assert set(PARTS) | {"function"} == set(parts.KINDS)
