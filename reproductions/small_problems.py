"""Published results on small problems, whose exact values, fixed points and expected updates are known.

The random walk and Baird's counterexample are those of Sutton & Barto (2018); the chain, θ → 2θ and the variance of the
follow-on trace those of Sutton, Mahmood & White (2016).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from emphatic import problems
from emphatic.learning.learner import Learner
from emphatic.nexting.report import Axis, Figure, Key, Level, Line, Marks, Panel, Plot, category, shades
from reproductions import Check, Outcome, Progress, RunOptions, Study, claim, compare, finding

__all__ = ["STUDIES", "BairdStudy", "ChainStudy", "FollowonVarianceStudy", "RandomWalkStudy", "TwoThetaStudy"]

Array = NDArray[np.float64]


class RandomWalkStudy:
    """The 19-state random walk: TD(λ) and true online TD(λ) over λ and α.

    Sutton & Barto (2018), figures 12.6 and 12.8. A walk from the middle of 19 states ends beyond the left end with −1
    or beyond the right end with +1; γ = 1, one feature per state, θ_0 = 0. The RMS error over the states is taken at
    the end of each episode and averaged over the first ten, and over runs: the book's 100, here more. All settings of a
    rule are one Horde that learns from the same walk.
    """

    title = "The 19-state random walk"
    source = "Sutton & Barto, Reinforcement Learning: An Introduction, 2nd edition (2018), figures 12.6 and 12.8."

    LAMBDAS = (0.0, 0.4, 0.8, 0.9, 0.95, 0.975, 0.99, 1.0)
    #: The least error of each curve, read off to ±.003; of true online TD(λ) also its α, and the error at α = 1.
    BEST: ClassVar[dict[str, tuple[float, ...]]] = {
        "true_online_td": (0.347, 0.277, 0.259, 0.280, 0.317, 0.361, 0.415, 0.491),
        "td": (0.347, 0.277, 0.265, 0.292, 0.332, 0.378, 0.434, 0.502),
    }
    ALPHA = (0.82, 0.74, 0.40, 0.26, 0.165, 0.105, 0.065, 0.03)
    AT_ONE = (0.39, 0.31, 0.372, 0.426, 0.494)
    NAMES: ClassVar[dict[str, str]] = {"true_online_td": "true online TD(λ)", "td": "TD(λ)"}
    SHORT: ClassVar[dict[str, str]] = {"true_online_td": "true online", "td": "TD(λ)"}
    EPISODES = 10
    #: Ten walks take 1,000 steps on average, with a standard deviation of 260.
    STEPS = 5_000
    #: One and a half standard errors of the book's 100 runs; and how precisely a curve can be read off.
    TOLERANCE, READING = 0.008, 0.003
    #: The runs of the book.
    PUBLISHED_RUNS = 100
    #: How else the errors of ten episodes and many walks might be averaged.
    OTHER_MEASURES = ("the root taken after the mean over walks and episodes", "errors taken before each episode")

    def settings(self) -> tuple[Array, Array]:
        """λ and α of every learner: α over (0, 1] as in the figures, and finely around the published best."""
        pairs = []
        for lambda_, best in zip(self.LAMBDAS, self.ALPHA, strict=True):
            fine = best * np.append(np.arange(0.4, 1.4, 0.1), 1.6)
            alphas = np.unique(np.round(np.append(np.linspace(0.05, 1.0, 20), fine[fine < 1.0]), 6))
            pairs += [(lambda_, alpha) for alpha in alphas]
        lambdas, alphas = np.array(pairs).T
        return lambdas, alphas

    def errors(self, task: tuple[str, int, int, int]) -> Array:
        """The errors of every setting in runs ``begin`` to ``end``, (runs, 3, settings); infinite where it overflowed.

        They are means over the episodes: of the root mean square error at their ends, of its square, and of the root
        mean square error at their beginnings.
        """
        rule, seed, begin, end = task
        walk = problems.random_walk()
        lambdas, alphas = self.settings()
        errors = []
        for i in range(begin, end):
            stream = walk.simulate(self.STEPS, seed=(seed, i))
            ends = 1 + np.flatnonzero(stream.gamma_next == 0.0)[: self.EPISODES]
            learner = Learner(rule, walk.n, len(alphas), engine="dense")
            squares = [np.full(len(alphas), np.mean(walk.v_pi**2))]
            for start, stop in zip(np.append(0, ends), ends, strict=False):
                learner.run(
                    stream.Phi[start : stop + 1],
                    stream.R[start:stop, None],
                    stream.gamma_next[start:stop, None],
                    alpha=alphas[None],
                    lambda_=lambdas[None],
                    predictions=False,
                    on_divergence="freeze",
                )
                with np.errstate(over="ignore"):
                    squares.append(np.mean((learner.theta - walk.v_pi) ** 2, axis=1))
            square = np.array(squares)
            with np.errstate(over="ignore"):
                errors.append(
                    [np.sqrt(square[1:]).mean(axis=0), square[1:].mean(axis=0), np.sqrt(square[:-1]).mean(axis=0)]
                )
        return np.array(errors)

    def run(self, options: RunOptions) -> Outcome:
        """Every cell of the table, and both figures."""
        runs, chunk = (100, 50) if options.quick else (4_000, 50)
        tasks = [(rule, options.seed, i, min(i + chunk, runs)) for rule in self.BEST for i in range(0, runs, chunk)]
        chunks = options.each(self.errors, tasks, "walks")
        by_rule = {
            rule: np.vstack([errors for errors, task in zip(chunks, tasks, strict=True) if task[0] == rule])
            for rule in self.BEST
        }
        with np.errstate(over="ignore"):
            roots_after = {rule: np.sqrt(errors[:, 1].mean(axis=0)) for rule, errors in by_rule.items()}
            before = {rule: errors[:, 2].mean(axis=0) for rule, errors in by_rule.items()}
        by_rule = {rule: errors[:, 0] for rule, errors in by_rule.items()}
        checks = [check for rule in self.BEST for check in self._checks(rule, by_rule[rule], options.quick)]
        wider = ", and 3 standard errors of our fewer runs" if options.quick else ""
        notes = [
            f"Tolerance: {self.TOLERANCE}, about one and a half standard errors of the book's 100 runs{wider}. The "
            f"book's curves are read off to ± {self.READING}.",
            "If a published best α is known, our error at that α may exceed our smallest error over the grid by at "
            f"most {2 * self.READING}, the accuracy of two readings. A curve is flat around its minimum, so the "
            "exact place of the minimum means little.",
            f"In errors: the two errors are that of our runs, and that of {self.PUBLISHED_RUNS} runs with the "
            f"spread of ours and {self.READING} for the reading.",
            *self._explain_bias(by_rule, dict(zip(self.OTHER_MEASURES, (roots_after, before), strict=True))),
        ]
        settings = {"runs": runs, "episodes": self.EPISODES, "settings of each rule": len(self.settings()[0])}
        return Outcome(checks, [self._figure(rule, by_rule[rule]) for rule in self.BEST], notes, settings)

    def _table_entries(self, means: Mapping[str, Array]) -> Array:
        """The numbers of the table from the mean errors of all settings: the least at each λ, and those at α = 1."""
        lambdas, _ = self.settings()
        lines = [np.flatnonzero(lambdas == lambda_) for lambda_ in self.LAMBDAS]
        least = [means[rule][line].min() for rule in self.BEST for line in lines]
        return np.array(least + [means["true_online_td"][line[-1]] for line in lines[: len(self.AT_ONE)]])

    def _explain_bias(self, by_rule: Mapping[str, Array], measures: Mapping[str, Mapping[str, Array]]) -> list[str]:
        """Whether chance explains that ours are lower throughout, or another way to average the errors would."""
        published = np.array([number for rule in self.BEST for number in self.BEST[rule]] + [*self.AT_ONE])
        ours = self._table_entries({rule: _mean_and_error(errors)[0] for rule, errors in by_rule.items()})
        apart = ours - published
        lower = int(np.sum(apart < 0.0))
        notes = [
            "Other ways to average errors are further from the published numbers: "
            + "; ".join(
                f"with {name}, ours would be {np.mean(self._table_entries(means) - published):+.4f} off on average"
                for name, means in measures.items()
            ).replace("-", "−")
            + f", instead of {apart.mean():+.4f}.".replace("-", "−")
        ]
        size = self.PUBLISHED_RUNS
        groups = len(by_rule["td"]) // size
        if groups > 1:
            means = [
                {rule: errors[size * i : size * (i + 1)].mean(axis=0) for rule, errors in by_rule.items()}
                for i in range(groups)
            ]
            deviations = np.array([self._table_entries(group) for group in means]) - ours
            one_sided = np.maximum((deviations < 0.0).sum(axis=1), (deviations > 0.0).sum(axis=1))
            as_many = int(np.sum(one_sided >= max(lower, len(apart) - lower)))
            spread = deviations.mean(axis=1).std(ddof=1)
            notes.append(
                f"{lower} of our {len(apart)} numbers are lower, by {-apart.mean():.4f} on average. The book's numbers "
                f"all come from the same {size} walks. Of {groups} sets of {size} of our own walks, {as_many} have as "
                f"many numbers on one side of those of all our walks; their mean deviation is {spread:.4f}. "
                "Chance is therefore enough to explain the difference; whether it was that, or the reading of the "
                "figures, is unknown."
            )
        return notes

    def _checks(self, rule: str, errors: Array, quick: bool) -> list[Check]:
        lambdas, alphas = self.settings()
        mean, se = _mean_and_error(errors)
        scale = np.sqrt(len(errors) / self.PUBLISHED_RUNS)
        wider = 3.0 if quick else 0.0  # of our standard errors
        checks = []
        for j, lambda_ in enumerate(self.LAMBDAS):
            line = np.flatnonzero(lambdas == lambda_)
            best = line[np.argmin(mean[line])]
            label = f"{self.SHORT[rule]}, λ = {lambda_:g}"
            note = f"ours at α = {alphas[best]:.3g}, ± {se[best]:.4f}"
            allowed = self.TOLERANCE + wider * se[best]
            origin: dict[str, Any] = {"origin": "digitised", "table": "Figures 12.6 and 12.8"}
            both = se[best], np.hypot(scale * se[best], self.READING)
            # at λ = 0 both are TD(0): one number
            number = "TD(0): best" if lambda_ == 0.0 else ""
            name, theirs = f"{label}: best", self.BEST[rule][j]
            checks.append(compare(name, theirs, mean[best], allowed, note, number=number, errors=both, **origin))
            if rule == "td":
                continue
            published = line[np.argmin(np.abs(alphas[line] - self.ALPHA[j]))]
            excess = errors[:, published] - errors[:, best]
            allowed = 2 * self.READING + wider * _mean_and_error(excess)[1]
            name = f"{label}: above it at α = {self.ALPHA[j]:g}"
            both = _mean_and_error(excess)[1], 2 * self.READING
            checks.append(compare(name, 0.0, excess.mean(), allowed, origin="digitised", errors=both, trivial=True))
            if j < len(self.AT_ONE):
                end = line[-1]
                allowed = self.TOLERANCE + wider * se[end]
                both = se[end], np.hypot(scale * se[end], self.READING)
                name = f"{label}: at α = 1"
                checks.append(compare(name, self.AT_ONE[j], mean[end], allowed, errors=both, **origin))
        return checks

    def _figure(self, rule: str, errors: Array) -> Figure:
        lambdas, alphas = self.settings()
        mean, se = _mean_and_error(errors)
        shade = shades(self.LAMBDAS)
        lines, marks, keys = [], [], []
        for j, lambda_ in enumerate(self.LAMBDAS):
            line = np.flatnonzero(lambdas == lambda_)
            line = line[mean[line] < 1.0]  # larger errors are far out of the frame
            name, key = f"λ = {lambda_:g}", f"lambda{j}"
            look: dict[str, Any] = {"ink": "ramp", "shade": shade[lambda_], "key": key}
            low, high = mean[line] - 2 * se[line], mean[line] + 2 * se[line]
            lines.append(Line(alphas[line], mean[line], name, low=low, high=high, **look))
            best = alphas[line[np.argmin(mean[line])]]
            x, y = [self.ALPHA[j] if rule == "true_online_td" else best], [self.BEST[rule][j]]
            if rule == "true_online_td" and j < len(self.AT_ONE):
                x, y = [*x, 1.0], [*y, self.AT_ONE[j]]
            marks.append(Marks(x, y, f"published, {name}", **look))
            keys.append(Key("ramp", name, shade[lambda_], key))
        number = "12.8" if rule == "true_online_td" else "12.6"
        title = f"{self.NAMES[rule]}: RMS error over the first 10 episodes"
        panel = Panel(title, lines, (0.24, 0.56), marks)
        plot = Plot({"all": [panel]}, rule, x=Axis("α", range=(0.0, 1.02), name="α"), y=Axis("RMS error"), closest=True)
        caption = "Diamonds: the book's numbers. Bands: two standard errors."
        if rule == "td":
            caption += " The book's best is drawn at our best α, as its own was not read off."
        return Figure(f"Figure {number}: {self.NAMES[rule]}", plot, caption, keys)


def _mean_and_error(values: Array) -> tuple[Array, Array]:
    """The mean over runs (the first axis) and its standard error; of values that overflowed, infinite and NaN."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(values.mean(axis=0)), np.asarray(values.std(axis=0, ddof=1) / np.sqrt(len(values)))


