import marimo

app = marimo.App(app_title="The algorithm in ten minutes")

with app.setup:
    import inspect

    import marimo as mo
    import matplotlib.pyplot as plt
    import numpy as np

    from emphatic import Learner, problems
    from emphatic.reference import TrueOnlineETD


@app.cell
def _():
    mo.md(
        """
        # The algorithm in ten minutes

        A learner sees a stream: features φ, a reward R, features φ', R, φ'', …. At each step it predicts the sum of the
        rewards that will follow. Later rewards are discounted by γ:

        $$G_t = R_{t+1} + \\gamma R_{t+2} + \\gamma^2 R_{t+3} + \\dots \\approx \\theta \\cdot \\varphi_t$$

        The learner may watch while somebody else acts: the behaviour policy μ chooses the actions, and the question is
        about another policy, π. Their ratio for the action taken is ρ = π/μ.
        """
    )
    return


@app.cell
def _():
    mo.md("## The whole algorithm, line for line\n\nEvery symbol of the paper is in it.")
    return


@app.cell
def _():
    source = inspect.getsource(TrueOnlineETD.learn)
    mo.md(f"```python\n{inspect.cleandoc(source)}\n```")
    return (source,)


@app.cell
def _():
    mo.md(
        """
        ## Why emphasis

        Two states with one weight: their values are θ and 2θ. π always goes right, to the second; μ goes either way.
        There is no reward, so θ = 0 is the right answer. Off-policy TD(0) moves away from it, whatever the step size:
        its expected update is α(b − Aθ), and here A is negative.
        """
    )
    return


@app.cell
def _():
    theta = problems.two_theta()
    A = {rule: theta.A_matrix(rule).item() for rule in ("td", "etd")}
    mo.md(f"A of TD(0) is **{A['td']:.1f}**, and of emphatic TD(0) **{A['etd']:.1f}**.")
    return A, theta


@app.cell
def _(theta):
    stream = theta.simulate(1000, seed=4)
    paths = {}
    for _rule in ("td", "true_online_etd"):
        _learner = Learner(_rule, 1)
        _learner.theta = [1.0]
        paths[_rule] = _learner.run(**stream.inputs(_rule), alpha=0.005) / stream.Phi[:-1, 0]
    _figure, _axes = plt.subplots(figsize=(6, 3), layout="constrained")
    for _rule, _path in paths.items():
        _axes.semilogy(np.abs(_path), label=_rule)
    _axes.set(xlabel="step", ylabel="|θ|")
    _axes.legend(frameon=False)
    _figure
    return (paths,)


@app.cell
def _():
    mo.md(
        """
        ## What emphasis is

        An update at a state also matters for the states to which π leads from there. The follow-on trace F adds this up
        along the stream,

        $$F_t = \\rho_{t-1}\\gamma_t F_{t-1} + I_t, \\qquad M_t = \\lambda_t I_t + (1 - \\lambda_t) F_t$$

        and the emphasis M is the weight of the update. The interest I says how much a state matters (default: 1).
        The five-state chain, where π goes right and μ mostly left, shows the difference:
        """
    )
    return


@app.cell
def _():
    chain = problems.chain()
    where, worth = 31 * chain.d_mu, 31 * chain.emphasis("etd")
    mo.md(
        f"- how often μ visits each state, × 31: {where.round().astype(int).tolist()}\n"
        f"- emphasis of each state, × 31: {worth.round().astype(int).tolist()}"
    )
    return chain, where, worth


@app.cell
def _(chain):
    mo.md(
        "Three features must do for five states, so that nothing is exact. The mean squared value error of what each "
        f"comes to: TD(0) **{chain.msve(chain.fixed_point('td')):.2f}**, emphatic TD(0) "
        f"**{chain.msve(chain.fixed_point('etd')):.2f}**; the best there is, **{chain.msve(chain.best):.2f}**."
    )
    return


@app.cell
def _():
    mo.md(
        """
        ## Now do it

        `learn` takes one step. `run` takes a whole stream and returns the predictions made before each update; `probe`
        also returns the error of each step.
        """
    )
    return


@app.cell
def _(chain):
    long = chain.simulate(200_000, seed=1)
    learner = Learner("true_online_etd", chain.n)
    alpha = 0.005 / (1 + np.arange(long.T) / 5_000)
    _, error = learner.run(**long.inputs("true_online_etd"), alpha=alpha, predictions=False, probe=chain.probe)
    _figure, _axes = plt.subplots(figsize=(6, 3), layout="constrained")
    _axes.semilogx(1 + np.arange(long.T), error)
    _axes.axhline(np.sqrt(chain.msve(chain.fixed_point("etd"))), ls=":", color="0.5")
    _axes.set(xlabel="step", ylabel="RMSVE")
    _figure
    return error, learner


@app.cell
def _():
    mo.md(
        """
        ## Where next

        - one learner on your own stream: `docs/core.md`
        - many questions about a robot or a log: `docs/questions.md`, `docs/nexting.md`
        - every rule of the family: `docs/rules.md`; your own: the notebook *A new rule, from idea to figure*
        """
    )
    return


if __name__ == "__main__":
    app.run()
