"""``emphatic demo``: five states, off-policy, and what emphasis does about it; a car, and what bounds do.

The chain of Sutton, Mahmood & White (2016), ``emphatic.problems.chain``: the target policy π always goes right, the
behaviour policy μ mostly left, and three features must do for five values. Where π goes but μ seldom does,
off-policy TD hardly looks.

The mountain car, ``emphatic.problems.MountainCar``: it acts at random, and the question is where it would be if it
always accelerated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from emphatic.common.names import refusal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

__all__ = ["Car", "Chain", "demo", "learn_car", "learn_chain", "page", "rules"]

MOST_STEPS = 10_000_000  # about 1 GB
#: The discount of the car's question, and the velocities at which answers are drawn.
GAMMA, VELOCITIES = 0.9, (-0.02, 0.0, 0.02)
#: The discounted sums that are possible, as positions lie between −1.2 and 0.5.
LOW, HIGH = -1.2 / (1.0 - GAMMA), 0.5 / (1.0 - GAMMA)


class Chain(NamedTuple):
    """The value of each state, exact, as the two algorithms converge to it and as they learned it."""

    d_mu: FloatArray
    v_pi: FloatArray
    etd_fixed_point: FloatArray
    etd: FloatArray
    td_fixed_point: FloatArray
    td: FloatArray

    def msve(self, v: FloatArray) -> float:
        """The mean squared value error Σ_s d_μ(s) (v(s) − v_π(s))²."""
        return float(self.d_mu @ (v - self.v_pi) ** 2)


def learn_chain(steps: int, seed: int) -> Chain:
    """Learn v_π from one stream of behaviour under μ by true online ETD(0) and by off-policy TD(0).

    Both see the same steps with the same step sizes. F reaches 40 on three moves to the right, which is why
    α starts at 0.005: ραMφ·φ is then at most 1.2.

    >>> chain = learn_chain(100_000, seed=0)
    >>> chain.msve(chain.etd) < chain.msve(chain.td)
    True
    """
    if not 1 <= steps <= MOST_STEPS:
        raise refusal("steps", "demo", f"be between 1 and {MOST_STEPS}", str(steps))
    if seed < 0:
        raise refusal("seed", "demo", "be at least 0", str(seed))
    from emphatic import problems
    from emphatic.learning.learner import Learner
    from emphatic.stepsizes import decaying

    chain = problems.chain()
    stream = chain.simulate(steps, seed=seed)
    alpha = decaying(0.005, steps, after=2000)
    values = []
    for rule in ("true_online_etd", "td"):
        learner = Learner(rule, chain.n)
        learner.run(**stream.inputs(rule), alpha=alpha, predictions=False)
        values += [chain.Phi @ chain.fixed_point(rule), chain.Phi @ learner.theta]
    return Chain(chain.d_mu, chain.v_pi, *values)


class Car(NamedTuple):
    """The discounted sum of positions if the car always accelerates, at each velocity and position, (V, X).

    ``learned`` has the answers of each rule in each run, (runs, V, X).
    """

    position: FloatArray
    exact: FloatArray
    learned: dict[str, FloatArray]


def learn_car(seed: int, runs: int = 5, steps: int = 20_000) -> Car:
    """Learn from runs of random actions, by true online ETD without and with bounds; both see the same steps.

    >>> car = learn_car(2, runs=1)
    >>> bool(abs(car.learned["true_online_etd"]).max() > 1e9), bool(abs(car.learned["bounded_etd"]).max() < 9)
    (True, True)
    """
    import numpy as np

    from emphatic.learning import returns
    from emphatic.learning.learner import Learner
    from emphatic.problems import MountainCar

    world, rng, accelerate = MountainCar(seed), np.random.default_rng(seed), 2
    centres = np.array([(x, v) for x in np.linspace(-1.2, 0.5, 8) for v in np.linspace(-0.07, 0.07, 6)])

    def features(places: FloatArray) -> FloatArray:
        distances: FloatArray = np.square((places[:, None] - centres) / (0.25, 0.025)).sum(axis=2)
        return np.exp(-0.5 * distances)

    def drive(actions: NDArray[np.int64], start: FloatArray | None = None) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The places of T steps (T + 1, 2), the positions R that they lead to, and γ'."""
        places = [world.reset()[0]]
        if start is not None:
            world.place[:2] = start
        R, gamma_next = np.empty((2, len(actions)))
        for t, action in enumerate(actions.tolist()):
            place, _, ended, _, _ = world.step(action)
            R[t], gamma_next[t] = place[0], 0.0 if ended else GAMMA
            places.append(world.reset()[0] if ended else place)
        return np.array(places), R, gamma_next

    grid = np.array([(x, v) for v in VELOCITIES for x in np.linspace(-0.9, -0.1, 33)])
    learned = {rule: np.empty((runs, len(VELOCITIES), 33)) for rule in ("true_online_etd", "bounded_etd")}
    for run in range(runs):
        actions = rng.integers(0, world.actions, steps)
        places, R, gamma_next = drive(actions)
        phi, rho = features(places), np.where(actions == accelerate, world.actions, 0.0)
        alpha = 0.3 / np.square(phi).sum(axis=1).mean()
        for rule, answers in learned.items():
            learner = Learner(rule, len(centres))
            bounds = {"low": LOW, "high": HIGH} if rule == "bounded_etd" else {}
            step = {"alpha": alpha, "lambda_": 0.6, "rho": rho, "I": 1.0 - GAMMA} | bounds
            learner.run(phi, R, gamma_next, **step, on_divergence="freeze", predictions=False)
            answers[run] = (features(grid) @ learner.theta).reshape(answers[run].shape)
    exact = [returns(*drive(np.full(200, accelerate), place)[1:])[0][0] for place in grid]
    return Car(grid[:33, 0], np.reshape(exact, (-1, 33)), learned)