class ChainStudy:
    """The five-state chain: TD and emphatic TD come to different fixed points, each to its own.

    Sutton, Mahmood & White (2016), section 5 and the empirical examples. Five states with three features; μ goes left
    with probability ⅔, π goes right. The distribution of updates, the fixed points and their errors are computed
    exactly from the problem; then learners find the fixed points from sampled streams, with a step size that falls as
    1/t.
    """

    title = "The five-state chain"
    source = (
        "Sutton, Mahmood & White, An Emphatic Approach to the Problem of Off-policy Temporal-Difference Learning, "
        "JMLR 17 (2016), section 5 and the learning curves on that problem."
    )

    #: Fixed points by rule and λ. They follow from the paper's definitions.
    FIXED_POINTS: ClassVar[dict[tuple[str, float], tuple[float, float, float]]] = {
        ("td", 0.0): (2.172414, -0.413793, 1.275862),
        ("etd", 0.0): (2.271840, 0.907760, 0.121523),
        ("etd", 0.5): (2.809249, 0.786127, 0.260116),
        ("td", 1.0): (3.577778, 0.266667, 0.822222),
        ("etd", 1.0): (3.577778, 0.266667, 0.822222),
    }
    MSVE: ClassVar[dict[str, float]] = {"td": 2.877066, "etd": 1.728646, "best": 0.665233}
    #: What is learned, by rule and λ, and the rule whose fixed point it should come to.
    LEARNED: ClassVar[dict[tuple[str, float], str]] = {
        ("td", 0.0): "td",
        ("etd", 0.0): "etd",
        ("etd", 0.5): "etd",
        ("true_online_etd", 0.5): "etd",
    }
    ALPHA, FALL = 0.005, 5_000
    #: Of the figure: a constant α, the steps of a curve, and the steps from one of its points to the next.
    CONSTANT, CURVE, EVERY = 0.001, 50_000, 250

    def exact(self) -> list[Check]:
        """What needs no sampling, to the last printed digit."""
        chain = problems.chain()
        Phi = np.asarray(chain.Phi)
        interested = problems.chain(I=1.0 + Phi[:, 1] + 2.0 * Phi[:, 2])
        exactly = 1e-12
        checks = [
            compare("d_μ × 31", [16, 8, 4, 2, 1], 31 * chain.d_mu, exactly, origin="printed", trivial=True),
            compare("v_π", [4, 3, 2, 1, 1], chain.v_pi, exactly, origin="printed", trivial=True),
            compare("f = m at λ = 0, × 31", [16, 24, 28, 30, 1], 31 * chain.followon(), 10 * exactly, origin="printed"),
            compare("m, I = 1 + φ₂ + 2φ₃, × 31", [16, 32, 40, 48, 3], 31 * interested.emphasis("etd"), 10 * exactly),
            compare(
                "ETD(0), that I, fixed point", [2.066667, 1.133333, -0.066667], interested.fixed_point("etd"), 5e-7
            ),
        ]
        for (rule, lambda_), theta in self.FIXED_POINTS.items():
            fixed_point = problems.chain(lambda_).fixed_point(rule)
            checks.append(compare(f"{rule.upper()}({lambda_:g}), fixed point", theta, fixed_point, 5.1e-7))
        for rule, error in self.MSVE.items():
            weights, name = (chain.best, rule) if rule == "best" else (chain.fixed_point(rule), f"{rule.upper()}(0)")
            checks.append(compare(f"MSVE, {name}", error, chain.msve(weights), 5e-7))
        return checks

    @classmethod
    def learn(cls, task: tuple[int, int, int]) -> list[Array]:
        """The last weights of each of ``LEARNED`` in run i after T steps, α falling as 1/t."""
        seed, i, T = task
        stream = problems.chain().simulate(T, seed=(seed, i))
        alpha = cls.ALPHA / (1.0 + np.arange(T) / cls.FALL)
        weights = []
        for rule, lambda_ in cls.LEARNED:
            learner = Learner(rule, 3, engine="dense")
            learner.run(**(stream.inputs(rule) | {"lambda_": lambda_}), alpha=alpha, predictions=False)
            weights.append(np.array(learner.theta))
        return weights

    def run(self, options: RunOptions) -> Outcome:
        """The exact numbers, what is learned from streams, and the learning curves."""
        runs, T = (20, 100_000) if options.quick else (50, 400_000)
        learned = np.array(options.each(self.learn, [(options.seed, i, T) for i in range(runs)], "streams"))
        checks = self.exact()
        for k, ((rule, lambda_), kind) in enumerate(self.LEARNED.items()):
            mean, se = _mean_and_error(learned[:, k])
            theta = self.FIXED_POINTS[kind, lambda_]
            checks.append(compare(f"learned, {rule}, λ = {lambda_:g}", theta, mean, 5.0 * se, errors=(se, 0.0)))
        notes = [
            "d_μ, v_π, f and m are printed in the paper; fixed points and errors follow from its definitions, given "
            "to six decimals.",
            f"Learned weights: the mean of {runs} streams of {T:,} steps, α = {self.ALPHA}/(1 + t/{self.FALL:,}); the "
            "tolerance is 5 standard errors of that mean, each weight's own.",
        ]
        figures = [self._curves(options.seed, options.progress), self._weights(learned)]
        return Outcome(checks, figures, notes, {"streams": runs, "steps": T})

    def _curves(self, seed: int, progress: Progress, curves: int = 20) -> Figure:
        """The root of the MSVE along twenty streams, with the expected update's own in the middle."""
        chain = problems.chain()
        steps = np.arange(0, self.CURVE, self.EVERY)
        lines, levels, keys = [], [], []
        for i, rule in enumerate(("td", "etd")):
            ink, name = category(i), f"{rule.upper()}(0)"
            for j in range(curves):
                stream = chain.simulate(self.CURVE, seed=(seed, j))
                probe: dict[str, Any] = {"probe": chain.probe, "probe_every": self.EVERY}
                learner = Learner(rule, 3, engine="dense")
                _, error = learner.run(**stream.inputs(rule), alpha=self.CONSTANT, predictions=False, **probe)
                lines.append(Line(steps, error, name, ink, width=0.8, opacity=0.45, hover=False))
            theta, path = np.zeros(3), []
            A, b = chain.A_matrix(rule), chain.b_vector(rule)
            for t in range(self.CURVE):
                if t % self.EVERY == 0:
                    path.append(chain.rmsve(theta))
                theta = theta + self.CONSTANT * (b - A @ theta)
            lines.append(Line(steps, path, f"{name}, expected update", ink, width=3.0))
            levels.append(Level(float(np.sqrt(self.MSVE[rule])), f"{name}, fixed point", ink=ink))
            keys.append(Key(ink, f"{name}; thick: its expected update; dashed: its fixed point"))
            progress("curves", i + 1, 2)
        levels.append(Level(float(np.sqrt(self.MSVE["best"])), "the least there is", "dot"))
        panel = Panel("√MSVE", lines, (0.0, 3.0), levels=levels)
        plot = Plot({"all": [panel]}, "curves", x=Axis("steps"), y=Axis("√MSVE"), closest=True)
        caption = f"{curves} streams, θ_0 = 0, α = {self.CONSTANT}. Dotted: the best that three features can do."
        return Figure("Learning curves", plot, caption, keys)

    def _weights(self, learned: Array) -> Figure:
        """Where each stream's weights ended, beside the published fixed points."""
        panels, runs = [], len(learned)
        for k, ((rule, lambda_), kind) in enumerate(self.LEARNED.items()):
            places = np.repeat(np.arange(1.0, 4.0), runs) + np.tile(np.linspace(-0.3, -0.1, runs), 3)
            ours = Marks(places, learned[:, k].T.ravel(), f"{rule}, one stream each", category(0), symbol="dot")
            theirs = Marks([1, 2, 3], self.FIXED_POINTS[kind, lambda_], "fixed point")
            panels.append(Panel(f"{rule}, λ = {lambda_:g}", [], marks=[ours, theirs]))
        x = Axis("weight", range=(0.5, 3.5), ticks={1.0: "θ₁", 2.0: "θ₂", 3.0: "θ₃"})
        plot = Plot({"all": panels}, "weights", 4, 2, x=x, y=Axis(""), closest=True)
        keys = [
            Key(category(0), "learned, one dot per stream", symbol="dot"),
            Key("truth", "fixed point", symbol="diamond"),
        ]
        return Figure("Learned weights", plot, "After the last step of each stream, α falling as 1/t.", keys)


