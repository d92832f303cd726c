"""``emphatic demo``: five states, off-policy, and what emphasis does about it.

The chain of Sutton, Mahmood & White (2016), ``emphatic.problems.chain``: the target policy π always goes right, the
behaviour policy μ mostly left, and three features must do for five values. Where π goes but μ seldom does,
off-policy TD hardly looks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from emphatic.common.names import refusal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

__all__ = ["Chain", "demo", "learn_chain", "rules"]

MOST_STEPS = 10_000_000  # about 1 GB


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


def demo(
    steps: Annotated[int, typer.Option(help="Steps of experience to learn from.")] = 1_000_000,
    seed: Annotated[int, typer.Option(help="Seed of the sampled experience, 0 or more.")] = 0,
) -> None:
    """Learn a five-state chain off-policy, beside plain TD.

    The chain is that of Sutton, Mahmood & White (2016): behaviour goes mostly left, the question is about
    always going right, and there are only three features for five states. The table shows the exact values, what
    true online emphatic TD and off-policy TD learned from the same stream, and the fixed point of each.
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


def _show(steps: int, seed: int) -> None:
    """Learn the chain and print the table."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    with console.status(f"Learning from {steps:,} steps, twice …"):
        chain = learn_chain(steps, seed)
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
