"""Studies without a published number to compare with: they report what they find.

Is true online TD(λ) ever worse than accumulating traces? How much does the first step size matter? Which faults of a
sensor do alarms find?
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emphatic import problems, stepsizes
from emphatic.learning.learner import Learner
from emphatic.nexting import data
from emphatic.nexting.report import Axis, Figure, Key, Level, Line, Marks, Panel, Plot, category
from emphatic.nexting.report.plots import look
from emphatic.nexting.runs.runner import run as learn_log
from emphatic.nexting.runs.settings import FALSE_ALARM_RATE
from emphatic.nexting.tables import open_table
from emphatic.problems import MDP
from emphatic.stepsizes import StepSize
from emphatic.studies.figures import within_frame
from emphatic.studies.sources import Recorded
from emphatic.studies.statistics import CONFIDENCE, mean_intervals
from reproductions import Check, Outcome, RunOptions, Study, finding

__all__ = ["STUDIES", "AlarmsStudy", "StepSizesStudy", "TrueOnlineStudy"]

Array = NDArray[np.float64]


class TrueOnlineStudy:
    """Is true online TD(λ) ever worse than TD(λ) with accumulating traces, each at its best α?

    van Seijen, Mahmood, Pilarski, Machado & Sutton (2016) found on random Markov reward processes with several
    representations that it is not. Here: random MDPs (Garnets), on-policy, one feature per state or binary features,
    all α and λ of a rule one Horde. For each MDP and λ the RMSVE, averaged over the steps of several streams, is taken
    at each rule's best α.
    """

    title = "True online TD(λ) and accumulating traces on random MDPs"
    source = (
        "van Seijen, Mahmood, Pilarski, Machado & Sutton, True Online Temporal-Difference Learning, JMLR 17 (2016), "
        "its random Markov reward processes: true online TD(λ) did at least as well as TD(λ), each at its best step "
        "size."
    )

    #: States, branching and features (None: one a state).
    SIZES = ((10, 3, None), (10, 3, 6), (100, 10, None), (100, 10, 20))
    LAMBDAS = (0.3, 0.6, 0.8, 0.9, 0.95, 1.0)
    #: α·φ·φ, so that one grid serves every representation.
    ALPHAS = 2.0 ** np.arange(-7.0, 1.125, 0.25)
    GAMMA, STEPS, EVERY = 0.99, 1_000, 20
    RULES = ("true_online_td", "td")

    def best_errors(self, task: tuple[int, int, int, int]) -> Array:
        """For each rule and λ the error at the best α on one MDP, and the standard error of the difference, (3, λs)."""
        size, seed, i, streams = task
        states, branching, n = self.SIZES[size]
        mdp = problems.garnet(states, 1, branching, n, seed=[seed, size, i], gamma=self.GAMMA, on_policy=True)
        alphas = np.tile(self.ALPHAS / np.mean(np.sum(mdp.Phi**2, axis=1)), len(self.LAMBDAS))[None]
        lambdas = np.repeat(self.LAMBDAS, len(self.ALPHAS))[None]
        errors = np.empty((len(self.RULES), streams, len(self.LAMBDAS), len(self.ALPHAS)))
        for j in range(streams):
            stream = mdp.simulate(self.STEPS, seed=(seed, size, i, j))
            for k, rule in enumerate(self.RULES):
                learner = Learner(rule, mdp.n, alphas.size, engine="dense")
                arguments = _columns(stream.inputs(rule)) | {"alpha": alphas, "lambda_": lambdas}
                errors[k, j] = _mean_error(learner, arguments, mdp, self.EVERY).reshape(errors.shape[2:])
        with np.errstate(over="ignore"):
            at = errors.mean(axis=1).argmin(axis=2)  # (rules, λs)
        best = np.take_along_axis(errors, at[:, None, :, None], axis=3)[..., 0]  # (rules, streams, λs)
        gap = best[0] - best[1]
        return np.vstack([best.mean(axis=1), gap.std(axis=0, ddof=1) / np.sqrt(streams)])

    def run(self, options: RunOptions) -> Outcome:
        """The ratio of the two best errors on every MDP and at every λ."""
        mdps, streams = (4, 5) if options.quick else (30, 10)
        sizes = (1,) if options.quick else tuple(range(len(self.SIZES)))
        tasks = [(size, options.seed, i, streams) for size in sizes for i in range(mdps)]
        errors = np.array(options.each(self.best_errors, tasks, "random MDPs"))
        errors = errors.reshape(len(sizes), mdps, 3, len(self.LAMBDAS))
        ratio = errors[:, :, 0] / errors[:, :, 1]
        surely = errors[:, :, 0] - errors[:, :, 1] > 3.0 * errors[:, :, 2]
        checks: list[Check] = []
        names = [self._name(size) for size in sizes]
        for size, name in enumerate(names):
            cases = ratio[size].size
            worse = f"{int(np.sum(ratio[size] > 1.0))} of {cases}"
            checks += [
                finding(f"{name}: worse", worse, "MDPs and λ where true online's best error is the larger"),
                finding(f"{name}: worse by 3 s.e.", f"{int(surely[size].sum())} of {cases}", "of the difference"),
                finding(f"{name}: mean ratio", float(ratio[size].mean()), "true online / accumulating"),
                finding(f"{name}: largest ratio", float(ratio[size].max())),
            ]
        worst, share = float(ratio.max()), float(np.mean(ratio > 1.0))
        answer = f"Ever worse at its best α? In {100 * share:.1f}% of {ratio.size} cases"
        answer += f", by at most {100 * (worst - 1):.2g}%"
        answer += f"; by more than 3 standard errors in {int(surely.sum())}." if worst > 1 else "."
        notes = [
            answer,
            f"{mdps} MDPs of each size, {streams} streams of {self.STEPS:,} steps on each; γ = {self.GAMMA}; RMSVE "
            f"before every {self.EVERY}th step. One α serves all streams of an MDP; it is the best of "
            f"{len(self.ALPHAS)} for each rule and λ.",
        ]
        settings = {"MDPs of each size": mdps, "streams of each": streams, "steps": self.STEPS, "λ": list(self.LAMBDAS)}
        return Outcome(checks, [self._figure(ratio, names)], notes, settings)

    def _name(self, size: int) -> str:
        states, _, n = self.SIZES[size]
        return f"{states} states, {'tabular' if n is None else f'{n} binary features'}"

    def _figure(self, ratio: Array, names: Sequence[str]) -> Figure:
        panels, count = [], len(self.LAMBDAS)
        for name, cases in zip(names, ratio, strict=True):
            places = np.tile(np.arange(count), (len(cases), 1)) + np.linspace(-0.25, 0.25, len(cases))[:, None]
            dots = Marks(places.ravel(), cases.ravel(), "one MDP", category(0), symbol="dot")
            panels.append(Panel(name, [], marks=[dots], levels=[Level(1.0, "equal")]))
        ticks = {float(i): f"{lambda_:g}" for i, lambda_ in enumerate(self.LAMBDAS)}
        x = Axis("λ", range=(-0.5, count - 0.5), ticks=ticks)
        plot = Plot({"all": panels}, "ratio", min(2, len(names)), 1, x=x, y=Axis("ratio of errors"), closest=True)
        keys = [Key(category(0), "best error of true online TD(λ) / of TD(λ), one dot per MDP", symbol="dot")]
        keys.append(Key("baseline", "equal: below it, true online is better"))
        return Figure("Ratio of the best errors", plot, "", keys)


def _columns(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of ``run`` with each series as a column, for all learners."""
    return dict(arguments) | {name: arguments[name][:, None] for name in ("R", "gamma_next", "rho", "I")}


