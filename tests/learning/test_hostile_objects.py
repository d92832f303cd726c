"""Objects that raise when they are looked at, and settings nested without end: a ``ValueError`` in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emphatic
from emphatic import GVF, Active, Horde, Learner
from emphatic import features as f
from tests.attack.hostile import Raises
from tests.support.processes import COMMAND, run


class Raising(Raises):
    """Whatever is asked of it."""

    def __repr__(self) -> str:
        raise OSError("no text")


PHI = [1.0, 0.0, 0.0]
CALLS: dict[str, Any] = {
    "predict": lambda x, _: x.predict(Raising()),
    "learn phi": lambda x, _: x.learn(0.1, 1.0, 0.5, Raising(), 1.0, 1.0, PHI, 0.5),
    "learn phi_next": lambda x, _: x.learn(0.1, 1.0, 0.5, PHI, 1.0, 1.0, Raising(), 0.5),
    "learn alpha": lambda x, _: x.learn(Raising(), 1.0, 0.5, PHI, 1.0, 1.0, PHI, 0.5),
    "run Phi": lambda x, _: x.run(Raising(), 1.0, 0.5, alpha=0.1),
    "run R": lambda x, _: x.run([PHI] * 3, Raising(), 0.5, alpha=0.1),
    "run probe": lambda x, _: x.run([PHI] * 3, 1.0, 0.5, alpha=0.1, probe=Raising()),
    "run returns": lambda x, _: x.run([PHI] * 3, 1.0, 0.5, alpha=0.1, returns=Raising()),
    "theta": lambda x, _: setattr(x, "theta", Raising()),
    "select": lambda x, _: x.select(Raising()),
    "select ragged": lambda x, _: x.select([[0], [0, 1]]),
    "select None": lambda x, _: x.select(None),
    "save": lambda x, path: x.save(path, note=Raising()),
    "Active": lambda *_: Active(Raising()),
    "Active values": lambda *_: Active([1], Raising()),
    "n": lambda *_: Learner("td", Raising()),  # type: ignore[arg-type]
    "dtype": lambda *_: Learner("td", 3, dtype=Raising()),
    "join None": lambda *_: emphatic.join(None),  # type: ignore[arg-type]
    "join [None]": lambda *_: emphatic.join([None]),  # type: ignore[list-item]
    "join 3": lambda *_: emphatic.join(3),  # type: ignore[arg-type]
    "join []": lambda *_: emphatic.join([]),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("engine", ["auto", "reference"])
def test_a_refusal_in_words(tmp_path: Path, call: str, engine: str) -> None:
    learner = Learner("td", 3, 2, engine=engine)
    with pytest.raises(ValueError, match=r"must .*\. Got .* instead\.$"):
        CALLS[call](learner, tmp_path / "m")
    assert (learner.steps, list(tmp_path.iterdir())) == (0, [])


def test_observe() -> None:
    horde = Horde([GVF("x", horizon=2)], f.Features([f.Bias()])).warm_up({"x": np.arange(9.0)})
    for bad in (None, 1, "yes"):
        with pytest.raises(ValueError, match="'learn' parameter of observe must be True or False"):
            horde.observe({"x": 1.0}, learn=bad)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must have a number for 'x'"):
        horde.observe({"x": Raising()})
    for number in (1j, np.complex128(1j), np.array(1j)):
        with pytest.raises(ValueError, match="must have a number for 'x'"):
            horde.observe({"x": number})
    assert horde.rows == 0


def deep(kind: type) -> Any:
    value: Any = "x"
    for _ in range(100_000):
        value = {"trace": value, "steps": 2} if kind is dict else [value]
    return value


@pytest.mark.parametrize("kind", [dict, list])
def test_nesting_without_end(kind: type) -> None:
    for call in (f.SoftBins, lambda of: f.Features.from_config([{"kind": "soft_bins", "of": of}])):
        with pytest.raises(ValueError, match=r"'of' parameter of \w+ must"):
            call(deep(kind))
    with pytest.raises(ValueError, match=r"parameter of \w+ must"):
        emphatic.nexting.run({"x": np.arange(9.0)}, config={"features": [{"kind": "soft_bins", "of": deep(kind)}]})


@pytest.mark.parametrize("command", ["nexting", "sweep"])
@pytest.mark.parametrize("opening", ["[", "{trace = "])
def test_toml_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, opening: str) -> None:
    """One line, and exit code 2."""
    (tmp_path / "deep.toml").write_text(f"features = {opening * 100_000}")
    monkeypatch.chdir(tmp_path)
    done = run(COMMAND, command, "--config", "deep.toml")
    assert (done.returncode, done.stdout) == (2, b"")
    wrong = [
        line for line in done.stderr.decode().splitlines() if not line.startswith("emphatic: ")
    ]  # what it is doing
    assert wrong == ["Error: deep.toml: the settings are nested too deeply."]
    assert [path.name for path in tmp_path.iterdir()] == ["deep.toml"]
