"""What safety costs: the checksums' part of ``load`` and the guard's part of ``learn``, side by side in one process."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import emphatic
from emphatic import Learner
from emphatic.learning import tensors

__all__ = ["costs"]


def _least(first: Callable[[], object], second: Callable[[], object], rounds: int, times: int) -> tuple[float, float]:
    """Seconds of the processor that each takes, the least of many rounds in turn: other work does not count."""
    found = [float("inf"), float("inf")]
    for _ in range(rounds):
        for i, call in enumerate((first, second)):
            began = time.process_time()
            for _ in range(times):
                call()
            found[i] = min(found[i], (time.process_time() - began) / times)
    return found[0], found[1]


def _loads(folder: Path, n: int, K: int | None, engine: str) -> None:
    learner = Learner("true_online_etd", n, K, engine=engine)
    learner.theta = np.random.default_rng(0).normal(size=n)
    new, old = folder / "new", folder / "old"
    learner.save(new)
    with open(new, "rb") as file, open(old, "wb") as plain:
        metadata, stored = tensors.read(file)
        own = json.loads(metadata["emphatic"])
        del own["xxh3"]
        parts = {name: tensors.TensorPart.of(part.array()) for name, part in stored.items()}
        tensors.write(plain, {"emphatic": json.dumps(own)}, parts)
    with_, without = _least(lambda: emphatic.load(new), lambda: emphatic.load(old), 15, 1)
    size = new.stat().st_size / 1e6
    print(
        f"load, {engine}, n={n:,}, K={K}, {size:,.1f} MB: {1e3 * with_:.2f} ms, {with_ / without - 1:+.0%} by checksums"
    )


def _learns(n: int) -> None:
    phi = np.random.default_rng(0).normal(size=n)
    learner = Learner("true_online_etd", n, engine="dense")
    guard = learner._guard

    def learn() -> None:
        learner.learn(1e-9, 1.0, 0.5, phi, 1.0, 1.0, phi, 0.5)

    def look() -> None:
        """What the guard does, and the call of a function, as often."""
        if guard.users:
            guard.wait()
        guard.users = -1
        try:
            pass
        finally:
            guard.users = 0

    def nothing() -> None:
        try:
            pass
        finally:
            pass

    guarded, empty = _least(look, nothing, 200, 2000)
    whole, _ = _least(learn, nothing, 200, 2000)
    cost = guarded - empty
    print(f"learn, dense, n={n}: {1e9 * whole:.0f} ns, of which the guard {1e9 * cost:.0f} ns, {cost / whole:.1%}")


def costs() -> None:
    """Print all of them."""
    with tempfile.TemporaryDirectory() as folder:
        for n, K in ((8_000_000, None), (8000, 1000), (100, None)):
            _loads(Path(folder), n, K, "dense")
        _loads(Path(folder), 1_000_000, None, "sparse")
    for n in (16, 100, 1000):
        _learns(n)
