"""The offpolicy suite: what-if questions whose answers are known, with the rules that learn off-policy.

A world is a problem with a behaviour and a target policy; a task is a world and a horizon. Values of finite worlds are
solved exactly; those of mountain car, cart-pole and the acrobot are means of the returns of rollouts. All rules learn
from the same logs, with several rates and all horizons side by side.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import pairwise, product
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from benchmarks.measure import Case, Effort, Gate, gate
from benchmarks.report import Layout, Row
from emphatic import GVF, Learner, problems, rules
from emphatic import features as f
from emphatic.engines.compiled import exact, njit
from emphatic.learning.inputs import Active
from emphatic.problems import MDP
from emphatic.problems.control import NO_TABLES, words_of
from emphatic.problems.worlds import WORLDS, enter, follow, uniform

Array = NDArray[np.float64]
Words = NDArray[np.uint64]

EFFORT = Effort(1, 0.0)
LAYOUT = Layout(
    columns=("rule", "beyond 2 ×, %", "largest, half-widths", "error ÷ best", "target", "met"),
    how="Beyond 2 ×: runs with a prediction θ·φ more than 2 half-widths from the middle of the possible returns; the "
    "largest is in half-widths too. Error: the root mean squared error of the answers, which are θ·φ (of bounded_etd, "
    "clipped to what is possible by the cumulants so far), the mean over the ends of the log's tenths, divided by that "
    "of the best rule and rate of the task in hindsight; of the ratios, of which those above 100 count as 100, the "
    "geometric mean.",
    packages=("numpy", "numba"),
)

HORIZONS = (5, 10, 50, 100)
GAMMAS = 1.0 - 1.0 / np.array(HORIZONS)
#: α times the mean of φ·φ. The best in hindsight is chosen from all of them; tables show those of ``SHOWN``.
RATES = (0.01, 0.03, 0.1, 0.3, 1.0)
SHOWN = (0.1, 0.3)
BOUNDED = "bounded_etd"
RULES = ("true_online_etd", "true_online_etd_beta", "tree_backup", "tdrc", "vtrace", BOUNDED)
#: β of true_online_etd_beta.
BETA = 0.3
#: One setting for each learner: all rates with the first horizon, then with the next.
GAMMA = np.repeat(GAMMAS, len(RATES))
RATE = np.tile(RATES, len(HORIZONS))
LAMBDA = np.repeat([GVF("x", horizon=horizon).default_lambda(1.0 - 1.0 / horizon) for horizon in HORIZONS], len(RATES))
#: A ratio of errors that counts no further.
WORST = 100.0
#: Tables do not say how much larger than this a prediction was.
SIZEABLE = 1_000.0
#: The seeds of runs begin here; those of problems and of the states that are judged are smaller.
FIRST_SEED = 1000


def cases(quick: bool) -> Sequence[Case]:
    """All worlds; ``quick`` takes one of each family, and a short log."""
    if quick:
        families = {world.family: world for world in reversed(worlds())}
        return [Checks(), WhatIf(tuple(families.values()), seeds=1, steps=500, jobs=1)]
    return [Checks(), WhatIf(worlds(), seeds=10, steps=20_000, jobs=os.cpu_count() or 1)]


@dataclass(frozen=True)
class Log:
    """Steps of behaviour; ``continues`` is 0 where an episode ends, else 1."""

    phi: Array | Active
    phi_next: Array | Active
    R: Array
    continues: Array
    rho: Array
    pi: Array
    interest: Array
    first: NDArray[np.bool_]

    def rows(self, begin: int, end: int) -> Log:
        return Log(*(getattr(self, field.name)[begin:end] for field in fields(self)))


@dataclass(frozen=True)
class Truth:
    """What predictions of a world are judged by: features (S, n) of states, their values (horizons, S) and weights.

    ``low`` and ``high`` are the least and the largest possible cumulant.
    """

    Phi: Array
    values: Array
    weights: Array
    low: float
    high: float

    @property
    def norm(self) -> float:
        """The mean of φ·φ."""
        return float(self.weights @ (self.Phi**2).sum(axis=1))

    def possible(self) -> tuple[Array, Array]:
        """The least and the largest return of each learner's question."""
        return min(0.0, self.low) / (1.0 - GAMMA), max(0.0, self.high) / (1.0 - GAMMA)