class TwoThetaStudy:
    """θ → 2θ: off-policy TD(0) diverges, emphatic TD(0) comes to zero.

    Sutton, Mahmood & White (2016), sections 3 and 4 and the empirical examples. Two states of one weight, φ = 1 and 2,
    γ = .9; right leads to the second state, π goes right, μ either way. The expected update of TD(0) is θ ← (1 + .2α)θ,
    that of ETD(0) is θ ← (1 − 3.4α)θ. The variance of emphasis has no bound here: a path may stray from zero for a
    while, and with another λ a few stray far. Emphatic TD is therefore judged by its median path.
    """

    title = "θ → 2θ"
    source = (
        "Sutton, Mahmood & White, An Emphatic Approach to the Problem of Off-policy Temporal-Difference Learning, "
        "JMLR 17 (2016), sections 3 and 4 and the trajectories on that problem."
    )

    ALPHA = 0.001
    RULES: ClassVar[dict[str, float]] = {"td": 0.0, "etd": 0.0, "true_online_etd": 0.5}
    #: A at each λ: of TD(0), and of ETD(λ).
    EXPECTED: ClassVar[dict[tuple[str, float], float]] = {
        ("td", 0.0): -0.2,
        ("etd", 0.0): 3.4,
        ("etd", 0.5): 73 / 22,
        ("etd", 1.0): 2.5,
    }
    EXACT = 1e-12

    def exact(self) -> list[Check]:
        """What needs no sampling, and one step of the learner from each state."""
        problem, exactly = problems.two_theta(), self.EXACT
        td, etd = [[0.5, -0.45], [0.0, 0.05]], [[0.5, -0.45], [0.0, 0.95]]
        checks = [
            compare("d_μ", [0.5, 0.5], problem.d_mu, exactly, trivial=True),
            compare("f at λ = 0", [0.5, 9.5], problem.followon(), exactly, origin="printed"),
            compare("m at λ = .5", [0.5, 5.0], problems.two_theta(0.5).emphasis("etd"), exactly),
            compare("m at λ = 1", [0.5, 0.5], problems.two_theta(1.0).emphasis("etd"), exactly),
            compare("key matrix, TD(0)", td, problem.key_matrix("td"), exactly, origin="printed"),
            compare("key matrix, ETD(0)", etd, problem.key_matrix("etd"), exactly, origin="printed"),
        ]
        for (rule, lambda_), A in self.EXPECTED.items():
            ours = problems.two_theta(lambda_).A_matrix(rule).item()
            checks.append(compare(f"A, {rule.upper()}({lambda_:g})", A, ours, exactly))
        for phi, theta in ((1.0, 11.6), (2.0, 9.2)):
            learner = Learner("td", 1, engine="dense")
            learner.theta = [10.0]
            learner.learn(0.1, 1.0, 0.0, [phi], 2.0, 0.0, [2.0], 0.9)
            name = f"one TD(0) step from θ = 10, φ = {phi:g}"
            checks.append(compare(name, theta, learner.theta.item(), exactly, origin="printed"))
        return checks

    def run(self, options: RunOptions) -> Outcome:
        """The exact numbers, and θ along sampled paths of three rules from θ_0 = 1."""
        paths, T = (20, 5_000) if options.quick else (50, 10_000)
        theta = {rule: self.trajectories(rule, lambda_, paths, T, options.seed) for rule, lambda_ in self.RULES.items()}
        growth = np.log(theta["td"][:, -1]) / (self.ALPHA * T)
        se = growth.std(ddof=1) / np.sqrt(paths)
        least = theta["td"][:, -1].min()
        checks = self.exact()
        checks += [
            compare(
                "growth of log θ per α, TD(0)",
                0.2,
                growth.mean(),
                4.0 * se + 0.4 * self.ALPHA,
                "the rate −A",
                errors=(se, 0.0),
            ),
            claim("least |θ_T|, TD(0)", "diverges", least, least > 1.0, "agrees if every path has grown"),
        ]
        for rule in ("etd", "true_online_etd"):
            ends = np.abs(theta[rule][:, -1])
            label = f"{rule}, λ = {self.RULES[rule]:g}"
            median = float(np.median(ends))
            checks += [
                claim(f"median |θ_T|, {label}", "comes to 0", median, median < 0.01, "agrees if it is below .01"),
                finding(f"paths with |θ_T| > 1, {label}", float(np.sum(ends > 1.0)), f"of {paths}"),
            ]
        notes = [
            "f, both key matrices at λ = 0, the two steps and the divergence of TD(0) are printed in the paper; m and "
            "A follow from its definitions.",
            f"{paths} paths of {T:,} steps from θ_0 = 1 with α = {self.ALPHA}. The tolerance of the rate is 4 standard "
            "errors plus .4α, the effect of a finite α.",
            "The mean of emphatic TD means little here, because rare paths with a large follow-on trace dominate it. "
            "With a constant α some paths may stray even if the expected update contracts. The median path is judged.",
        ]
        return Outcome(checks, [self._figure(theta, T)], notes, {"paths": paths, "steps": T, "α": self.ALPHA})

    def trajectories(self, rule: str, lambda_: float, paths: int, T: int, seed: int) -> Array:
        """θ before each of T steps and after the last, (paths, T+1)."""
        streams = problems.two_theta().simulate(T, seed=seed, runs=paths)
        theta = np.empty((paths, T + 1))
        for i in range(paths):
            stream = streams[i]
            learner = Learner(rule, 1, engine="dense")
            learner.theta = [1.0]
            arguments = stream.inputs(rule) | {"lambda_": lambda_}
            predictions = learner.run(**arguments, alpha=self.ALPHA, on_divergence="freeze")
            theta[i, :-1] = predictions / stream.Phi[:-1, 0]
            theta[i, -1] = learner.theta.item()
        return theta

    def _figure(self, trajectories: Mapping[str, Array], T: int) -> Figure:
        every = T // 200
        steps = np.arange(0, T + 1, every)
        panels = []
        for i, (rule, theta) in enumerate(trajectories.items()):
            A = self.EXPECTED["td" if rule == "td" else "etd", self.RULES[rule]]
            lines = [Line(steps, (1.0 - self.ALPHA * A) ** steps, "expected update", "truth", width=2.5)]
            lines += [
                Line(steps, np.abs(path[::every]), rule, category(i), width=0.8, opacity=0.5, hover=False)
                for path in theta
            ]
            y_range = (0.5, 20.0) if rule == "td" else (1e-8, 1e2)
            panels.append(Panel(f"|θ|: {rule}, λ = {self.RULES[rule]:g}", lines, y_range))
        plot = Plot({"all": panels}, "paths", 3, 1, x=Axis("steps"), y=Axis("|θ|", scale="log"), closest=True)
        caption = (
            "One thin line per path, logarithmic scale. A typical path of emphatic TD falls more slowly than its "
            "expected update, to which rare paths with a large follow-on trace contribute most."
        )
        keys = [Key("truth", "expected update, (1 − αA)ᵗ, A as published")]
        return Figure("Trajectories", plot, caption, keys)


