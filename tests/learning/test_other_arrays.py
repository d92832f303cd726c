"""Arrays of other libraries, which come by DLPack; with the cuda engine in ``tests.support.interpreted``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emphatic import Learner
from tests.support.foreign import Foreign
from tests.support.streams import make


def test_they_are_read_where_they_are() -> None:
    stream = make(1, 12, 4, 2, rule="td")
    plain, other = (Learner("td", 4, 2, engine="reference") for _ in range(2))
    given: dict[str, Any] = {name: Foreign(value) for name, value in stream.parameters().items()}
    assert other.run(Foreign(stream.Phi), **given).tobytes() == stream.run(plain).tobytes()
    assert other.theta.tobytes() == plain.theta.tobytes()
    assert other.predict(Foreign(stream.Phi[0])).tobytes() == plain.predict(stream.Phi[0]).tobytes()
    assert other.predict(Foreign(stream.Phi)).shape == (13, 2)
    first, second = (Learner("td", 4, engine="dense") for _ in range(2))
    step: dict[str, Any] = {"alpha": 0.1, "I": 1.0, "lambda_": 0.5, "rho": 1.0, "R": 1.0, "gamma_next": 0.9}
    phi, phi_next = stream.Phi[:2]
    assert first.learn(phi=Foreign(phi), phi_next=Foreign(phi_next), **step) == second.learn(
        phi=phi, phi_next=phi_next, **step
    )


def test_one_on_a_device_is_refused_with_the_remedy() -> None:
    learner = Learner("td", 4, engine="reference")
    message = "The 'Phi' parameter of run must be on the host, or the engine 'cuda'.* Got Foreign on another device"
    with pytest.raises(ValueError, match=message):
        learner.run(Foreign(np.ones((3, 4)), device=2), 1.0, 0.9, alpha=0.1)
    with pytest.raises(ValueError, match="'R' parameter of run must be on the host"):
        learner.run(np.ones((3, 4)), Foreign(np.ones(2), device=2), 0.9, alpha=0.1)
    with pytest.raises(ValueError, match="'phi' parameter of predict must be on the host"):
        learner.predict(Foreign(np.ones(4), device=2))
    with pytest.raises(ValueError, match="'Phi' parameter of run must be real numbers"):
        learner.run(Foreign(np.ones((3, 4), complex)), 1.0, 0.9, alpha=0.1)
    assert learner.steps == 0


@pytest.mark.xdist_group("triton")  # whose tests import torch as well
def test_a_tensor_of_a_graph_of_gradients_is_read_too() -> None:
    torch = pytest.importorskip("torch", reason="needs torch: pip install 'emphatic[cuda]'")
    Phi = torch.eye(4, dtype=torch.float64, requires_grad=True)
    plain, other = (Learner("td", 4, engine="reference") for _ in range(2))
    assert np.array_equal(other.run(Phi, 1.0, 0.9, alpha=0.1), plain.run(np.eye(4), 1.0, 0.9, alpha=0.1))


class Evasive:
    """It says that it is an array, and answers nothing else."""

    def __init__(self, device: Any) -> None:
        self.device = device

    def __dlpack__(self, **options: Any) -> Any:
        raise KeyError("no")

    def __dlpack_device__(self) -> Any:
        if isinstance(self.device, Exception):
            raise self.device
        return self.device


@pytest.mark.plain
@pytest.mark.parametrize("device", [None, (), (1, 0), KeyError("device")])
def test_one_that_does_not_answer_is_refused_by_name(device: Any) -> None:
    learner, array = Learner("td", 2), Evasive(device)
    with pytest.raises(ValueError, match="'Phi' parameter of run must be an array of real numbers"):
        learner.run(array, 1.0, 0.5, alpha=0.1)
    with pytest.raises(ValueError, match="'R' parameter of run must be an array of real numbers"):
        learner.run(np.eye(2), array, 0.5, alpha=0.1)
    with pytest.raises(ValueError, match="'phi' parameter of predict must be an array of real numbers"):
        learner.predict(array)
    with pytest.raises(ValueError, match="'theta' parameter of Learner must be an array of real numbers"):
        learner.theta = array  # type: ignore[assignment]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_kernels_own_types_take_the_same_step_as_any_other(dtype: str) -> None:
    """Contiguous arrays and floats go to the kernel without a look at each: views and other numbers give the bits."""
    rng = np.random.default_rng(0)
    Phi = rng.normal(size=(20, 14)).astype(dtype)[:, ::2]
    direct, other = (Learner("true_online_etd", 7, dtype=dtype, engine="dense") for _ in range(2))
    for t in range(19):
        numbers = {"alpha": 0.01, "I": 1.0, "lambda_": 0.9, "rho": 1.5, "R": float(t), "gamma_next": 0.9}
        a = direct.learn(phi=Phi[t].copy(), phi_next=Phi[t + 1].copy(), **numbers)
        b = other.learn(phi=Phi[t], phi_next=Phi[t + 1], **{name: np.float64(value) for name, value in numbers.items()})
        assert a == b
    assert direct.theta.tobytes() == other.theta.tobytes()
    assert direct.e.tobytes() == other.e.tobytes()