class World(Protocol):
    """A problem with two policies, and features."""

    @property
    def name(self) -> str: ...

    @property
    def family(self) -> str: ...

    def truth(self) -> Truth: ...

    def log(self, seed: int, steps: int) -> Log: ...


# ------------------------------------------------------------------------------------------------ finite worlds


@dataclass(frozen=True, eq=False)
class Finite:
    """An MDP, whose γ is replaced by that of each horizon wherever it is not 0."""

    name: str
    family: str
    mdp: MDP

    def truth(self) -> Truth:
        mdp, weights = self.mdp, self.mdp.objective
        values = [mdp.replace(gamma=gamma * (mdp.gamma > 0.0)).v_pi for gamma in GAMMAS]
        cumulants = mdp.R[mdp.P > 0.0]
        return Truth(mdp.Phi, np.array(values), weights / weights.sum(), cumulants.min(), cumulants.max())

    def log(self, seed: int, steps: int) -> Log:
        stream = self.mdp.simulate(steps, seed=seed)
        interest, first = np.asarray(stream.I), np.zeros(steps, np.bool_)
        first[1:] = stream.gamma_next[:-1] == 0.0
        continues = (stream.gamma_next > 0.0).astype(np.float64)
        Phi, Phi_next = stream.Phi[:-1], stream.Phi[1:]
        return Log(Phi, Phi_next, stream.R, continues, stream.rho, stream.pi, interest, first)


def literature() -> Iterator[Finite]:
    """The θ → 2θ problem and Baird's, with rewards that are not all 0; collision; three tasks of the Four Rooms."""
    two = problems.two_theta()
    yield Finite("θ → 2θ", "literature", two.replace(R=np.broadcast_to([[-0.8], [0.2]], (2, 2))))
    baird = problems.baird()
    rewards = np.random.default_rng(0).uniform(-1.0, 1.0, (baird.S, baird.A))
    yield Finite("Baird's counterexample", "literature", baird.replace(R=rewards))
    for seed in range(3):
        yield Finite(f"collision, features {seed}", "literature", problems.collision(seed=seed))
    for task in (0, 3, 6):
        yield Finite(f"Four Rooms, task {task}", "literature", problems.four_rooms(task))


def garnets() -> Iterator[Finite]:
    """Random MDPs, whose target policies prefer one action in each state."""
    for seed in range(3):
        mdp = problems.garnet(seed=seed, n=10 if seed else None)
        favourite = np.random.default_rng(seed).integers(mdp.A, size=mdp.S)
        other = (favourite + 1) % mdp.A
        one, evenly = np.eye(mdp.A), np.full((mdp.S, mdp.A), 1.0 / mdp.A)
        policies = {
            "one action, random behaviour": (one[favourite], evenly),
            "one action with .7, random behaviour": (0.6 * one[favourite] + 0.4 * evenly, evenly),
            "one action, behaviour prefers another": (one[favourite], 0.7 * one[other] + 0.3 * evenly),
        }
        for name, (pi, mu) in policies.items():
            features = "tabular" if mdp.n == mdp.S else f"{mdp.n} features"
            yield Finite(f"garnet {seed}, {features}, {name}", "garnet", mdp.replace(pi=pi, mu=mu))


# ------------------------------------------------------------------------------------------------ classic control

#: The worlds by number, as in ``problems.worlds``, which has no cart-pole.
CAR, ACROBOT, CART_POLE = WORLDS.index("mountain_car"), WORLDS.index("acrobot"), len(WORLDS)
#: What a policy prefers: its first action, the action taken before, or that of a simple controller.
FIRST, SAME, CONTROLLER = 0, 1, 2


class Policy(NamedTuple):
    """An action is the preferred one with probability ``firmness``, and otherwise any, all equally likely."""

    choice: int
    firmness: float