def demo(
    steps: Annotated[int, typer.Option(help="Steps of experience to learn from.")] = 1_000_000,
    seed: Annotated[int, typer.Option(help="Seed of the sampled experience, 0 or more.")] = 0,
) -> None:
    """Learn a five-state chain off-policy, beside plain TD.

    The chain is that of Sutton, Mahmood & White (2016): behaviour goes mostly left, the question is about
    always going right, and there are only three features for five states. The table shows the exact values, what
    true online emphatic TD and off-policy TD learned from the same stream, and the fixed point of each. A page shows
    this, and what a car that acts at random predicts for always pushing right, by true online emphatic TD without and
    with bounds.
    """
    try:
        _show(steps, seed)
    except (ArithmeticError, ValueError) as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(2) from None


def rules() -> None:
    """List the rules: name, update, paper, extra parameters."""
    from rich.console import Console
    from rich.table import Table

    import emphatic.rules as family

    table = Table(title="Rules", show_lines=True)
    table.add_column("rule", no_wrap=True)
    for column in ("update", "paper", "extra parameters"):
        table.add_column(column)
    for name in family.names():
        rule = family.get(name)
        extra = ", ".join(f"{name}={rule.defaults[name]}" if name in rule.defaults else name for name in rule.extra)
        table.add_row(rule.name, rule.update.replace("; ", "\n"), rule.paper, extra)
    console = Console()
    if not console.is_terminal:
        console.width = 1000  # nothing needs to fit: the table is as wide as its text
    console.print(table)


