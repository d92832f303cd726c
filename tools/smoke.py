"""A little of everything, in less than a minute, with nothing but the library and what it needs installed:

    python -m tools.smoke

CI runs it on the lowest versions that are allowed, and on the newest Python that is there.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import emphatic
from emphatic import GVF, Active, Horde, Learner
from emphatic import features as f


def learn() -> None:
    """Every engine that needs no more than this, every rule on one of them, and a checkpoint."""
    rng = np.random.default_rng(0)
    index = rng.integers(0, 4, size=(101, 3)) + 4 * np.arange(3)
    Phi = np.zeros((101, 12))
    np.put_along_axis(Phi, index, 1.0, 1)
    R = rng.normal(size=100)
    expected = None
    for engine in ("reference", "dense", "sparse", "chunked"):
        learner = Learner("true_online_etd", 12, 2, engine=engine)
        learner.run(Active(index) if engine == "sparse" else Phi, R, 0.9, alpha=0.05, lambda_=0.5)
        expected = learner.theta if expected is None else expected
        assert np.allclose(learner.theta, expected, rtol=1e-12, atol=1e-14), engine
    needed = {"pi": 0.5, "mu": 0.5, "xi": 1.0, "decay": 0.5, "period": 3.0}
    for name in emphatic.rules.names():
        rule = emphatic.rules.get(name)
        extra: dict[str, Any] = {key: needed[key] for key in rule.extra if key in needed}
        Learner(name, 12, engine="reference").run(Phi, R, 0.9, alpha=0.05, **extra)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        learner.save(path)
        assert np.array_equal(emphatic.load(path).theta, learner.theta)


def ask() -> None:
    """A horde on a table, row by row and at once."""
    rows = {"x": np.sin(np.arange(300) / 9), "y": np.cos(np.arange(300) / 9)}
    horde = Horde([GVF("x", horizon=5)], f.Features([f.Bias(), f.SoftBins("*", bins=4)]))
    assert horde.run(rows).shape == (300, 1)
    assert horde.observe({"x": 0.5, "y": None}).shape == (1,)
    assert len(emphatic.nexting.run(rows, horizons=[2, 9]).summary) == 9


def command(folder: Path, *given: str, text: str | None = None) -> str:
    """What the command line prints."""
    done = subprocess.run(
        [sys.executable, "-m", "emphatic.nexting.cli", *given], cwd=folder, input=text, capture_output=True, text=True,
        check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, (given, done.stdout, done.stderr)
    return done.stdout


def commands() -> None:
    """The command line, on files, on a pipe and on a problem."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "log.csv").write_text("x,y\n" + "".join(f"{i % 7},{i % 5}\n" for i in range(200)), "utf-8")
        assert command(folder, "--version").startswith("emphatic ")
        assert "nexting" in command(folder, "--help")
        assert "--horizons" in command(folder, "nexting", "--help")
        assert "true_online_etd" in command(folder, "rules")
        command(folder, "nexting", "log.csv", "--horizons", "2,9", "--out", "out")
        assert len(json.loads((folder / "out" / "summary.json").read_text("utf-8"))) == 9
        lines = "".join(json.dumps({"x": i % 7, "y": i % 5}) + "\n" for i in range(20))
        live = command(folder, "nexting", "-", "--horizons", "2", "--warm-up", "5", "--model", "live", text=lines)
        assert len(live.splitlines()) > 5
        command(folder, "sweep", "chain", "--runs", "2", "--steps", "200", "--rules", "td", "--alpha", ".01,.1")
        assert (folder / "sweep" / "chain" / "report.html").exists()
        assert "v_π" in command(folder, "demo", "--steps", "1000")


if __name__ == "__main__":
    warnings.simplefilter("error")
    for part in (learn, ask, commands):
        part()
    print(f"smoke test passed on Python {sys.version.split()[0]}, NumPy {np.__version__}")