class Body(NamedTuple):
    """A world of control: its actions, its time limit, the ranges of its coordinates and those of its cumulant."""

    name: str
    actions: int
    limit: int
    ranges: tuple[tuple[float, float], ...]
    low: float
    high: float


BODIES = {
    CAR: Body("mountain car", 3, 200, problems.MountainCar.ranges, -1.2, 0.5),
    CART_POLE: Body("cart-pole", 2, 500, ((-2.4, 2.4), (-3.0, 3.0), (-0.21, 0.21), (-3.5, 3.5)), 1.0, 1.0),
    ACROBOT: Body("acrobot", 3, 500, problems.Acrobot.ranges, -1.0, 1.0),
}
#: A step of behaviour; π and ρ are those of its action.
STEP = np.dtype(
    [
        ("place", "f8", 4), ("arrival", "f8", 4), ("cumulant", "f8"),
        ("pi", "f8"), ("rho", "f8"), ("continues", "f8"), ("first", "?"),
    ]
)  # fmt: skip


@exact
def begin(world: int, place: Array, random: Words) -> None:
    """Begin an episode."""
    if world == CART_POLE:
        for i in range(4):
            place[i] = 0.1 * uniform(random) - 0.05
    else:
        enter(world, NO_TABLES, place, random)


@exact
def move(world: int, place: Array, random: Words, action: int) -> bool:
    """Take an action; whether the episode has ended. The cart-pole is that of Barto, Sutton & Anderson (1983)."""
    if world != CART_POLE:
        return bool(follow(world, NO_TABLES, 0, place, random, action)[1])
    sine, cosine = np.sin(place[2]), np.cos(place[2])
    push = (10.0 * (2 * action - 1) + 0.05 * place[3] ** 2 * sine) / 1.1
    turning = (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3.0 - 0.1 * cosine**2 / 1.1))
    acceleration = push - 0.05 * turning * cosine / 1.1
    place[0] += 0.02 * place[1]
    place[1] += 0.02 * acceleration
    place[2] += 0.02 * place[3]
    place[3] += 0.02 * turning
    return bool(abs(place[0]) > 2.4 or abs(place[2]) > np.pi / 15.0)


@exact
def cumulant(world: int, place: Array) -> float:
    """What is predicted: the car's position, that the pole stands, the height of the acrobot's joint."""
    if world == CAR:
        return float(place[0])
    return 1.0 if world == CART_POLE else -np.cos(place[0])


@exact
def preferred(choice: int, world: int, place: Array, before: int) -> int:
    """The action that a policy prefers."""
    if choice == FIRST:
        return 0
    if choice == SAME:
        return before
    if world == CART_POLE:
        return 1 if place[2] + 0.5 * place[3] > 0.0 else 0
    speed = place[1] if world == CAR else place[2] + place[3]
    return 2 if speed >= 0.0 else 0


@exact
def draw(policy: Policy, preference: int, actions: int, random: Words) -> int:
    """An action of the policy."""
    if uniform(random) < policy.firmness:
        return preference
    return int(uniform(random) * actions)


def wander(
    world: int, actions: int, limit: int, behaviour: Policy, target: Policy, random: Words, log: NDArray[np.void]
) -> None:
    """Fill ``log``, of dtype ``STEP``, with steps of behaviour."""
    place = np.zeros(4)
    left, action = 0, 0
    for t in range(len(log)):
        step = log[t]
        step.first = left == 0
        if left == 0:
            begin(world, place, random)
            left, action = limit, 0
        usual = preferred(behaviour.choice, world, place, action)
        wanted = preferred(target.choice, world, place, action)
        action = draw(behaviour, usual, actions, random)
        step.pi = (1.0 - target.firmness) / actions + target.firmness * (action == wanted)
        step.rho = step.pi / ((1.0 - behaviour.firmness) / actions + behaviour.firmness * (action == usual))
        step.place[:] = place
        ended = move(world, place, random, action)
        step.arrival[:] = place
        step.cumulant = cumulant(world, place)
        step.continues = 0.0 if ended else 1.0
        left = 0 if ended else left - 1


