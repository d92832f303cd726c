"""Checkpoints kept from released versions: how they were made, and how a learner goes on from one.

``python -m tools.make_checkpoints`` writes the folder of the version that is installed; ``test_old_checkpoints`` loads
every folder there is. A folder holds ``streams.safetensors``, the experience itself, so that no random generator need
stay as it is; for each form of an engine a folder of checkpoints, one a rule and dtype, saved in mid-stream; and beside
them, in ``outcome.safetensors``, what that version made of the rest of the stream, to the bit.

    python -m tests.support.checkpoints FOLDER FORM OUT

goes on from all of one form, for an engine in a process of its own.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
import warnings
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import emphatic
from emphatic import GVF, Horde, Learner
from emphatic import features as f
from emphatic.learning import tensors
from tests.support.contract import STRUCTURES

Arrays = dict[str, npt.NDArray[Any]]

DATA = Path(__file__).parents[1] / "data"
#: The forms of an engine that keep or move their state differently, with K: a single learner, a few, lanes.
FORMS = {
    "reference": ("reference", 3),
    "dense": ("dense", None),
    "dense-3": ("dense", 3),
    "dense-9": ("dense", 9),
    "sparse": ("sparse", None),
    "sparse-3": ("sparse", 3),
    "chunked-3": ("chunked", 3),
    "cuda-3": ("cuda", 3),
}
#: Features, as elsewhere in the tests: for many learners of few features there is a kernel for each n.
N = 6
#: Steps before the checkpoint; to there on one log; to there with φ' apart.
SAVED, LOG, T = 29, 41, 52


# ------------------------------------------------------------------------------------------------ the stream


def numbers(seed: int) -> Iterator[float]:
    """In [0, 1), the same for ever: x ← 1664525 x + 1013904223 mod 2³²."""
    x = seed
    while True:
        x = (1664525 * x + 1013904223) % 2**32
        yield x / 2**32


def stream(K: int | None) -> Arrays:
    """T steps in which every parameter of every rule changes, and is 0 here and there."""
    drawn = numbers(K or 0)
    shape = (T,) if K is None else (T, K)

    def several(shape: tuple[int, ...], low: float, high: float, *special: float) -> npt.NDArray[Any]:
        def one() -> float:
            which, value = int(3 * len(special) * next(drawn)), low + (high - low) * next(drawn)
            return special[which] if which < len(special) else value

        count = int(np.prod(shape))
        return np.array([one() for _ in range(count)]).reshape(shape)

    # Of six states two features each, most of them visited again and again; now and then no feature at all.
    states = np.zeros((7, N))
    for s in range(6):
        states[s, [s, (s + 1 + s % 3) % N]] = several((2,), -1.0, 1.0, 1.0)
    visited = np.array([int(7 * next(drawn)) for _ in range(T + 1)])
    Phi = states[visited]
    Phi_next = Phi[1:].copy()
    Phi_next[::4] = states[(visited[1::4] + 2) % 7]
    return {
        "Phi": Phi,
        "Phi_next": Phi_next,
        "R": several(shape, -1.0, 1.0, 0.0),
        "gamma_next": several(shape, 0.5, 1.0, 0.0, 1.0),
        "alpha": several(shape, 0.02, 0.3, 0.0),
        "lambda_": several(shape, 0.0, 1.0, 0.0, 1.0),
        "rho": several(shape, 0.2, 1.6, 0.0, 1.0),
        "I": several(shape, 0.1, 1.5, 0.0, 1.0),
        "beta": several(shape, 0.02, 0.4, 0.0),
        "lambda_next": several(shape, 0.0, 1.0, 0.0, 1.0),
        "kappa": several(shape, 0.0, 2.0, 0.0, 1.0),
        "pi": several(shape, 0.0, 1.0, 0.0, 1.0),
        "mu": several(shape, 0.1, 1.0, 1.0),
        "xi": several(shape, 0.0, 3.0, 0.0, 1.0),
        "theta": several((N,) if K is None else (K, N), -1.0, 1.0),
    }


def feed(learner: Learner, given: Arrays, begin: int, end: int, *, apart: bool = False) -> npt.NDArray[Any]:
    """These steps by one ``run``; its predictions."""
    Phi: dict[str, Any] = {"Phi": given["Phi"][begin : end + 1]}
    if apart:
        Phi = {"Phi": given["Phi"][begin:end], "Phi_next": given["Phi_next"][begin:end]}
    names = ["R", "gamma_next", "alpha", "lambda_", "rho", *learner.rule.extra]
    names = [name for name in names if name in given]  # a parameter that came later has its default
    names += ["I"] if learner.rule.interest else []
    some: dict[str, Any] = {name: given[name][begin:end] for name in names}
    return np.asarray(learner.run(**Phi, **some))


def begun(form: str, rule: str, dtype: str, given: Arrays) -> Learner:
    """The learner as it was saved."""
    engine, K = FORMS[form]
    learner = Learner(rule, N, K, dtype=dtype, engine=engine)
    learner.theta = given["theta"]
    feed(learner, given, 0, SAVED)
    return learner


def gone_on(learner: Learner, given: Arrays) -> Arrays:
    """All that the learner says and holds after the rest of the stream."""
    made = [feed(learner, given, SAVED, LOG), feed(learner, given, LOG, T, apart=True)]
    held = {name: np.asarray(getattr(learner, name)) for name in learner.rule.vectors + learner.rule.memory}
    return {"predictions": np.concatenate(made), **held}


def cases() -> Iterator[tuple[str, str]]:
    """(rule, dtype) of every checkpoint that is made of a form."""
    for rule in emphatic.rules.names():
        yield rule, "float64"
        if rule in STRUCTURES:
            yield rule, "float32"


def outcome(folder: Path, form: str) -> Arrays:
    """Going on from every checkpoint of this form: arrays by rule, dtype and name."""
    _, given = read(folder / "streams.safetensors")
    _, K = FORMS[form]
    mine = {name.split("/")[1]: array for name, array in given.items() if name.startswith(f"{K}/")}
    made = {}
    for path in sorted((folder / form).glob("*-float*.safetensors")):
        for name, array in gone_on(emphatic.load(path), mine).items():
            made[f"{path.stem}/{name}"] = array
    return made


def some_frozen(engine: str, given: Arrays) -> Learner:
    """Three learners, of which the second stood still after ten steps or a few more, and the others went on."""
    learner = Learner("td", N, 3, engine=engine)
    learner.theta = given["theta"]
    far = given | {name: given[name].copy() for name in ("alpha", "R")}
    far["alpha"][10:, 1], far["R"][10:, 1] = 1e308, 1e10  # the first step that moves it is too far
    _freezing(learner, far, 0, SAVED)
    assert learner.frozen.tolist() == [False, True, False], learner
    return learner


def outcome_of_frozen(folder: Path) -> Arrays:
    """Going on from every horde of which one learner stands still."""
    _, given = read(folder / "streams.safetensors")
    mine = {name.split("/")[1]: array for name, array in given.items() if name.startswith("3/")}
    made = {}
    for path in sorted((folder / "frozen").glob("td-*.safetensors")):
        learner = emphatic.load(path)
        made[f"{path.stem}/predictions"] = _freezing(learner, mine, SAVED, LOG)
        made |= {f"{path.stem}/{name}": np.asarray(getattr(learner, name)) for name in ("theta", "e", "frozen")}
    return made


def _freezing(learner: Learner, given: Arrays, begin: int, end: int) -> npt.NDArray[Any]:
    names = ("R", "gamma_next", "alpha", "lambda_", "rho", "I")
    some: dict[str, Any] = {name: given[name][begin:end] for name in names}
    return np.asarray(learner.run(given["Phi"][begin : end + 1], on_divergence="freeze", **some))


# ------------------------------------------------------------------------------------------------ a horde and a table

#: Rows of the little table; those after which the horde is saved.
ROWS, ROWS_SAVED = 60, 40


def table() -> dict[str, list[float]]:
    """Two signals, one of them missing here and there."""
    drawn = numbers(7)
    x, y, out = 0.0, 0.0, {"x": [0.0] * 0, "y": [0.0] * 0}
    for _ in range(ROWS):
        x, y = 0.8 * x + next(drawn) - 0.5, 0.5 * y + 0.5 * x
        out["x"].append(round(x, 3))
        out["y"].append(round(y, 3) if next(drawn) < 0.9 else float("nan"))
    return out


def horde() -> Horde:
    """Three questions of that table, learned at three rates and blended."""
    questions = [GVF("x", horizon=2), GVF("y", horizon=5), GVF("x * y", horizon=3, name="both")]
    parts = [f.Bias(), f.SoftBins("x", bins=3), f.SoftBins(f.Trace("y", steps=3), bins=2)]
    return Horde(questions, f.Features(parts), engine="sparse")


def observed(learned: Horde, begin: int, end: int) -> npt.NDArray[np.float64]:
    """These rows of the table by ``observe``, one by one, but for the last ten, which go by ``run``."""
    rows = table()
    by_one = range(begin, end - 10)
    made = [learned.observe({name: column[t] for name, column in rows.items()}) for t in by_one]
    rest = {name: np.array(column[end - 10 : end]) for name, column in rows.items()}
    return np.concatenate([np.array(made), learned.run(rest)])


def outcome_of_horde(path: Path) -> Arrays:
    """Going on from the horde of a file, to the end of the table."""
    learned, _ = Horde.load_with(path)
    predictions = observed(learned, ROWS_SAVED, ROWS)
    return {"predictions": predictions, "theta": learned.learner.theta}


# ------------------------------------------------------------------------------------------------ files


def write(path: Path, arrays: Arrays, **metadata: str) -> None:
    """Arrays to a safetensors file."""
    parts = {name: tensors.TensorPart.of(np.ascontiguousarray(array)) for name, array in arrays.items()}
    with open(path, "wb") as file:
        tensors.write(file, metadata, parts)


def read(path: Path) -> tuple[dict[str, str], Arrays]:
    """The metadata and the arrays of a safetensors file."""
    with open(path, "rb") as file:
        metadata, stored = tensors.read(file)
        return metadata, {name: part.array() for name, part in stored.items()}


def machine() -> str:
    """What the last bits depend on besides this library: the processor, and the compilers and BLAS that serve it."""
    import llvmlite.binding as llvm

    def installed(name: str) -> str | None:
        try:
            return version(name)
        except PackageNotFoundError:
            return None

    abilities = sorted(name for name, there in llvm.get_host_cpu_features().items() if there)
    told: dict[str, Any] = {"system": platform.system(), "cpu": llvm.get_host_cpu_name()}
    told["abilities"] = hashlib.sha256(" ".join(abilities).encode()).hexdigest()[:16]
    told |= {name: installed(name) for name in ("numpy", "numba", "llvmlite", "torch", "triton")}
    return json.dumps(told)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # torch's, not ours
    write(Path(sys.argv[3]), outcome(Path(sys.argv[1]), sys.argv[2]))