def _mean_error(learner: Learner, arguments: Mapping[str, Any], mdp: MDP, every: int) -> Array:
    """The RMSVE of each learner over the steps of one run, weighted by d_μ; infinite where it diverged."""
    options: dict[str, Any] = {"probe": mdp.probe, "probe_every": every, "on_divergence": "freeze"}
    with np.errstate(over="ignore", invalid="ignore"):
        error = learner.run(**arguments, **options, predictions=False)[1].mean(axis=0)
    return np.where(learner.frozen | np.isnan(error), np.inf, error)


class StepSizesStudy:
    """How much does it matter which step size a method begins with? Every method of ``emphatic.stepsizes``.

    On the random walk and on a household's log (on-policy, true online TD(λ)), on Collision and on random MDPs
    (off-policy, true online emphatic TD(λ)). All first step sizes of a method, from 1e-6 to 1, are one Horde. They are
    given as α·φ·φ, the part of an error that a first step takes away, so that one grid serves every representation;
    other options are the methods' defaults, and nothing is tuned.
    """

    title = "Step sizes: how each method depends on its initial one"
    source = (
        "Sutton's guide to true online emphatic TD(λ) (2015) leaves α to its user and names Autostep (Mahmood 2012), "
        "AlphaBound (Dabney & Barto 2012) and RPROP (Riedmiller & Braun 1993); also IDBD, TIDBD, SwiftTD and ours."
    )

    #: α·φ·φ of the first step.
    FIRST = 10.0 ** np.arange(-6.0, 0.25, 0.5)
    METHODS = ("constant", "alphabound", "auto", "idbd", "tidbd", "autostep", "rprop", "swifttd", "emphatic")
    #: Problems by name: the rule, λ, steps, and runs.
    PROBLEMS: ClassVar[dict[str, tuple[str, float, int, int]]] = {
        "random walk": ("true_online_td", 0.8, 2_000, 20),
        "Collision": ("true_online_etd", 0.9, 10_000, 20),
        "Garnets": ("true_online_etd", 0.5, 5_000, 20),
    }
    #: The log's name, rule, column and horizon.
    LOG = ("household log", "true_online_td", "Global_active_power", "15min")
    #: Steps between errors.
    EVERY = 50
    #: Up to this many times the least error of all, a first step size counts as good.
    GOOD = 1.1

    @classmethod
    def first_sizes(cls, method: str, square: float) -> StepSize:
        """The method with each of the first step sizes, one per learner; ``square`` is the mean of φ·φ."""
        kind = stepsizes.kind_of(method)
        return kind(rate=cls.FIRST) if method == "auto" else kind(alpha=cls.FIRST / square)  # type: ignore[call-arg]

    @classmethod
    def on_problem(cls, task: tuple[str, int, int, int, tuple[str, ...]]) -> Array:
        """RMSVE over the steps of one run: (methods, first step sizes); infinite where it diverged."""
        name, seed, i, steps, methods = task
        rule, lambda_, _, _ = cls.PROBLEMS[name]
        mdp = cls._problem(name, seed, i)
        arguments = _columns(mdp.simulate(steps, seed=(seed, i)).inputs(rule)) | {"lambda_": lambda_}
        square = float(mdp.d_mu @ np.sum(mdp.Phi**2, axis=1))
        errors = np.empty((len(methods), len(cls.FIRST)))
        for j, method in enumerate(methods):
            stepsize = cls.first_sizes(method, square)
            learner = Learner(rule, mdp.n, len(cls.FIRST), engine="dense", stepsize=stepsize)
            errors[j] = _mean_error(learner, arguments, mdp, cls.EVERY)
        return errors

    @staticmethod
    def _problem(name: str, seed: int, i: int) -> MDP:
        if name == "random walk":
            return problems.random_walk()
        return problems.collision(seed=(seed, i)) if name == "Collision" else problems.garnet(seed=(seed, i))

    @classmethod
    def on_log(cls, task: tuple[str, int | None]) -> Array:
        """1 − variance explained in the second half of the log's first rows, or of all, for each first step size."""
        import pyarrow.parquet as pq

        method, rows = task
        _, rule, column, horizon = cls.LOG
        log = Recorded.table(pq.read_table(data.household()).slice(0, rows), column, horizon)
        steps, Phi = log.steps, log.Phi
        square = float(np.mean(np.sum(Phi.values**2, axis=1, where=Phi.indices >= 0)))
        learner = Learner(rule, log.n or 1, len(cls.FIRST), stepsize=cls.first_sizes(method, square))
        R, rho = (np.asarray(series)[:, None] for series in (log.R, log.rho))
        with np.errstate(all="ignore"):
            predictions = learner.run(Phi, R, log.gamma_next, rho=rho, lambda_=log.lambda_, on_divergence="freeze")
        G, known = log.truth
        late = known & (np.arange(steps) >= steps // 2)
        with np.errstate(all="ignore"):
            share = np.mean(np.square(predictions[late] - G[late][:, None]), axis=0) / np.var(G[late])
        return np.where(learner.frozen | np.isnan(share), np.inf, share)

    def run(self, options: RunOptions) -> Outcome:
        """Errors over the first step size, for each method and problem."""
        methods = ("constant", "auto", "autostep", "emphatic") if options.quick else self.METHODS
        all_runs: dict[str, Array] = {}  # (runs, methods, first step sizes)
        for name, (_, _, steps, runs) in self.PROBLEMS.items():
            steps, runs = (100, 1) if options.quick else (steps, runs)
            tasks = [(name, options.seed, i, steps, methods) for i in range(runs)]
            all_runs[name] = np.array(options.each(self.on_problem, tasks, name))
        if not options.quick:
            log = self.LOG[0]
            all_runs[log] = np.array(options.each(self.on_log, [(method, None) for method in methods], log))[None]
        with np.errstate(invalid="ignore"):
            errors = {name: runs.mean(axis=0) for name, runs in all_runs.items()}
        checks = [check for name, table in errors.items() for check in self._findings(name, methods, table)]
        fixed = methods.index("constant")
        gains = {
            name: 1.0 - np.min(np.delete(table, fixed, 0)) / np.min(table[fixed]) for name, table in errors.items()
        }
        good = {
            method: sum(int(np.sum(table[j] <= self.GOOD * table.min())) for table in errors.values())
            for j, method in enumerate(methods)
        }
        most, best = max(good.values()), max(good, key=lambda method: good[method])
        total = len(self.FIRST) * len(errors)
        notes = [
            "Best adaptive method against the best constant α, both chosen in hindsight: "
            + "; ".join(f"{name} {100 * gain:+.1f}%" for name, gain in gains.items())
            + " less error.",
            f"{best} is within {100 * (self.GOOD - 1):.0f}% of the smallest error from {most} of {total} initial step "
            "sizes, the most of all methods" + ("." if most == total else "; no method is good from every one."),
            "Quick mode leaves out the log and some methods." if options.quick else "The whole log is one run.",
            "Meta step sizes and bounds are the defaults of each method; none was chosen by these results.",
        ]
        settings = {
            "methods": list(methods),
            "problems": {name: f"{rule}, λ = {lambda_}" for name, (rule, lambda_, _, _) in self.PROBLEMS.items()},
            "log": f"{self.LOG[2]}, {self.LOG[3]} ahead, {self.LOG[1]}",
        }
        return Outcome(checks, [self._figure(methods, all_runs)], notes, settings)

    def _findings(self, name: str, methods: Sequence[str], errors: Array) -> list[Check]:
        """Each method's least error, where it begins, and from how many first step sizes it is good."""
        least, checks = float(errors.min()), []
        for method, row in zip(methods, errors, strict=True):
            good, lost = int(np.sum(row <= self.GOOD * least)), int(np.sum(np.isinf(row)))
            note = f"from α·φ·φ = {self.FIRST[row.argmin()]:.2g}; {good} of {len(self.FIRST)} within "
            note += f"{100 * (self.GOOD - 1):.0f}% of the best" + (f"; {lost} diverged" if lost else "")
            checks.append(finding(f"{name}: {method}", float(row.min()), note))
        return checks

    def _figure(self, methods: Sequence[str], all_runs: Mapping[str, Array]) -> Figure:
        panels = []
        for name, runs in all_runs.items():
            with np.errstate(invalid="ignore"):
                table = runs.mean(axis=0)
            small = table[:, 0]  # of the smallest step size, which hardly learns
            top = min(float(table[np.isfinite(table)].max()), 1.3 * float(np.median(small[np.isfinite(small)])))
            lines = []
            for j, (method, row) in enumerate(zip(methods, table, strict=True)):
                band: dict[str, Any] = {}
                if len(runs) > 1:
                    low, high = within_frame(row, *mean_intervals(runs[:, j].T), top)
                    band = {"low": low, "high": high}
                lines.append(Line(self.FIRST, row, method, category(j), **look(j), **band))
            panels.append(Panel(name, lines, y_range=(0.0, top)))
        x, y = Axis("initial α·φ·φ", scale="log"), Axis("error")
        plot = Plot({"all": panels}, "stepsizes", 2, 1, x=x, y=y)
        caption = (
            "RMSVE over all steps, mean over runs with 95% intervals. For the log, which is a single run: 1 − variance "
            "explained in its second half."
        )
        keys = [Key(category(j), method) for j, method in enumerate(methods)]
        return Figure("Error against the initial step size", plot, caption, keys)


# ---------------------------------------------------------------------- alarms

OURS, DEFAULT, QUIET = "emphatic", "emphatic, default threshold", "emphatic, one false alarm in 10,000 rows"
#: The rows of each kind of fault: of a drift, those in which it grows to 3 standard deviations.
FAULTS = {"stuck": 120, "drift": 720, "spike": 1, "dropout": 60, "level": 120, "noise": 120}
#: In standard deviations of the first half.
SIZES = {"drift": 3.0, "spike": 5.0, "level": 2.0, "noise": 1.0}
#: Rows from one fault to the next, and by how many they vary.
SPACING, VARY = 1_000, 200
#: Rows to one false alarm; alarms that begin within this many rows of another are one.
ROWS, TOGETHER = 10_000, 60
HORIZONS = ("2min", "15min", "3h", "24h")
#: Rows over which means and deviations of the z-score and of the charts are taken.
DAY, LONG = 1_440, 20_000
CHARTS = {"EWMA chart, λ = .2": 0.2, "EWMA chart, λ = .05": 0.05}
Z_SCORE = "z-score over a day"


class Fault(NamedTuple):
    """Of the signal number ``signal``, from row ``begin`` to before row ``end``."""

    signal: int
    kind: str
    begin: int
    end: int


class LogCopy(NamedTuple):
    """A copy of the first rows of the log (None: all) to be learned from; copy 0 has no faults."""

    copy: int
    seed: int
    rows: int | None


class AlarmsStudy:
    """Which faults of a sensor do alarms find, how soon, and how do simpler charts do at as many false alarms?

    Faults are put into the second half of a household's log, one signal at a time: a reading that is stuck, a drift, a
    single spike, a dropout to 0, another level, and noise. Each copy of the log, with faults of its own, is learned
    from as it is, from the first row. Beside the score of ``emphatic nexting`` (``nexting.runs.alarms``) are the two
    that one would try first: a running z-score, and the control chart of Roberts (1959),

        |x − mean| / deviation        |z − mean| / (deviation √(λ / (2 − λ))),    z ← z + λ (x − z)

    All are held to as many false alarms: for each signal and detector the threshold is the lowest one at which the log
    without faults raises one alarm in 10,000 rows of its second half. The thresholds that the alarms themselves find
    are scored too: at the default rate of false alarms, and at the rate of one in 10,000 rows, which was the default.
    """

    title = "Alarms: which faults of a sensor are found, and how soon"
    source = (
        "Unexpected demon error: A. White, Developing a Predictive Approach to Knowledge, thesis (2015). Control "
        "chart: S. W. Roberts, Control Chart Tests Based on Geometric Moving Averages (1959)."
    )

    def run(self, options: RunOptions) -> Outcome:
        """Detection and delay of every kind of fault, for every detector."""
        rows, copies = (8_000, 3) if options.quick else (None, 8)
        tasks = [LogCopy(i, options.seed, rows) for i in range(copies + 1)]
        (clean, alarm, _), *faulty = options.each(score, tasks, "copies of the log")
        half = len(alarm) // 2
        allowed = max(1, round((len(alarm) - half) / ROWS))
        limits = {name: [threshold(s, allowed) for s in scores[half:].T] for name, scores in clean.items()}
        names = (*clean, DEFAULT, QUIET)
        delays: dict[str, dict[str, list[float]]] = {kind: {name: [] for name in names} for kind in FAULTS}
        for scores, alarms, faults in faulty:
            for c, kind, a, b in faults:
                above = {name: table[a:b, c] > limits[name][c] for name, table in scores.items()}
                online = {DEFAULT: alarms[a:b, c], QUIET: scores[OURS][a:b, c] > np.log10(ROWS)}
                for name, hit in (above | online).items():
                    delays[kind][name].append(float(np.argmax(hit)) if hit.any() else np.inf)
        # a quick study may have no fault of a kind
        delays = {kind: by_detector for kind, by_detector in delays.items() if by_detector[OURS]}
        false = [count_alarms(column) / len(column) * ROWS for column in alarm[half:].T]
        checks = [check for kind, by_detector in delays.items() for check in _findings(kind, by_detector)]
        name = f"false alarms in {ROWS:,} rows, default threshold"
        target = f"{FALSE_ALARM_RATE * ROWS:g}"
        note = f"mean of {len(false)} signals of the log without faults, second half; target: {target}"
        checks.append(finding(name, float(np.mean(false)), note))
        notes = [
            f"Thresholds for equal false alarms are set with hindsight, at {allowed} in the second half of the log "
            "without faults. The default threshold is found online, from the past alone.",
            "Three of the seven signals are meters that read 0 for hours. It cannot be seen that such a meter is "
            "stuck at 0, or has dropped to 0. These signals count like the others.",
            f"Drifts grow to {SIZES['drift']:g}, spikes are of {SIZES['spike']:g}, other levels of {SIZES['level']:g} "
            f"and noise of {SIZES['noise']:g} standard deviations. A fault is found if an alarm is raised while it "
            "lasts.",
        ]
        settings = {"copies": copies, "horizons": list(HORIZONS), "rows of a fault": FAULTS}
        return Outcome(checks, [_figure(delays)], notes, settings)


def inject(
    x: Array,
    first: int,
    rng: np.random.Generator,
    rows: Mapping[str, int] = FAULTS,
    spacing: int = SPACING,
    vary: int = VARY,
) -> tuple[Array, list[Fault]]:
    """The readings (T, C) with faults from row ``first`` on, of every kind in every signal in turn, in random order.

    ``rows`` are those of each kind, ``spacing`` those from one fault to the next, which varies by up to ``vary``.

    >>> x, faults = inject(np.random.default_rng(0).normal(size=(5000, 2)), 2500, np.random.default_rng(0))
    >>> [(fault.signal, fault.kind) for fault in faults]
    [(1, 'dropout'), (0, 'spike')]
    >>> float(np.ptp(x[faults[0].begin : faults[0].end, 1]))
    0.0
    """
    y, faults = x.copy(), []
    deviation = np.nanstd(x[:first], axis=0)
    kinds = [(c, kind) for c in range(x.shape[1]) for kind in rows]
    begins = range(first + vary, len(x) - spacing, spacing)
    order = [kinds[i] for _ in range(len(begins) // len(kinds) + 1) for i in rng.permutation(len(kinds))]
    for place, (c, kind) in zip(begins, order, strict=False):
        a = place + int(rng.integers(vary))
        b, sign = a + rows[kind], rng.choice([-1.0, 1.0])
        if np.isnan(x[a - 1 : b, c]).any():
            continue
        if kind in SIZES:
            shape = {"noise": rng.normal(size=b - a), "level": np.ones(b - a)}
            ramp = np.arange(1, b - a + 1) / (b - a)  # of one row: a spike
            y[a:b, c] += sign * SIZES[kind] * deviation[c] * shape.get(kind, ramp)
        else:
            y[a:b, c] = y[a - 1, c] if kind == "stuck" else 0.0
        faults.append(Fault(c, kind, a, b))
    return y, faults


def score(task: LogCopy) -> tuple[dict[str, Array], NDArray[np.bool_], list[Fault]]:
    """Of each detector the scores (T, C) of a copy; our alarms at the default threshold; and the faults."""
    table = open_table(data.household())
    blocks = [next(table.blocks(task.rows))] if task.rows else list(table.blocks())
    x, time = np.concatenate([b.values for b in blocks]), np.concatenate([b.time for b in blocks if b.time is not None])
    faults: list[Fault] = []
    if task.copy:
        x, faults = inject(x, len(x) // 2, np.random.default_rng((task.seed, task.copy)))
    columns: dict[str, Any] = dict(zip(table.names, x.T, strict=True)) | {"time": time}
    predictions = learn_log(columns, time="time", predict=table.names, horizons=HORIZONS).predictions
    anomaly, alarm = (
        np.stack([predictions.column(f"{name}.{kind}").to_numpy() for name in table.names], axis=1)
        for kind in ("anomaly", "alarm")
    )
    read = ~np.isnan(x)  # the charts say nothing where no reading came, and an outage is no false alarm
    return {OURS: np.where(read, np.nan_to_num(anomaly), 0.0), **charts(x)}, alarm.astype(bool) & read, faults


def charts(x: Array) -> dict[str, Array]:
    """The z-score and the control charts of readings (T, C); 0 where one is missing, and in the first rows."""
    T, C = x.shape
    scores = {name: np.zeros((T, C)) for name in (Z_SCORE, *CHARTS)}
    λ = np.array(list(CHARTS.values()))[:, None]
    windows, count = np.array([[DAY], [LONG]]), np.zeros(C)
    mean, variance, z = np.zeros((2, C)), np.zeros((2, C)), np.zeros((len(CHARTS), C))
    for t, row in enumerate(x):
        present = ~np.isnan(row)
        value = np.where(present, row, 0.0)
        z = np.where(present, np.where(count == 0, value, z + λ * (value - z)), z)
        deviation = np.sqrt(np.maximum(variance, 1e-12))
        if t >= DAY // 2:
            scores[Z_SCORE][t] = np.where(present, abs(value - mean[0]) / deviation[0], 0.0)
            wide = abs(z - mean[1]) / (deviation[1] * np.sqrt(λ / (2.0 - λ)))
            for name, chart in zip(CHARTS, wide, strict=True):
                scores[name][t] = np.where(present, chart, 0.0)
        count += present
        a = np.where(present, np.maximum(1.0 / np.maximum(count, 1), 1.0 / windows), 0.0)
        off = value - mean
        mean, variance = mean + a * off, (1.0 - a) * (variance + a * off**2)
    return scores


def count_alarms(alarm: NDArray[np.bool_]) -> int:
    """How many alarms begin in these rows.

    >>> count_alarms(np.array([True, False, True] + [False] * 100 + [True]))
    2
    """
    rows = np.flatnonzero(alarm)
    return int(np.sum(np.diff(rows) > TOGETHER)) + 1 if len(rows) else 0


def threshold(scores: Array, allowed: int) -> float:
    """The lowest threshold, going down, before more alarms begin than allowed."""
    falling = np.sort(scores)[::-1]
    lowest = float(falling[0])
    for rank in np.unique(np.geomspace(1, max(len(scores) // 20, 2), 200).astype(int)):
        if count_alarms(scores > falling[rank]) > allowed:
            break
        lowest = float(falling[rank])
    return lowest


def _findings(kind: str, delays: Mapping[str, list[float]]) -> list[Check]:
    """The share of faults that each detector finds; how long that takes is in the note."""
    checks = []
    for name, rows in delays.items():
        finite = np.array(rows)[np.isfinite(rows)]
        late = f"median delay {np.median(finite):g} rows" if len(finite) else "none found"
        faults = "1 fault" if len(rows) == 1 else f"{len(rows)} faults"
        checks.append(finding(f"{kind}: {name}", len(finite) / len(rows), f"share of {faults} found; {late}"))
    return checks


def share_intervals(shares: ArrayLike, count: int) -> tuple[Array, Array]:
    """The ends of the confidence intervals of shares of so many independent cases (Wilson 1927).

    >>> low, high = share_intervals([0.1, 0.5], 10)
    >>> low.round(2).tolist(), high.round(2).tolist()
    ([0.02, 0.24], [0.4, 0.76])
    """
    share = np.asarray(shares, np.float64)
    z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    middle = (share + z * z / (2 * count)) / (1.0 + z * z / count)
    half = z / (1.0 + z * z / count) * np.sqrt(share * (1.0 - share) / count + (z / (2 * count)) ** 2)
    return middle - half, middle + half


def _figure(delays: Mapping[str, Mapping[str, list[float]]]) -> Figure:
    panels, names = [], list(next(iter(delays.values())))
    for kind, by_detector in delays.items():
        x = np.arange(1, max(3, FAULTS[kind] + 1), dtype=float)
        lines = []
        for j, name in enumerate(names):
            delay = np.array(by_detector[name])
            shares = np.array([np.mean(delay < rows) for rows in x], np.float64)
            low, high = share_intervals(shares, len(delay))
            lines.append(Line(x, shares, name, category(j), **look(j), low=low, high=high))
        panels.append(Panel(kind, lines, y_range=(0.0, 1.0)))
    plot = Plot({"all": panels}, "alarms", 2, 1, x=Axis("rows of the fault read", "log"), y=Axis("share found"))
    caption = "At equal false alarms, except the default threshold. Bands: 95% intervals of the share (Wilson)."
    return Figure("Faults found", plot, caption, [Key(category(j), name) for j, name in enumerate(names)])


STUDIES: dict[str, Study] = {
    "true-online-vs-accumulating": TrueOnlineStudy(),
    "step-sizes": StepSizesStudy(),
    "alarms": AlarmsStudy(),
}