def roll_out(
    world: int, actions: int, target: Policy, starts: Array, gammas: Array, rolls: int, steps: int, random: Words
) -> Array:
    """The mean return of each γ from each start, (len(gammas), len(starts)), over ``rolls`` episodes of the target."""
    returns, discount, place = np.zeros((len(gammas), len(starts))), np.empty(len(gammas)), np.empty(4)
    for i in range(len(starts)):
        for _ in range(rolls):
            place[:] = starts[i]
            discount[:] = 1.0 / rolls
            for _ in range(steps):
                preference = preferred(target.choice, world, place, 0)
                ended = move(world, place, random, draw(target, preference, actions, random))
                returns[:, i] += discount * cumulant(world, place)
                discount *= gammas
                if ended:
                    break
    return returns


@cache
def compiled(function: Any) -> Any:
    """A kernel, compiled when it is first called."""
    return njit(function, error_model="numpy")


@dataclass(frozen=True)
class Control:
    """Mountain car, cart-pole or the acrobot, with tiles or soft bins."""

    world: int
    behaviour: str
    target: str
    features: str

    family = "control"
    POLICIES: ClassVar = {
        "random": Policy(FIRST, 0.0),
        "first action": Policy(FIRST, 1.0),
        "first action with .6": Policy(FIRST, 0.6),
        "controller": Policy(CONTROLLER, 1.0),
        "controller with .7": Policy(CONTROLLER, 0.7),
        "repeating with .7": Policy(SAME, 0.7),
    }

    @property
    def body(self) -> Body:
        return BODIES[self.world]

    @property
    def name(self) -> str:
        return f"{self.body.name}, {self.features}, target: {self.target}, behaviour: {self.behaviour}"

    def wander(self, seed: int, steps: int) -> NDArray[np.void]:
        log, body = np.zeros(steps, STEP), self.body
        policies = self.POLICIES[self.behaviour], self.POLICIES[self.target]
        compiled(wander)(self.world, body.actions, body.limit, *policies, words_of(seed), log)
        return log

    def returns(self, starts: Array, rolls: int, seed: int) -> Array:
        """The mean return of each horizon from each start; what lies beyond 10 of the longest horizons is left out."""
        target = self.POLICIES[self.target]
        steps = 10 * max(HORIZONS)
        return np.asarray(
            compiled(roll_out)(self.world, self.body.actions, target, starts, GAMMAS, rolls, steps, words_of(seed))
        )

    def truth(self) -> Truth:
        log = self.wander(1, 40_000)
        starts = log["place"][np.random.default_rng(2).choice(len(log), 300, replace=False)]
        certain = self.POLICIES[self.target].firmness == 1.0
        values = self.returns(starts, 1 if certain else 200, seed=3)
        coder = self.coder()
        active, Phi = coder(starts[:, : len(self.body.ranges)]), np.zeros((len(starts), coder.n))
        np.put_along_axis(Phi, active.indices, active.values, axis=1)
        return Truth(Phi, values, np.full(len(starts), 1.0 / len(starts)), self.body.low, self.body.high)

    def log(self, seed: int, steps: int) -> Log:
        log, coder, count = self.wander(seed, steps), self.coder(), len(self.body.ranges)
        phi, phi_next = (coder(np.ascontiguousarray(log[name][:, :count])) for name in ("place", "arrival"))
        R, continues, rho, pi = (np.ascontiguousarray(log[name]) for name in ("cumulant", "continues", "rho", "pi"))
        return Log(phi, phi_next, R, continues, rho, pi, np.ones(steps), np.ascontiguousarray(log["first"]))

    def coder(self) -> f.Features:
        """A bias, and 8 tilings of each pair of coordinates, or 10 soft bins for each coordinate."""
        ranges = self.body.ranges
        names = [f"x{i}" for i in range(len(ranges))]
        pairs = [slice(i, i + 2) for i in range(0, len(ranges), 2)]
        parts: list[f.Part] = [f.Bias()]
        if self.features == "tiles":
            parts += [f.Tiles(names[pair], range=ranges[pair], spacing="equal") for pair in pairs]
        else:
            parts.append(f.SoftBins("*", range=ranges, bins=10, spacing="equal"))
        return f.Features(parts).warm_up(np.empty((0, len(names))), names=names)


