"""``predict`` of several φ at once: the values of one at a time, and the checks of every call."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from emphatic import Active, Learner, LeastSquares

n = 40
ENGINES = ["reference", "dense", "sparse", "chunked"]


def rows_of(rng: np.random.Generator, T: int, values: bool = True) -> Active:
    """T rows of up to five active features, some of them with fewer."""
    index = np.array([rng.permutation(n)[:5] for _ in range(T)]).reshape(T, 5)
    index[rng.random((T, 5)) < 0.2] = -1
    return Active(index, rng.normal(size=(T, 5)) if values else None)


def dense_of(phi: Active, dtype: str = "float64") -> NDArray[Any]:
    dense = np.zeros((len(phi), n + 1), dtype)  # −1, "none", is the last
    np.put_along_axis(dense, phi.indices, phi.values.astype(dtype), axis=1)
    return dense[:, :n].copy()


def taught(engine: str, K: int | None = None, dtype: str = "float64", rule: str = "true_online_etd") -> Learner:
    learner = Learner(rule, n, K, engine=engine, dtype=dtype)
    rng = np.random.default_rng(3)
    learner.run(rows_of(rng, 201), rng.normal(size=200), 0.9, alpha=0.05, lambda_=0.8)
    return learner


@pytest.mark.plain
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("K", [None, 3])
@pytest.mark.parametrize("engine", ENGINES)
def test_several_are_the_values_of_one_at_a_time(engine: str, K: int | None, dtype: str) -> None:
    learner, rng = taught(engine, K, dtype), np.random.default_rng(4)
    near: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-14} if dtype == "float64" else {"rtol": 1e-5, "atol": 1e-6}
    for T in (0, 1, 3, 18):
        active, unit = rows_of(rng, T), rows_of(rng, T, values=False)
        for phi in (
            active,
            unit,
            active[::2],
            active[::-1],
            dense_of(active, dtype),
            dense_of(active).tolist() if T else [],
        ):
            if not T and isinstance(phi, list):
                continue
            together = learner.predict(phi)
            assert isinstance(together, np.ndarray)
            assert together.dtype == dtype
            assert together.shape == (len(phi),) if K is None else (len(phi), K)
            one_by_one = [learner.predict(row) for row in phi]
            np.testing.assert_allclose(together, np.reshape(one_by_one, together.shape), **near)
        dense = dense_of(active, dtype)
        for layout in (np.asfortranarray(dense), np.repeat(dense, 2, axis=0)[::2], np.repeat(dense, 2, axis=1)[:, ::2]):
            np.testing.assert_allclose(learner.predict(layout), learner.predict(dense), **near)
        locked = dense.copy()
        locked.flags.writeable = False
        assert np.array_equal(learner.predict(locked), learner.predict(dense))


@pytest.mark.parametrize("engine", ["dense", "sparse", "chunked"])
def test_a_value_that_overflows_is_infinite_and_not_an_error(engine: str) -> None:
    learner = Learner("td", n, engine=engine)
    learner.theta = np.full(n, 1e300)
    Phi = np.zeros((3, n))
    Phi[1, 2], Phi[2, 2] = 1e300, 1e-300
    phi = Active([[2]] * 3, [[0.0], [1e300], [1e-300]]) if engine == "sparse" else Phi
    with np.errstate(all="ignore"):
        assert learner.predict(phi).tolist() == [0.0, math.inf, 1.0]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("K", [None, 3])
def test_threads_predict_several_while_another_learns(engine: str, K: int | None) -> None:
    """Each prediction is one of the weights between two steps, or is refused."""
    learner, rng = taught(engine, K), np.random.default_rng(7)
    phi, phi_next = rows_of(rng, 18), rows_of(rng, 18)
    alone = learner.copy()
    between = [alone.predict(phi)]
    for t in range(60):
        alone.learn(0.05, 1.0, 0.8, phi[t % 18], 1.0, 1.0, phi_next[t % 18], 0.9)
        between.append(alone.predict(phi))
    known = {array.tobytes() for array in between}
    wrong: list[str] = []
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            try:
                if learner.predict(phi).tobytes() not in known:
                    wrong.append("a prediction of no state")
            except RuntimeError as error:
                if "in use by another thread" not in str(error):
                    wrong.append(str(error))

    readers = [threading.Thread(target=look) for _ in range(3)]
    for reader in readers:
        reader.start()
    try:
        for t in range(60):
            learner.learn(0.05, 1.0, 0.8, phi[t % 18], 1.0, 1.0, phi_next[t % 18], 0.9)
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert not wrong
    assert learner.predict(phi).tobytes() == between[-1].tobytes()


@pytest.mark.parametrize("K", [None, 3])
def test_least_squares_answers_several_as_one(K: int | None) -> None:
    learner, rng = LeastSquares(n, K), np.random.default_rng(8)
    learner.run(rows_of(rng, 201), rng.normal(size=200), 0.9, lambda_=0.8)
    phi = rows_of(rng, 18)
    for several in (phi, dense_of(phi)):
        one_by_one = np.array([learner.predict(row) for row in several])
        np.testing.assert_allclose(learner.predict(several), one_by_one, rtol=1e-12, atol=1e-14)
    assert learner.predict(phi[:0]).shape == ((0,) if K is None else (0, K))