class BairdStudy:
    """Baird's counterexample: what expected updates do, and what no update can change.

    Sutton & Barto (2018), section 11.2 (figure 11.2, right) and section 11.8 (figure 11.6). w_0 = (1,1,1,1,1,1,10,1),
    γ = .99. Swept over all states, semi-gradient TD(0) diverges, and weighted by emphasis it converges. The direction
    (1,1,1,1,1,1,4,−2) is orthogonal to every feature vector, so that w_t keeps its share of it, 44, on every sampled
    path. Sampled emphatic TD itself does not converge usefully here, as the book says, and nothing below requires it
    to.
    """

    title = "Baird's counterexample"
    source = (
        "Sutton & Barto, Reinforcement Learning: An Introduction, 2nd edition (2018), figures 11.2 and 11.6; "
        "the limit and the invariant follow from the problem."
    )

    START = np.array([1.0, 1, 1, 1, 1, 1, 10, 1])
    UNSEEN = np.array([1.0, 1, 1, 1, 1, 1, 4, -2])
    SWEEPS = 1_000
    DIVERGED: ClassVar[dict[str, float]] = {"w₁ … w₆": 114.43, "w₇": 6.850, "w₈": 335.00}
    LIMIT: ClassVar[dict[str, float]] = {"w₁ … w₆": 22 / 13, "w₇": 88 / 13, "w₈": -44 / 13}
    SAMPLED = ("td", "true_online_td", "etd", "true_online_etd")

    def sweep(self, rule: str, alpha: float, weight: Array) -> Array:
        """w before each of 1,000 expected updates and after the last.

        An update is the sum over the states of the learner's first step from the same w, with the state's weight as its
        interest. π always goes to the seventh state, so that ρ = 1 and φ' is that state's.
        """
        problem = problems.baird()
        Phi, gamma = np.asarray(problem.Phi), float(np.ravel(problem.gamma)[0])
        learner = Learner(rule, problem.n, engine="dense")
        w = [self.START]
        for _ in range(self.SWEEPS):
            change = np.zeros(problem.n)
            for s in range(problem.S):
                learner.cut()
                learner.theta = w[-1]
                learner.learn(alpha, float(weight[s]), 0.0, Phi[s], 1.0, 0.0, Phi[6], gamma)
                change += learner.theta - w[-1]
            w.append(w[-1] + change)
        return np.array(w)

    def invariant(self, rule: str, paths: int, steps: int, seed: int) -> tuple[float, float]:
        """What UNSEEN·w_t was where it was farthest from 44 on sampled paths, and the largest |w| there was."""
        streams = problems.baird().simulate(steps, seed=seed, runs=paths)
        farthest, largest = 44.0, 0.0
        for i in range(paths):
            stream = streams[i]
            learner = Learner(rule, len(self.START), engine="dense")
            learner.theta = self.START
            for t in range(steps):
                learner.learn(
                    0.002, 1.0, 0.3, stream.Phi[t], stream.rho[t], stream.R[t], stream.Phi[t + 1], stream.gamma_next[t]
                )
                w = learner.theta
                farthest = max(farthest, float(self.UNSEEN @ w), key=lambda value: abs(value - 44.0))
                largest = max(largest, float(np.abs(w).max()))
        return farthest, largest

    def run(self, options: RunOptions) -> Outcome:
        """Both expected updates in full, and the invariant on some sampled paths."""
        paths, steps = (5, 100) if options.quick else (50, 500)
        problem = problems.baird()
        plain = self.sweep("td", 0.01, np.asarray(problem.d_mu))
        options.progress("sweeps and paths", 1, 6)
        emphatic = self.sweep("etd", 0.1, problem.followon())
        options.progress("sweeps and paths", 2, 6)
        checks = [
            *self._compare("TD", self.DIVERGED, plain[-1], 5e-3),
            *self._compare("emphatic TD", self.LIMIT, emphatic[-1], 1e-9),
        ]
        for i, rule in enumerate(self.SAMPLED):
            farthest, largest = self.invariant(rule, paths, steps, options.seed)
            options.progress("sweeps and paths", 3 + i, 6)
            note = f"the farthest of all; the largest weight was {largest:.3g}"
            name, tolerance = f"(1,1,1,1,1,1,4,−2)·w_t, {rule}", 1e-12 * steps * largest
            checks.append(compare(name, 44.0, farthest, tolerance, note, trivial=True))
        notes = [
            f"TD and emphatic TD: the expected updates after {self.SWEEPS:,} sweeps. The book's figure 11.2 shows "
            "about 115, 7 and 335; to more digits these follow from the problem, as do the limit and the invariant.",
            f"The invariant: after every update on each of {paths} sampled paths of {steps} steps, α = .002 and "
            "λ = .3. Its tolerance is rounding: 10⁻¹² of the largest weight a step.",
            "Sampled emphatic TD has a large variance here with every step size: only its expected update converges.",
        ]
        title = "Figure 11.2, right: semi-gradient TD, uniformly weighted, α = .01"
        figures = [
            self._figure(title, plain, self.DIVERGED, "plain"),
            self._figure("Figure 11.6: the same weighted by emphasis, α = .1", emphatic, self.LIMIT, "emphatic"),
        ]
        return Outcome(checks, figures, notes, {"sweeps": self.SWEEPS, "paths": paths, "steps": steps})

    def _compare(self, what: str, published: Mapping[str, float], w: Array, tolerance: float) -> list[Check]:
        """The first six weights, which are equal, as one number: that of the one farthest off."""
        farthest = w[np.argmax(np.abs(w[:6] - published["w₁ … w₆"]))]
        return [
            compare(f"{what}: {name}", number, ours, tolerance)
            for (name, number), ours in zip(published.items(), (farthest, w[6], w[7]), strict=True)
        ]

    def _figure(self, title: str, w: Array, published: Mapping[str, float], group: str) -> Figure:
        sweeps, columns = np.arange(len(w)), (w[:, 0], w[:, 6], w[:, 7])
        lines, marks, keys = [], [], []
        for i, ((name, number), y) in enumerate(zip(published.items(), columns, strict=True)):
            lines.append(Line(sweeps, y, name, category(i)))
            marks.append(Marks([self.SWEEPS], [number], f"published {name}", category(i)))
            keys.append(Key(category(i), name))
        plot = Plot({"all": [Panel("weights", lines, marks=marks)]}, group, x=Axis("sweeps"), y=Axis("weight"))
        return Figure(title, plot, "Diamonds: the weights after the last sweep, as published and to more digits.", keys)