def controls() -> Iterator[Control]:
    """Each body with five pairs of policies, of which two also with soft bins."""
    for world in BODIES:
        for target in ("first action", "controller"):
            for features in ("tiles", "soft bins"):
                yield Control(world, "random", target, features)
        yield Control(world, "random", "first action with .6", "tiles")
        yield Control(world, "repeating with .7", "first action", "tiles")
        yield Control(world, "controller with .7", "first action", "tiles")


def worlds() -> tuple[World, ...]:
    """All worlds. With the horizons they are the tasks; none is left out for how a rule does in it."""
    return (*literature(), *garnets(), *controls())


# ------------------------------------------------------------------------------------------------ runs


@dataclass(frozen=True)
class Outcome:
    """Of runs: the largest |θ·φ − middle| in half-widths, the largest of answers, and the errors; (…, horizons, rates).

    A run that overflows has infinities.
    """

    largest: Array
    largest_answer: Array
    error: Array

    @staticmethod
    def stack(outcomes: Sequence[Outcome]) -> Outcome:
        """With a new axis in front."""
        return Outcome(*(np.stack([getattr(one, field.name) for one in outcomes]) for field in fields(Outcome)))

    def select(self, *index: Any) -> Outcome:
        """The runs at an index of the leading axes."""
        return Outcome(*(getattr(self, field.name)[index] for field in fields(self)))


def learn(rule: str, log: Log, truth: Truth, engine: str = "auto") -> tuple[Learner, Outcome]:
    """Learners of all horizons and rates, after the log, and what came of them."""
    low, high = truth.possible()
    middle, half = 0.5 * (low + high), 0.5 * (high - low)
    learner = Learner(rule, truth.Phi.shape[1], len(GAMMA), engine=engine)
    steps = len(log.R)
    least, most = np.minimum.accumulate(np.minimum(log.R, 0.0)), np.maximum.accumulate(np.maximum(log.R, 0.0))
    ends = np.linspace(0, steps, 11).astype(int)
    raw, answered, error = (np.zeros(len(GAMMA)) for _ in range(3))
    target = np.repeat(truth.values, len(RATES), axis=0)
    for begin, end in pairwise(ends):
        # the returns that are possible by the cumulants so far, which only the bounded rule knows of
        so_far = (extreme[begin:end, None] / (1.0 - GAMMA) for extreme in (least, most))
        bounds = tuple(so_far) if rule == BOUNDED else (np.array([[-np.inf]]), np.array([[np.inf]]))
        with np.errstate(all="ignore"):
            predictions = learner.run(**inputs(rule, log.rows(begin, end), truth.norm, *bounds))
            answers = np.clip(predictions, *bounds)
            raw = np.maximum(raw, abs(predictions - middle).max(axis=0) / half)
            answered = np.maximum(answered, abs(answers - middle).max(axis=0) / half)
            values = np.clip(learner.theta @ truth.Phi.T, bounds[0][-1][:, None], bounds[1][-1][:, None])
            error += 0.1 * np.sqrt((values - target) ** 2 @ truth.weights)
    shape = len(HORIZONS), len(RATES)
    # (products of weights near overflow may be ∞ − ∞)
    columns = [np.where(learner.frozen | np.isnan(column), np.inf, column) for column in (raw, answered, error)]
    return learner, Outcome(*(column.reshape(shape) for column in columns))


