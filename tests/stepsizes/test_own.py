"""A step-size method that a program defines for itself: it learns, is saved and loaded, and is an axis of a sweep."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import emphatic
from emphatic import Learner, stepsizes
from emphatic.rules import Scalars
from emphatic.stepsizes import StepSize
from emphatic.stepsizes.scalar import Method, ScalarStepSize
from emphatic.stepsizes.weightwise import WeightwiseStepSize, rule_fields
from emphatic.studies import sweep, sweeps

pytestmark = pytest.mark.plain

RNG = np.random.default_rng(5)
PHI, R = RNG.normal(size=(41, 3)), RNG.normal(size=40)


def harmonic(step: Scalars, memory: Scalars, g: Scalars) -> Any:
    t, alpha, inverse_bound = memory
    return alpha / (t + 1.0), (t + 1.0, alpha, inverse_bound)


def slower(step: Scalars, memory: Scalars, g: Scalars) -> Any:
    t, alpha, inverse_bound = memory
    return alpha / (t + 2.0), (t + 1.0, alpha, inverse_bound)


@dataclass(frozen=True, eq=False)
class Harmonic(ScalarStepSize):
    """α_t = alpha/(t + 1)."""

    alpha: Any = 1.0
    bound: Any = None

    name: ClassVar[str] = "test_harmonic"
    function: ClassVar[Any] = staticmethod(harmonic)

    def __post_init__(self) -> None:
        self.check("alpha")

    def method(self) -> Method:
        memory = ("stepsize_t", "stepsize_alpha", "stepsize_inverse_bound")
        return Method((("name", self.name),), type(self).function, memory)


@dataclass(frozen=True, eq=False)
class SignStep(WeightwiseStepSize):
    """α_i grows by a factor where δφ_i and the weight have the same sign."""

    alpha: Any = 0.01

    name: ClassVar[str] = "test_sign"
    fits: ClassVar[tuple[str, ...]] = ("td",)

    @staticmethod
    def build(emphatic: float, online: float) -> dict[str, Any]:
        def signal(step: Scalars, memory: Scalars) -> Scalars:
            return (step[5],)

        def adapt(u: Scalars, z: Scalars, p: float) -> Scalars:
            (delta,) = u
            theta, a, e = z
            agreed = 1.0 * (delta * p * theta > 0.0)
            return theta, a * (1.0 + 0.1 * agreed), e * (1.0 + 0.1 * agreed)

        def terms(z: Scalars, p: float, q: float) -> Scalars:
            return ()

        def function(step: Scalars, memory: Scalars, sums: Scalars) -> Any:
            alpha, I, lambda_, rho, gamma_next, delta = step
            gamma, F, D, initial = memory
            c, w = rho * gamma * lambda_, alpha * delta
            A = ((1.0, 0.0, w * c), (0.0, 1.0, 0.0), (0.0, 0.0, c))
            return A, (w, c, rho * I), (gamma_next, 0.0 * F, 0.0 * D, 1.0 * initial)

        def component(s: Scalars, z: Scalars, p: float, q: float) -> Scalars:
            w, c, k = s
            theta, a, e = z
            e = c * e + k * a * p
            return theta + w * e, a, e

        return rule_fields(signal, adapt, terms, function, component, weights=("theta", "alphas"), traces=("e",))

    def __post_init__(self) -> None:
        self.check()


@pytest.mark.parametrize("rule", ["td", "true_online_etd", "gtd"])
@pytest.mark.parametrize("engine", ["reference", "dense", "sparse", "chunked"])
def test_it_learns_on_every_engine_and_is_saved(rule: str, engine: str, tmp_path: Path) -> None:
    learner = Learner(rule, 3, engine=engine, stepsize=Harmonic(0.5))
    learner.run(PHI[:21], R[:20], 0.9)
    assert learner.stepsize == Harmonic(0.5)
    learner.save(tmp_path / "model.safetensors")
    again = emphatic.load(tmp_path / "model.safetensors")
    assert again.stepsize == Harmonic(0.5)
    again.run(PHI[20:], R[20:], 0.9)
    plain = Learner(rule, 3, engine="reference")
    plain.run(PHI, R, 0.9, alpha=0.5 / np.arange(1.0, 41.0))
    np.testing.assert_allclose(again.theta, plain.theta, rtol=0, atol=1e-11)


def test_one_with_a_step_size_for_each_weight(tmp_path: Path) -> None:
    theta = {}
    for engine in ("reference", "dense", "sparse"):
        learner = Learner("td", 3, engine=engine, stepsize=SignStep(0.05))
        learner.run(PHI, R, 0.9, lambda_=0.8)
        learner.save(tmp_path / "model.safetensors")
        again = emphatic.load(tmp_path / "model.safetensors")
        assert again.stepsize == SignStep(0.05)
        theta[engine] = again.theta
        assert (again.alphas > 0.05).all()
    np.testing.assert_allclose(theta["dense"], theta["reference"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(theta["sparse"], theta["reference"], rtol=0, atol=1e-12)


def test_it_is_an_axis_of_a_sweep() -> None:
    grid = {"rule": "td", "stepsize": [Harmonic(), Harmonic(0.1), "auto"], "lambda": [0.0, 0.9]}
    result = sweep("chain", grid, runs=2, steps=100, every=20)
    assert list(dict.fromkeys(result.table["stepsize"].to_pylist())) == [
        "test_harmonic", "test_harmonic(alpha=0.1)", "auto",
    ]  # fmt: skip
    assert np.isfinite(result.mean).all()


def test_a_sweep_begins_again_when_the_function_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = {"rule": "td", "stepsize": [Harmonic(0.1)], "lambda": [0.0]}

    def identity() -> str:
        seen: list[str] = []
        plain = sweeps.SweepPlan.__dict__["identity"].func

        def note(plan: Any) -> str:
            seen.append(plain(plan))
            return seen[-1]

        with monkeypatch.context() as patch:
            patch.setattr(sweeps.SweepPlan, "identity", property(note))
            sweep("chain", grid, runs=1, steps=40, every=20, out=tmp_path / "out")
        return seen[0]

    before = identity()
    assert identity() == before
    monkeypatch.setattr(Harmonic, "function", staticmethod(slower))
    assert identity() != before


def test_a_name_is_its_own() -> None:
    class Nameless(Harmonic):
        pass

    class Namesake(Harmonic):
        name: ClassVar[str] = "auto"

    for kind, got in ((Nameless, "none"), (Namesake, "'auto', which is another's")):
        with pytest.raises(
            ValueError, match=f"'name' attribute of {kind.__name__} must be a name of its own. Got {got}"
        ):
            Learner("td", 3, stepsize=kind(0.5))


def test_a_method_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Learner("td", 3, engine="reference", stepsize=Harmonic(0.5)).save(tmp_path / "model.safetensors")
    monkeypatch.setattr(Harmonic, "name", "test_other")
    with pytest.raises(emphatic.CheckpointError, match="'test_harmonic', which is not installed: import the module"):
        emphatic.load(tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="'stepsize' parameter must be one of constant"):
        stepsizes.get("test_harmonic")
    assert isinstance(stepsizes.get("test_other"), StepSize)
