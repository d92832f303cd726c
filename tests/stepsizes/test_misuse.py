"""Step sizes misused: refused where nothing sensible can be done, and never ignored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emphatic
from emphatic import GVF, Horde, Learner, Rule, stepsizes
from emphatic import features as f
from emphatic.learning import checkpoint
from emphatic.learning.tensors import TensorPart
from emphatic.rules import Scalars
from emphatic.stepsizes import RPROP, Auto, Autostep, Constant, Emphatic, StepSize

pytestmark = pytest.mark.plain


def half(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Any:
    alpha, I, lambda_, rho, gamma_next, delta = step
    return ((1.0,),), ((0.5 * alpha * delta, 0.0),), ()


def test_an_own_rule_is_not_taken_for_the_library_s_of_that_name() -> None:
    own = Rule("td", half, weights=("theta",), traces=(), memory=(), effective_step="0.5 * alpha")
    with pytest.raises(ValueError, match=r"rules td, .* of the library\. Got another rule of the name 'td'"):
        Learner(own, 3, stepsize="autostep")
    learner = Learner(own, 3, stepsize="auto")
    assert learner.rule.base == own


def test_a_rule_that_has_a_method_is_not_used_without_the_method_s_numbers() -> None:
    """With all of them 0, nothing would be learned."""
    stepped = Learner("td", 3, stepsize="auto").rule
    for make in (
        lambda: Learner(stepped, 3),
        lambda: Learner(stepped, 3, stepsize="auto"),
        lambda: Horde([GVF("x", horizon=2)], f.Features([f.Bias()]), stepped),
    ):
        with pytest.raises(ValueError, match=r"'rule' parameter of Learner must have no step size: give .*rule\.base"):
            make()


def test_an_own_rule_with_a_method_is_loaded_by_either_rule(tmp_path: Path) -> None:
    own = Rule("half", half, weights=("theta",), traces=(), memory=(), effective_step="0.5 * alpha")
    learner = Learner(own, 2, stepsize="auto", engine="reference")
    learner.run(np.eye(2), 1.0, 0.5)
    learner.save(tmp_path / "model.safetensors")
    for rule in (own, learner.rule):
        loaded = emphatic.load(tmp_path / "model.safetensors", rule=rule)
        assert np.array_equal(loaded.theta, learner.theta)
        assert loaded.stepsize == Auto()


def test_the_method_is_not_read_while_another_thread_learns() -> None:
    learner = Learner("td", 2, stepsize="auto")
    with learner._guard, pytest.raises(RuntimeError, match="in use by another thread"):
        _ = learner.stepsize
    assert learner.stepsize == Auto()


@pytest.mark.parametrize(
    ("rule", "method", "dtype"),
    [
        ("td", Autostep(1e300), "float32"),
        ("td", RPROP(1e-60), "float32"),
        ("td", Constant(bound=1e-320), "float64"),
        ("true_online_td", Emphatic(eta=[0.5, 1e-320]), "float64"),
    ],
    ids=lambda value: value.name if isinstance(value, StepSize) else value,
)
def test_options_beyond_the_range_of_numbers_are_refused(rule: str, method: StepSize, dtype: str) -> None:
    with pytest.raises(ValueError, match="'stepsize' parameter of Learner must have options in the range of float"):
        Learner(rule, 3, 2, dtype=dtype, stepsize=method)


def test_rprop_has_its_limits_in_order() -> None:
    for smallest, largest in [(2.0, 1.0), ([1e-3, 2.0], 1.0)]:
        with pytest.raises(ValueError, match="'smallest' parameter of RPROP must be at most 'largest'"):
            RPROP(smallest=smallest, largest=largest)


@pytest.mark.parametrize(
    ("rule", "method"),
    [
        ("td", Constant(0.1, bound=np.inf)),
        ("td", Auto([0.1, 0.2], [1.0, np.inf])),
        ("true_online_td", Emphatic(eta=np.inf)),
    ],
    ids=["bound", "bounds", "eta"],
)
def test_a_bound_of_infinity_can_be_written_down(rule: str, method: StepSize, tmp_path: Path) -> None:
    assert stepsizes.get(method.config()) == method
    maker = f.Features([f.Bias(), f.SoftBins("x", bins=3)])
    horde = Horde([GVF("x", horizon=2), GVF("x", horizon=9)], maker, rule, stepsize=method)
    horde.run({"x": np.sin(np.arange(30.0))})
    horde.save(tmp_path / "model.safetensors")
    other = Horde.load(tmp_path / "model.safetensors")
    assert np.array_equal(other.observe({"x": 0.3}), horde.observe({"x": 0.3}))


def test_questions_with_features_of_their_own_have_their_own_options() -> None:
    """Option k is that of question k."""
    log = {"x": np.sin(np.arange(40.0)), "y": np.cos(np.arange(40.0) * 0.3)}

    def horde(questions: str, rate: Any) -> Horde:
        made = [GVF(name, horizon=2, name=name) for name in questions]
        makers = {name: f.Features([f.Bias(), f.SoftBins(name, bins=3)]) for name in questions}
        return Horde(made, makers, rate=0.5, engine="reference", stepsize=Auto(rate))

    found = horde("xy", [0.1, 0.2]).run(log)
    for column, (name, rate) in enumerate([("x", [0.1]), ("y", [0.2])]):
        assert np.allclose(found[:, column], horde(name, rate).run(log)[:, 0], rtol=1e-12)


def test_load_blames_the_devices_and_not_the_file(tmp_path: Path) -> None:
    Learner("td", 3, engine="dense").save(tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"'devices' parameter of load must come with engine='cuda'") as caught:
        emphatic.load(tmp_path / "model.safetensors", devices=[0])
    assert not isinstance(caught.value, emphatic.CheckpointError)


def with_number(name: str, value: float) -> Callable[[dict[str, Any], dict[str, TensorPart]], None]:
    def change(header: dict[str, Any], parts: dict[str, TensorPart]) -> None:
        parts[name] = TensorPart.of(np.full(2, value))

    return change


@pytest.mark.parametrize(
    "change",
    [
        with_number("stepsize_rate", -0.1),
        with_number("stepsize_rate", 0.0),
        with_number("stepsize_inverse_bound", -1.0),
        with_number("gamma", 1.5),
        lambda header, parts: header["stepsize"].update(name="scaled"),
        lambda header, parts: header["stepsize"].update(name=["auto"]),
        lambda header, parts: header["stepsize"].update(rate="fast"),
        lambda header, parts: header.pop("stepsize"),
    ],
    ids=["negative", "zero", "bound", "gamma", "method", "list", "option", "none"],
)
def test_a_checkpoint_with_other_numbers_than_its_method_has_is_refused(change: Any, tmp_path: Path) -> None:
    """As a tool would write it, with checksums that are right."""
    learner = Learner("td", 3, 2, engine="reference", stepsize="auto")
    learner.run(np.ones((4, 3)), 1.0, 0.5)
    checkpoint.write(tmp_path / "sound.safetensors", *learner._state())
    assert emphatic.load(tmp_path / "sound.safetensors").stepsize == Auto()
    header, parts = learner._state()
    change(header, parts)
    checkpoint.write(tmp_path / "other.safetensors", header, parts)
    with pytest.raises(emphatic.CheckpointError, match="is not a valid checkpoint"):
        emphatic.load(tmp_path / "other.safetensors")