def inputs(rule: str, log: Log, norm: float, low: Array, high: Array) -> dict[str, Any]:
    """The arguments of ``run``: the defaults of a question with a policy. Nothing is learned where interest is 0."""
    of = rules.get(rule)
    interest = log.interest[:, None] * (1.0 - GAMMA if of.emphasis else np.ones_like(GAMMA))
    extra = {"pi": log.pi, "low": low, "high": high} | ({"decay": BETA} if of.emphasis == "decay" else {})
    return {
        "Phi": log.phi,
        "Phi_next": log.phi_next,
        "first": log.first,
        "R": log.R,
        "gamma_next": log.continues[:, None] * GAMMA,
        "alpha": (log.interest > 0.0)[:, None] * (RATE / norm),
        "lambda_": LAMBDA,
        "rho": log.rho,
        "on_divergence": "freeze",
        **({"I": interest} if of.interest else {}),
        **{name: value for name, value in extra.items() if name in of.extra},
    }


def measure(world: World, seeds: int, steps: int) -> Outcome:
    """All runs of a world, (rules, seeds, horizons, rates)."""
    truth, logs = world.truth(), [world.log(FIRST_SEED + seed, steps) for seed in range(seeds)]
    return Outcome.stack([Outcome.stack([learn(rule, log, truth)[1] for log in logs]) for rule in RULES])


@dataclass(frozen=True)
class WhatIf:
    """All runs, and the tables of all horizons and of each."""

    worlds: tuple[World, ...]
    seeds: int
    steps: int
    jobs: int

    def gates(self) -> Iterator[Gate]:
        return iter(())  # those of ``Checks``

    def rows(self, effort: Effort) -> Iterator[Row]:
        print(f"{len(self.worlds) * len(HORIZONS)} tasks, with horizons {HORIZONS}:")
        print("\n".join(world.name for world in self.worlds), flush=True)
        parallel = Parallel(n_jobs=self.jobs, batch_size=1)
        runs = Outcome.stack(parallel(delayed(measure)(world, self.seeds, self.steps) for world in self.worlds))
        ratio = error_ratios(runs.error)
        count = len(self.worlds) * self.seeds
        total = f"all {count * len(HORIZONS):,} runs: tasks {len(self.worlds) * len(HORIZONS)}, seeds {self.seeds}"
        yield from wanted_rows(runs, ratio)
        yield from table(total, runs, ratio)
        for h, horizon in enumerate(HORIZONS):
            of = np.s_[:, :, :, h : h + 1]
            yield from table(f"horizon {horizon}: {count:,} runs", runs.select(*of), ratio[of])


def error_ratios(error: Array) -> Array:
    """Errors (worlds, rules, seeds, horizons, rates) divided by that of the best rule and rate of the task."""
    best = error.mean(axis=2).min(axis=(1, 3))
    return np.asarray(np.minimum(error / best[:, None, None, :, None], WORST))


def wanted_rows(runs: Outcome, ratio: Array) -> Iterator[Row]:
    """What is wanted of the bounded rule with the rate of the library's default."""
    of = np.s_[:, RULES.index(BOUNDED), :, :, RATES.index(0.3)]
    bounded = runs.select(*of)
    beyond = {
        "answers outside the possible returns, % of runs": (bounded.largest_answer > 1.0 + 1e-9, 0.0),
        "predictions θ·φ beyond 2 ×, % of runs": (bounded.largest > 2.0, 0.5),
    }
    section = f"{BOUNDED}, rate 0.3: what is wanted"
    for what, (share, most) in beyond.items():
        yield Row(section, what, Checks.NAMES, ratio=100.0 * float(share.mean()), at_most=most)
    yield Row(section, "error ÷ best", Checks.NAMES, ratio=geometric_mean(ratio[of]), at_most=1.7)


def table(section: str, runs: Outcome, ratio: Array) -> Iterator[Row]:
    """One row for each rule and rate."""
    for (r, rule), rate in product(enumerate(RULES), SHOWN):
        of = np.s_[:, r, :, :, RATES.index(rate)]
        largest = float(runs.largest[of].max())
        yield Row(
            section,
            f"{rule}, rate {rate}",
            Checks.NAMES,
            ours=100.0 * float((runs.largest[of] > 2.0).mean()),
            unit="",
            alternative=largest if largest <= SIZEABLE else None,
            versus="" if largest <= SIZEABLE else f"> {SIZEABLE:,.0f}",
            ratio=geometric_mean(ratio[of]),
        )


