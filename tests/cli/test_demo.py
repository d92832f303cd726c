"""``emphatic demo``: the exact columns against the published numbers, the learned ones against the exact."""

import doctest
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.cells import cell_len

import emphatic
from emphatic.nexting.cli import demo
from emphatic.nexting.report.plots import read_plots


def command(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The installed ``emphatic`` command, as a user runs it."""
    program = Path(sys.executable).with_name("emphatic")
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8", "COLUMNS": "80", **variables}
    return subprocess.run([program, *arguments], capture_output=True, encoding="utf-8", env=environment, check=False)


def test_examples_in_the_docstrings_run() -> None:
    outcome = doctest.testmod(demo)
    assert outcome.attempted >= 2
    assert outcome.failed == 0


def test_the_exact_columns_are_those_of_the_paper() -> None:
    """Sutton, Mahmood & White (2016): d_μ and v_π as printed, the rest from the definitions."""
    chain = demo.learn_chain(1, seed=0)
    np.testing.assert_allclose(chain.d_mu, np.array([16, 8, 4, 2, 1]) / 31, rtol=1e-14)
    np.testing.assert_allclose(chain.v_pi, [4, 3, 2, 1, 1], rtol=1e-14)
    assert chain.msve(chain.etd_fixed_point) == pytest.approx(1.728646, abs=5e-7)
    assert chain.msve(chain.td_fixed_point) == pytest.approx(2.877066, abs=5e-7)
    assert chain.msve(chain.v_pi) == 0.0


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_each_algorithm_learns_its_own_fixed_point(seed: int) -> None:
    chain = demo.learn_chain(1_000_000, seed)
    assert np.abs(chain.etd - chain.etd_fixed_point).max() < 0.05
    assert np.abs(chain.td - chain.td_fixed_point).max() < 0.05
    assert np.abs(chain.etd - chain.td_fixed_point).max() > 0.5  # the two cannot be confused
    assert chain.msve(chain.etd) < 0.7 * chain.msve(chain.td)


def test_the_same_seed_gives_the_same_numbers() -> None:
    first, second, third = (demo.learn_chain(1_000, seed) for seed in (5, 5, 6))
    np.testing.assert_array_equal(first.etd, second.etd)
    np.testing.assert_array_equal(first.td, second.td)
    assert (first.etd != third.etd).any()


def test_the_exact_answers_of_the_car_are_those_of_its_dynamics() -> None:
    """Sutton & Barto (2018), example 10.1: the sum of discounted positions up to the goal, always accelerating."""
    car = demo.learn_car(0, runs=1, steps=10)
    assert car.exact.shape == (len(demo.VELOCITIES), len(car.position))
    for v, row in zip(demo.VELOCITIES, car.exact, strict=True):
        for x, exact in zip(car.position, row, strict=True):
            position, velocity, total = x, v, 0.0
            for k in range(300):
                velocity = min(max(velocity + 0.001 - 0.0025 * math.cos(3 * position), -0.07), 0.07)
                position = min(max(position + velocity, -1.2), 0.5)
                velocity = 0.0 if position == -1.2 else velocity
                total += 0.9**k * position
                if position == 0.5:
                    break
            assert exact == pytest.approx(total, abs=1e-6)


def test_bounds_keep_the_answers_of_the_car() -> None:
    """Random actions are the same for both rules; without bounds some run leaves the range by orders of magnitude."""
    car, other = demo.learn_car(0), demo.learn_car(1, runs=1)
    unbounded, bounded = (car.learned[rule] for rule in ("true_online_etd", "bounded_etd"))
    assert np.abs(unbounded).max() > 1e9
    assert demo.LOW <= bounded.min() < bounded.max() <= demo.HIGH
    assert np.sqrt(np.mean((bounded - car.exact) ** 2)) < 1.0 < np.std(car.exact)
    assert not np.array_equal(other.learned["bounded_etd"][0], bounded[0])
    runs = (np.abs(unbounded - np.clip(unbounded, demo.LOW, demo.HIGH)).max(axis=(1, 2)) > 0.0).sum()
    assert f"{runs} of 5 runs" in demo.reading_of_car(car)


def test_the_page_has_both() -> None:
    chain, car = demo.learn_chain(1_000, 0), demo.learn_car(0, runs=2, steps=500)
    (_, of_chain), (_, of_car) = read_plots(demo.page(chain, car))
    assert [line.name for line in of_chain.views[""][0].lines] == ["exact", "true online ETD", "off-policy TD"]
    panels = of_car.views[""]
    assert [len(panel.lines) for panel in panels] == [5, 5, 5]
    for panel, exact in zip(panels, car.exact, strict=True):
        assert np.asarray(panel.lines[-1].y) == pytest.approx(exact, abs=1e-3)


def test_the_command_prints_what_was_learned(tmp_path: Path) -> None:
    done = command("demo", "--steps", "20000", "--seed", "7", TMPDIR=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    chain = demo.learn_chain(20_000, 7)
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in done.stdout.splitlines() if "│" in line]
    columns = (chain.v_pi, chain.etd, chain.etd_fixed_point, chain.td, chain.td_fixed_point)
    for s in range(5):
        assert [str(s + 1), *(f"{v[s]:.3f}" for v in columns)] in rows
    assert ["MSVE", *(f"{chain.msve(v):.3f}" for v in columns)] in rows
    assert demo.reading(chain) in " ".join(done.stdout.split())
    *lines, last = done.stdout.splitlines()
    assert max(len(line) for line in lines) <= 80
    (page,) = tmp_path.glob("*/demo.html")
    assert last.endswith(f": {page}")
    assert "Mountain car" in page.read_text("utf-8")


def test_the_command_says_its_version_and_its_help() -> None:
    done = command("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("emphatic ")
    assert "demo" in command("--help").stdout
    text = command("demo", "--help").stdout
    assert "--steps" in text
    assert "--seed" in text


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["demo", "--steps", "0"], ["'steps'", "Got 0 instead"]),
        (["demo", "--steps", "1000000000000"], ["'steps'", "Got 1000000000000 instead"]),
        (["demo", "--steps", "many"], ["--steps"]),
        (["demo", "--seed", "-1"], ["'seed'", "Got -1 instead"]),
        (["demo", "--speed", "3"], ["--speed"]),
        (["dance"], ["dance"]),
    ],
)
def test_bad_values_are_refused_on_standard_error(arguments: list[str], named: list[str]) -> None:
    done = command(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert all(word in done.stderr for word in named)


def test_rules_are_listed_in_full() -> None:
    """In a file or a pipe no line is broken; on a narrow terminal no name is."""
    wide, narrow = command("rules"), command("rules", TTY_COMPATIBLE="1")
    assert (wide.returncode, wide.stderr, narrow.returncode) == (0, "", 0)
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in wide.stdout.splitlines() if "│" in line]
    listed = [(row[0], row[2], row[3]) for row in cells if row[0]]
    extras = {rule.name: [*rule.extra] for rule in map(emphatic.rules.get, emphatic.rules.names())}
    assert [(name, paper) for name, paper, _ in listed] == [(name, emphatic.rules.get(name).paper) for name in extras]
    assert [re.sub(r"=[^,]*", "", extra) for *_, extra in listed] == [", ".join(extra) for extra in extras.values()]
    updates = [line for name in extras for line in emphatic.rules.get(name).update.split("; ")]
    assert [row[1] for row in cells if row[1]] == updates
    assert max(map(cell_len, re.sub(r"\x1b\[[0-9;]*m", "", narrow.stdout).splitlines())) <= 80
    assert all(f" {name} " in re.sub(r"\x1b\[[0-9;]*m", "", narrow.stdout) for name in extras)


def test_the_command_line_starts_without_numba() -> None:
    code = "import sys, emphatic.nexting.cli; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
