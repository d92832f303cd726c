import marimo

app = marimo.App(app_title="A new rule, from idea to figure")

with app.setup:
    import marimo as mo
    import numpy as np

    from emphatic import Learner, Rule, problems
    from emphatic.studies import sweep


@app.cell
def _():
    mo.md(
        """
        # A new rule, from idea to figure

        **The idea.** Importance sampling ratios can make off-policy traces very large. V-trace clips ρ at 1
        in the trace. What if the limit is a parameter, c̄?

        $$e \\leftarrow \\gamma\\lambda\\min(\\rho^-, \\bar c)\\,e + \\varphi, \\qquad
          \\theta \\leftarrow \\theta + \\alpha\\rho\\delta e$$

        With c̄ = 1 this is `vtrace`; with c̄ above every ρ it is off-policy TD(λ).
        """
    )
    return


@app.cell
def _():
    mo.md(
        """
        ## The rule

        Every linear TD rule is X ← A X + B [φ ; φ'], and a rule is the function that computes the scalars A and B.
        θ ← θ + αρδe with the new e = c e + φ is θ + (αρδ)c e + (αρδ)φ. `memory` carries γ and ρ to the next step.
        """
    )
    return


@app.function
def clipped(step, memory, x, x_next, g):
    """e ← γλ min(ρ⁻, c̄)e + φ;  θ ← θ + αρδe"""
    alpha, I, lambda_, rho, gamma_next, delta, clip = step
    gamma, rho_before = memory
    c = gamma * lambda_ * min(rho_before, clip)
    w = alpha * rho * delta
    return ((1.0, w * c), (0.0, c)), ((w, 0.0), (1.0, 0.0)), (gamma_next, rho)


@app.cell
def _():
    rule = Rule(
        "clipped_td",
        clipped,
        weights=("theta",),
        traces=("e",),
        memory=("gamma", "rho"),
        extra=("clip",),
        defaults={"clip": 1.0},
        extra_ranges={"clip": (0.0, np.inf)},
        interest=False,
    )
    mo.md(f"The rule was checked when it was created. The entries of A that are always 0 or 1: {rule.form[0]}.")
    return (rule,)


@app.cell
def _():
    mo.md("## Is it right?\n\nWith c̄ = 1 it must equal `vtrace`, and with a large c̄ `td`, up to rounding.")
    return


@app.cell
def _(rule):
    _stream = problems.collision(seed=1).simulate(2_000, seed=1)
    apart = {}
    for _other, _clip in (("vtrace", 1.0), ("td", 1e6)):
        _inputs = _stream.inputs(_other) | {"lambda_": 0.8, "alpha": 0.01}
        _inputs.pop("I", None)
        _mine = Learner(rule, 6, engine="reference").run(**_inputs, clip=_clip)
        apart[_other] = float(abs(_mine - Learner(_other, 6, engine="reference").run(**_inputs)).max())
    apart
    return (apart,)


@app.cell
def _():
    mo.md(
        """
        ## Is it any good?

        Against td, vtrace and etd on the collision task: every setting on the same 10 streams, the best settings then
        on 20 fresh ones.
        """
    )
    return


@app.cell
def _(rule):
    lambdas, alphas = [0, 0.5, 0.9, 1], "2^-9..2^-3"
    found = sweep(
        "collision",
        [
            {"rule": ["td", "vtrace", "etd"], "alpha": alphas, "lambda": lambdas},
            {"rule": rule, "alpha": alphas, "lambda": lambdas, "clip": [1, 1.25, 1.5, 2]},
        ],
        runs=10,
        steps=3_000,
        every=10,
        rerun=20,
    )
    table = [
        {name: row[name] for name in ("rule", "alpha", "lambda", "mean", "mean_low", "mean_high", "worse_low")}
        for row in found.best
    ]
    mo.ui.table(table) if mo.running_in_notebook() else table
    return found, table


@app.cell
def _(found):
    _least = min(found.best, key=lambda row: row["mean"])
    _mine = next(row for row in found.best if row["rule"] == "clipped_td")
    verdict = "clearly worse" if _mine["worse_low"] > 0 else "not clearly worse"
    mo.md(
        f"The best is {_least['rule']}. Run by run, clipped_td at its best (clip {_mine['clip']:g}) is **{verdict}**: "
        f"the difference is between {_mine['worse_low']:.4f} and {_mine['worse_high']:.4f}."
    )
    return (verdict,)


@app.cell
def _():
    mo.md('## The figures\n\n`found.plot(…, "figure.pdf")` writes them for the paper.')
    return


@app.cell
def _(found):
    over_alpha = found.plot("alpha")
    over_alpha
    return (over_alpha,)


@app.cell
def _(found):
    learning = found.plot("steps")
    learning
    return (learning,)


@app.cell
def _():
    mo.md(
        """
        ## The same at the command line

        With the function and the rule in `my_rules.py`:

            emphatic sweep collision --rules td,vtrace,etd,my_rules:rule --runs 10 --rerun 20 --figures

        A configuration file can set the rule's own parameters: see `docs/sweeps.md`.
        """
    )
    return


if __name__ == "__main__":
    app.run()