def geometric_mean(ratio: Array) -> float:
    return float(np.exp(np.log(ratio).mean()))


# ------------------------------------------------------------------------------------------------ gates


class Checks:
    """The bounded rule beside the reference engine; true values in two ways; the cart-pole's equations of motion."""

    NAMES = (
        f"{BOUNDED}: θ by the dense engine",
        f"{BOUNDED}: θ by the chunked engine",
        "values of a garnet: solved, and by the returns of its target policy",
        "values of collision: solved, and by the returns of its target policy",
        "returns of mountain car: compiled, and step by step",
        "cart-pole: the equations of motion",
    )

    def gates(self) -> Iterator[Gate]:
        dense, chunked, random, certain, stepped, motion = self.NAMES
        _, garnet, *_ = garnets()  # (its target policy takes every action, and so visits every state)
        log, truth = garnet.log(FIRST_SEED, 1_000), garnet.truth()
        theta = {name: learn(BOUNDED, log, truth, name)[0].theta for name in ("reference", "dense", "chunked")}
        yield gate(dense, theta["dense"], theta["reference"])
        yield gate(chunked, theta["chunked"], theta["reference"])
        yield gate(random, self.sampled_values(garnet.mdp)[0], truth.values[0], 0.05)
        collision = problems.collision()  # (in which the returns of the target policy are certain)
        certain_values = Finite("collision", "literature", collision).truth().values
        yield gate(certain, self.sampled_values(collision), certain_values)
        yield gate(stepped, *self.car_returns(), 1e-3)
        yield gate(motion, *self.forces(), 1e-9)

    def rows(self, effort: Effort) -> Iterator[Row]:
        return iter(())

    @staticmethod
    def sampled_values(mdp: MDP, steps: int = 500_000) -> Array:
        """The mean return after each visit of a state under the target policy, (horizons, S)."""
        stream = mdp.replace(mu=mdp.pi).simulate(steps, seed=FIRST_SEED)
        returns = np.zeros((steps + 1, len(GAMMAS)))
        for t in reversed(range(steps)):
            returns[t] = stream.R[t] + GAMMAS * (stream.gamma_next[t] > 0.0) * returns[t + 1]
        visited = stream.states[:-1_000]  # (later returns are not complete)
        totals = [np.bincount(visited, column, mdp.S) for column in returns[: len(visited)].T]
        return np.array(totals) / np.bincount(visited, minlength=mdp.S)

    @staticmethod
    def car_returns() -> tuple[Array, Array]:
        """Returns of "always reverse" from three places, of each horizon."""
        control = Control(CAR, "random", "first action", "tiles")
        starts = control.wander(FIRST_SEED, 100)["place"][::40]
        want = np.zeros((len(GAMMAS), len(starts)))
        for i, start in enumerate(starts):
            car = problems.MountainCar()
            car.reset()
            car.place[:] = start
            for t in range(2_000):
                (position, _), *_ = car.step(0)
                want[:, i] += GAMMAS**t * position
        return control.returns(starts, 1, seed=0), want

    @staticmethod
    def forces() -> tuple[Array, Array]:
        """The push of −10 N on the cart, and the weight that turns the pole, by the accelerations of a step.

        (M + m)ẍ + ml(θ̈ cos θ − θ̇² sin θ) = F and (4/3) l θ̈ + ẍ cos θ = g sin θ with M = 1, m = 0.1 and l = 0.5.
        """
        log = Control(CART_POLE, "first action", "first action", "tiles").wander(FIRST_SEED, 100)
        _, _, angle, speed = log["place"].T
        _, acceleration, _, turning = (log["arrival"] - log["place"]).T / 0.02
        push = 1.1 * acceleration + 0.05 * (turning * np.cos(angle) - speed**2 * np.sin(angle))
        weight = 2.0 / 3.0 * turning + acceleration * np.cos(angle)
        return np.array([push, weight]), np.array([np.full(len(log), -10.0), 9.8 * np.sin(angle)])