def page(chain: Chain, car: Car) -> str:
    """Both on a page of HTML, complete in itself."""
    from emphatic.nexting.report import Axis, Figure, Key, Line, Panel, Plot, Plots, render_page

    states, inks = [1, 2, 3, 4, 5], ("truth", "c0", "c1")
    values = {"exact": chain.v_pi, "true online ETD": chain.etd, "off-policy TD": chain.td}
    lines = [Line(states, v, name, ink, width=2.5) for ink, (name, v) in zip(inks, values.items(), strict=True)]
    panels = []
    for i, velocity in enumerate(VELOCITIES):
        answers = []
        for ink, (rule, runs) in zip(("c1", "c0"), car.learned.items(), strict=True):
            answers += [Line(car.position, run[i].clip(LOW - 1.0, HIGH + 1.0), rule, ink) for run in runs]
        answers.append(Line(car.position, car.exact[i], "exact", "truth", width=2.5))
        panels.append(Panel(f"velocity {velocity:g}", answers, y_range=(LOW - 1.5, HIGH + 1.5)))
    figures = {
        "chain": Figure(
            "The value of each state",
            Plot(
                {"": [Panel("", lines)]}, "chain", x=Axis("state", ticks={s: str(s) for s in states}), y=Axis("value")
            ),
            reading(chain),
            [Key(line.ink, line.name) for line in lines],
        ),
        "car": Figure(
            "The discounted sum of positions, if the car always accelerated",
            Plot({"": panels}, "car", across=3, x=Axis("position"), y=Axis("sum"), closest=True),
            reading_of_car(car),
            [Key("truth", "exact"), Key("c1", "true_online_etd, 5 runs"), Key("c0", "bounded_etd, 5 runs")],
        ),
    }
    plots, links = Plots(), {"chain": "Five states", "car": "Mountain car"}
    intro = "What another policy would lead to, learned from what behaviour leads to."
    drawn = [(name, figure, plots(figure.plot, figure.title)) for name, figure in figures.items()]
    return render_page("demo.html", "Off-policy learning", intro, links, plots, figures=drawn)


def reading_of_car(car: Car) -> str:
    """What its answers say."""
    unbounded, bounded = car.learned["true_online_etd"], car.learned["bounded_etd"]
    outside = sum(bool(((run < LOW) | (run > HIGH)).any()) for run in unbounded)
    error = ((bounded - car.exact) ** 2).mean() ** 0.5
    return (
        f"Every sum lies from {LOW:g} to {HIGH:g}. In {outside} of {len(unbounded)} runs without bounds, predictions "
        f"leave this range, up to {abs(unbounded).max():.2g} (at the edge). With bounds they lie from "
        f"{bounded.min():.1f} to {bounded.max():.1f}; the RMS error is {error:.2f}."
    )


def _show(steps: int, seed: int) -> None:
    """Learn both, print the table of the chain, and write the page."""
    import tempfile
    from pathlib import Path

    from rich.console import Console
    from rich.table import Table

    console = Console()
    with console.status(f"Learning from {steps:,} steps, twice …"):
        chain, car = learn_chain(steps, seed), learn_car(seed)
    table = Table(title=f"The five-state chain, off-policy, {steps:,} steps (seed {seed})")
    table.add_column("state")
    headings = ("exact\nv_π", "true online ETD\nlearned", "\nfixed point", "off-policy TD\nlearned", "\nfixed point")
    for heading in headings:
        table.add_column(heading, justify="right")
    columns = (chain.v_pi, chain.etd, chain.etd_fixed_point, chain.td, chain.td_fixed_point)
    for s, row in enumerate(zip(*columns, strict=True), start=1):
        table.add_row(str(s), *(f"{v:.3f}" for v in row), end_section=s == 5)
    table.add_row("MSVE", *(f"{chain.msve(v):.3f}" for v in columns))
    console.print(table)
    console.print(reading(chain), highlight=False)
    path = Path(tempfile.mkdtemp(prefix="emphatic-"), "demo.html")
    path.write_text(page(chain, car), encoding="utf-8")
    typer.echo(f"As a page, with the mountain car: {path}")


def reading(chain: Chain) -> str:
    """What the numbers say, in a line."""
    import numpy as np

    etd = np.abs(chain.etd - chain.etd_fixed_point).max()
    td = np.abs(chain.td - chain.td_fixed_point).max()
    ratio = chain.msve(chain.etd) / chain.msve(chain.td)
    return (
        f"Largest distance from the fixed point: ETD {etd:.3f}, TD {td:.3f}. "
        f"With emphasis, the error (MSVE, weighted by d_μ) is {ratio:.2f} of that of TD."
    )