class FollowonVarianceStudy:
    """The follow-on trace where nothing bounds it: its mean falls while its variance grows.

    Sutton, Mahmood & White (2016), on the variance of emphatic TD. On the θ → 2θ problem with interest only at t = 0,
    F_t is 1.8ᵗ if the first t actions were all right and 0 otherwise, so that E F_t = .9ᵗ and Var F_t = 1.62ᵗ − .81ᵗ.
    All 2ᵗ action strings are run through the learner, a learner each: nothing is sampled.
    """

    title = "The variance of the follow-on trace"
    source = (
        "Sutton, Mahmood & White, An Emphatic Approach to the Problem of Off-policy Temporal-Difference Learning, "
        "JMLR 17 (2016), on θ → 2θ with interest at t = 0 only."
    )

    PUBLISHED: ClassVar[dict[str, Callable[[int], float]]] = {
        "F on the all-right path": lambda t: 1.8**t,
        "mean of F": lambda t: 0.9**t,
        "variance of F": lambda t: 1.62**t - 0.81**t,
    }
    RULES = ("etd", "true_online_etd")
    RELATIVE = 1e-12

    def run(self, options: RunOptions) -> Outcome:
        """F_t of every action string of length t, for all t up to some; there is nothing that ``seed`` would change."""
        t_max = 10 if options.quick else 16
        ours = {rule: self.follow(rule, t_max) for rule in self.RULES}
        steps = np.arange(1, t_max + 1)
        checks = []
        for name, law in self.PUBLISHED.items():
            for t in range(2, t_max + 1, 4):
                published = law(t)
                farther = max((ours[rule][name][t - 1] for rule in self.RULES), key=lambda F: abs(F - published))
                tolerance, note = self.RELATIVE * published, f"{2**t:,} strings"
                checks.append(compare(f"{name}, t = {t}", published, farther, tolerance, note, "printed"))
        lines, marks, keys = [], [], []
        for i, (name, law) in enumerate(self.PUBLISHED.items()):
            lines.append(Line(steps, ours["etd"][name], name, category(i)))
            marks.append(Marks(steps, [law(int(t)) for t in steps], f"published {name}", category(i)))
            keys.append(Key(category(i), name))
        plot = Plot({"all": [Panel("F after t steps", lines, marks=marks)]}, "F", x=Axis("t"), y=Axis("", scale="log"))
        caption = "Lines: over all action strings. Diamonds: 1.8ᵗ, .9ᵗ and 1.62ᵗ − .81ᵗ as published."
        notes = [
            "etd and true_online_etd were both run; a row shows the one with the larger difference.",
            f"Nothing is sampled, so the tolerance is only for rounding: {self.RELATIVE:g} of the number.",
        ]
        return Outcome(checks, [Figure("Growth", plot, caption, keys)], notes, {"longest string": t_max})

    def follow(self, rule: str, t_max: int) -> dict[str, list[float]]:
        """The three numbers after 1 … t_max steps.

        Learner k goes right where bit t of k is 1. F does not depend on φ, so that any will do.
        """
        problem = problems.two_theta()
        mu, gamma = np.asarray(problem.mu)[0], float(np.ravel(problem.gamma)[0])
        strings = np.arange(2**t_max)
        learner = Learner(rule, 1, len(strings), engine="dense")
        moments: dict[str, list[float]] = {name: [] for name in self.PUBLISHED}
        for t in range(t_max):
            right = (strings >> t) & 1
            learner.learn(0.1, float(t == 0), 0.5, [1.0], right / mu[1], 0.0, [2.0], gamma)
            F = learner.F  # ρ_t γ F_t is what is remembered: F_{t+1} where the interest is 0
            for name, value in zip(self.PUBLISHED, (F[-1], F.mean(), F.var()), strict=True):
                moments[name].append(float(value))
        return moments


STUDIES: dict[str, Study] = {
    "random-walk": RandomWalkStudy(),
    "chain": ChainStudy(),
    "two-theta": TwoThetaStudy(),
    "baird": BairdStudy(),
    "followon-variance": FollowonVarianceStudy(),
}
