"""Questions with a policy by default: bounded_etd within what is possible; support; and warnings of what is not."""

from __future__ import annotations

import re
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import emphatic
from emphatic import GVF, CheckpointError, DivergenceWarning, Horde, Policy
from emphatic import features as f
from emphatic.nexting.cluster import local
from tests.hordes.test_horde import rewritten

gymnasium = pytest.importorskip("gymnasium", reason="the extra 'gym' is not installed")

from emphatic.gymnasium import LearnGVFs, LearnGVFsVector, tiles  # noqa: E402

Array = NDArray[np.float64]
LEFT, RIGHT = Policy({0: 1.0}), Policy({1: 1.0})
RANGES = {"o0": (-2.4, 2.4), "o1": (-3.0, 3.0), "o2": (-0.21, 0.21), "o3": (-3.5, 3.5)}
#: Cumulants on both sides of 0, of one sign, growing, paid in the end; and γ that varies or is 1.
QUESTIONS = [
    GVF("o2", horizon=20, policy=LEFT, name="angle"),
    GVF("o0 + o1", gamma=0.7, policy=RIGHT, lambda_=0.4, name="cart"),
    GVF("reward", gamma=0.9, policy=Policy({0: 0.25, 1: 0.75}), interest="0.1 + abs(o2)", terminal=-3.0, name="paid"),
    GVF("reward", gamma=1.0, policy=LEFT, lambda_=0.8, name="until the end"),
    GVF("o3", gamma="0.9 * (o2 > 0)", policy=RIGHT, lambda_=0.5, name="varying"),
]
BOUNDED = np.array([True, True, True, False, False])


def cart(limit: int = 40) -> Any:
    return gymnasium.make("CartPole-v1", max_episode_steps=limit)


def coder() -> f.Features:
    space = gymnasium.make("CartPole-v1").observation_space
    return tiles(space, [["o0", "o1"], ["o2", "o3"]], ranges=RANGES, tiles=4, tilings=4)


def drive(env: Any, steps: int, seed: int = 0) -> list[dict[str, Any]]:
    """What each step returned."""
    rng, infos = np.random.default_rng(seed), []
    env.reset(seed=seed)
    for _ in range(steps):
        env.mu = 0.6 if (action := int(rng.random() < 0.4)) == 0 else 0.4
        *_, terminated, truncated, info = env.step(action)
        infos.append(info)
        if terminated or truncated:
            env.reset()
    return infos


def possible(R: Array, gamma: Any) -> tuple[Array, Array]:
    """The least and the most return by all cumulants up to each step, in plain terms."""
    return (
        np.array([min(0.0, R[: t + 1].min()) / (1 - gamma) for t in range(len(R))]),
        np.array([max(0.0, R[: t + 1].max()) / (1 - gamma) for t in range(len(R))]),
    )


def support(gamma: float, *streams: Array) -> float:
    """(Σw)²/Σw² as it is defined, with a product for each step of each stream."""
    h = round(1 / (1 - gamma))
    w = [np.prod(rho[max(0, t - h + 1) : t + 1]) for rho in streams for t in range(len(rho))]
    return float(np.sum(w) ** 2 / np.sum(np.square(w))) if any(w) else 0.0


# ------------------------------------------------------------------------------------------------ which rule


def test_a_policy_decides_which_rule_a_question_has_by_default() -> None:
    ask = [GVF("x", horizon=3), GVF("x", horizon=4, policy=LEFT, name="a"), GVF("x", horizon=5, policy=RIGHT, name="b")]
    maker = f.Features([f.Bias(), f.SoftBins("x", bins=3, range=(0, 1))])
    horde = Horde(ask, maker, mu=0.5).prepare(["x"])
    assert [learner.rule.name for learner in horde.learners] == ["true_online_etd", "bounded_etd"]
    assert [learner.K for learner in horde.learners] == [1, 2]
    assert [group.setup.rates.tolist() for group in horde.groups] == [[0.1], [0.3, 0.3]]
    assert [share.tolist() for share in horde.shares] == [[0], [1, 2]]
    assert horde.makers[0] is maker
    assert horde.makers[1] is not maker
    assert horde.rule is None
    assert "'true_online_etd', 'bounded_etd', rate=None" in repr(horde)
    for name in ("learner", "features"):
        with pytest.raises(RuntimeError, match="their own features, or their own rules: see"):
            getattr(horde, name)
    assert Horde(ask[:1], maker).rule == "true_online_etd"
    only = Horde(ask[1:], maker, mu=0.5).prepare(["x"])
    assert (only.rule, only.rate, only.learner.K) == ("bounded_etd", None, 2)


@pytest.mark.parametrize("rule", ["td", "true_online_etd", "bounded_etd", emphatic.rules.get("true_online_etd")])
def test_a_rule_that_is_given_counts_for_every_question(rule: Any) -> None:
    ask = [GVF("x", horizon=3), GVF("x", horizon=4, policy=LEFT, name="a")]
    horde = Horde(ask, f.Features([f.Bias()]), rule, mu=0.5).prepare(["x"])
    assert horde.learner.rule.name == getattr(rule, "name", rule)
    assert horde.setup.rates.tolist() == [0.1, 0.3]


@pytest.mark.parametrize(
    ("given", "factors"),
    [
        ({}, (0.1, 0.3)),
        ({"rate": 0.7}, (0.7, 0.7)),
        ({"alpha": 0.02}, (0.02, 0.02)),
        ({"alpha": [0.01, 0.02, 0.03]}, (0.01, 0.02)),
        ({"alpha": 0.02, "rate": 0.5}, (0.01, 0.01)),
        ({"rule": "true_online_td", "stepsize": "auto"}, (1.0,)),
        ({"rule": "true_online_td", "stepsize": "auto", "rate": 0.5}, (0.5,)),
    ],
)
def test_an_alpha_or_a_rate_that_is_given_counts_for_every_question(given: dict[str, Any], factors: Any) -> None:
    """α of the first question of each learner."""
    ask = [GVF("reward", gamma=0.9), *QUESTIONS[:2]]
    (horde,) = LearnGVFs(cart(), ask, coder(), **given).episodes.hordes
    norm = 1.0 if {"alpha", "stepsize"} & given.keys() else horde.makers[0].norm
    alphas = [group._alpha[0, 0] for group in horde.groups]
    np.testing.assert_allclose(alphas, np.array(factors) / norm, rtol=1e-15)


@pytest.mark.parametrize("rule", [None, "td"])
def test_alpha_multiplies_the_usual_rates_in_a_horde(rule: str | None) -> None:
    ask = [GVF("x", horizon=3), GVF("x", horizon=4, policy=LEFT, name="a")]
    horde = Horde(ask, f.Features([f.Bias()]), rule, alpha=0.5, mu=0.5).prepare(["x"])
    assert np.concatenate([group._alpha[0] for group in horde.groups]).tolist() == [0.05, 0.15]


# ------------------------------------------------------------------------------------------------ what is possible


@pytest.mark.parametrize("every", [1, 6])
@pytest.mark.parametrize("engine", ["sparse", "dense"])
def test_the_answers_are_those_of_the_rule_within_the_range_so_far(engine: str, every: int) -> None:
    env = LearnGVFs(cart(), QUESTIONS, coder(), record=True, every=every, engine=engine)
    infos = drive(env, 500)
    log = env.log()
    gamma = (~log["first"])[:, None] * np.array([1 - 1 / 20, 0.7, 0.9, 0.0, 0.0])
    R, low, high = log["R"], np.full((len(log["R"]), 5), -np.inf), np.full((len(log["R"]), 5), np.inf)
    for q in np.flatnonzero(BOUNDED):
        low[:, q], high[:, q] = possible(R[:, q], gamma[0, q])
    cut = np.broadcast_to(log["first"][:, None], R.shape)
    np.testing.assert_allclose(np.where(cut, 0.0, log["low"]), np.where(cut, 0.0, low), rtol=1e-14)
    np.testing.assert_allclose(np.where(cut, 0.0, log["high"]), np.where(cut, 0.0, high), rtol=1e-14)
    assert (np.diff(high[:, 0]) > 0).any()
    hand, (horde,) = (
        emphatic.Learner("bounded_etd", env.episodes.features.n, 5, engine="reference"),
        env.episodes.hordes,
    )
    names = [name for name in log if name not in ("Phi", "Phi_next", "first", "low", "high")]
    answers = []
    for t in range(len(R)):
        if log["first"][t]:
            hand.cut()
            continue
        phi, phi_next = log["Phi"][t], log["Phi_next"][t]
        now = {name.replace("Phi", "phi"): log[name][t] for name in names}
        hand.learn(phi=phi, phi_next=phi_next, low=low[t], high=high[t], **now)
        over = log["gamma_next"][t, 0] == 0.0
        answers.append(np.zeros(5) if over else np.clip(hand.predict(phi_next), low[t], high[t]))
    np.testing.assert_allclose(env.episodes.theta, hand.theta, rtol=1e-9, atol=1e-12)
    given = {t: info["predictions"] for t, info in enumerate(infos) if "predictions" in info}
    np.testing.assert_allclose([*given.values()], [answers[t] for t in given], rtol=1e-9, atol=1e-11)
    assert len(given) >= 500 // every
    least, most = horde.possible
    np.testing.assert_allclose(least, low[-1], rtol=1e-14)
    np.testing.assert_allclose(most, high[-1], rtol=1e-14)


def table(T: int = 400, missing: bool = False) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    x = np.cumsum(rng.normal(size=T)) * 0.3 + 5.0
    x[T // 2] += 40.0
    if missing:
        x[[7, 50, 51]] = np.nan
    return {"x": x, "y": np.abs(rng.normal(size=T)), "move": (rng.random(T) < 0.4).astype(float)}


WHAT_IF = [
    GVF("x", horizon=6, policy=Policy({1: 1.0}, "move", 0.4), name="if moved"),
    GVF("y", gamma=0.95, policy=Policy({0: 0.5, 1: 0.5}, "move", {0: 0.6, 1: 0.4}), name="if even"),
]
PLAIN = [GVF("x", horizon=6), GVF("y", gamma="0.9 * (y < 1)", name="varying")]


def parts() -> f.Features:
    return f.Features([f.Bias(), f.SoftBins("x", bins=4), f.SoftBins(f.Trace("y", steps=3), bins=3)])


@pytest.mark.parametrize(("scaled", "centred"), [(True, True), (False, True), (True, False), (False, False)])
@pytest.mark.parametrize(("given", "rate"), [(None, 0.3), (0.5, 0.5)])
def test_answers_in_any_unit_are_those_of_the_rule_on_a_log(
    scaled: bool, centred: bool, given: float | None, rate: float
) -> None:
    data, first = table(), np.isin(np.arange(400), [0, 150, 151, 300])
    horde = Horde(WHAT_IF, parts(), rate=given, scaled=scaled, centred=centred, engine="reference").warm_up(data, 100)
    answers = horde.run(data, first=first)
    values = np.stack([data[name] for name in ("x", "y", "move")], axis=1)
    for q, (name, g) in enumerate((("x", 1 - 1 / 6), ("y", 0.95))):
        maker = parts().warm_up(values[:100], names=["x", "y", "move"])  # (ranges may grow: one for each pass)
        base = data[name][:100].mean() if centred else 0.0
        R = (1 - g) * (data[name] - base) if centred else data[name]
        ratio = np.array([[0.0, 2.5], [0.5 / 0.6, 0.5 / 0.4]])[q][data["move"].astype(int)]
        low, high = possible(np.where(first, 0.0, R), g)
        expected = np.empty(400)
        learner = emphatic.Learner("bounded_etd", maker.n)
        for begin, end in pairwise([*np.flatnonzero(first).tolist(), 400]):
            maker.cut()
            learner.cut()
            Phi = dense(maker, values[begin:end])
            for t in range(begin, end):
                if t > begin:
                    learner.learn(
                        rate / maker.norm, 1 - g, max(0.0, min(0.9, 1 - 4 * (1 - g))), Phi[t - begin - 1], ratio[t - 1],
                        R[t], Phi[t - begin], g, low=low[t], high=high[t],
                    )  # fmt: skip
                expected[t] = np.clip(learner.predict(Phi[t - begin]), low[t], high[t])
        unit = (1.0 if scaled else 1 / (1 - g)) if centred else (1 - g if scaled else 1.0)
        np.testing.assert_allclose(answers[:, q], (expected + base) * unit, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(horde.possible[0][q], (low[-1] + base) * unit, rtol=1e-12)
        np.testing.assert_allclose(horde.possible[1][q], (high[-1] + base) * unit, rtol=1e-12)
        of_steps = np.append(np.nan, ratio[:-1])[~first]  # ρ of a row is that of the step that begins in it
        assert horde.support[q] == pytest.approx(support(g, of_steps), rel=1e-12)


def dense(maker: f.Features, values: Array) -> Array:
    phi, out = maker(values), np.zeros((len(values), maker.n))
    for t in range(len(values)):
        out[t, phi.indices[t][phi.indices[t] >= 0]] = phi.values[t][phi.indices[t] >= 0]
    return out


def test_answers_of_weights_of_single_precision_lie_within_the_range() -> None:
    env = LearnGVFs(cart(), QUESTIONS, coder(), dtype="float32", alpha=3.0)
    answers = np.array([info["predictions"] for info in drive(env, 300)])
    low, high = env.episodes.hordes[0].possible
    assert ((low <= answers) & (answers <= high)).all()
    assert np.ptp(answers, axis=0).min() > 0.01


@pytest.mark.parametrize("given", [{}, {"scaled": False}, {"centred": False}, {"scaled": False, "centred": False}])
@pytest.mark.parametrize("size", [1, 7])
@pytest.mark.parametrize("learn", [True, False])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_no_weights_lead_to_an_answer_outside(given: dict[str, Any], size: int, learn: bool, sign: float) -> None:
    data = table()
    horde = Horde(WHAT_IF, parts(), **given).warm_up(data, 100)
    horde.run(data)
    low, high = horde.possible
    for t in (0, 50, 100):
        for learner in horde.learners:
            learner.theta = np.full((learner.K, learner.n), sign * 1e6)
        rows = {name: column[t : t + size] for name, column in data.items()}
        answers = horde.observe_many(rows, gap=np.arange(size) == 3, learn=learn)
        if size == 1 or not learn:
            np.testing.assert_allclose(answers, [high if sign > 0 else low] * size, rtol=1e-15)
        assert ((low - 1e-13 <= answers) & (answers <= high + 1e-13)).all()
    horde.cut()
    horde.learners[0].theta = np.full((2, horde.learners[0].n), sign * 1e6)
    answers = horde.begin({name: column[5] for name, column in data.items()})
    np.testing.assert_allclose(answers, high if sign > 0 else low, rtol=1e-15)


@pytest.mark.parametrize("every", [1, 5])
def test_no_weights_lead_to_a_prediction_outside(every: int) -> None:
    env = LearnGVFs(cart(), QUESTIONS[:3], coder(), every=every)
    drive(env, 100)
    (horde,) = env.episodes.hordes
    env.reset()
    for t in range(10):
        horde.learner.theta = np.full((3, horde.learner.n), 1e6)
        info = env.step(t % 2)[-1]
        if "predictions" in info:
            np.testing.assert_array_equal(info["predictions"], horde.possible[1])
    many = LearnGVFsVector(gymnasium.vector.SyncVectorEnv([cart, cart]), QUESTIONS[:3], coder())
    many.reset(seed=0)
    for t in range(8):
        first, second = many.episodes.hordes
        first.learner.theta = np.full((3, first.learner.n), 1e6)
        info = many.step(np.array([t % 2, 0]))[-1]
        np.testing.assert_array_equal(info["predictions"][1], second.possible[1])


@pytest.mark.parametrize("learn", [True, False])
def test_answers_of_the_bounded_rule_are_the_same_beside_others_and_row_by_row(learn: bool) -> None:
    data, ask = table(), [GVF("x", horizon=6), GVF("y", gamma=0.95)]
    one, other, more = (
        Horde(questions, parts(), "bounded_etd", engine="sparse", rate=5.0).warm_up(data, 100)
        for questions in (ask, ask, [*ask, PLAIN[1]])
    )
    for some in (one, other, more):
        some.observe_many({name: column[:50] for name, column in data.items()})
        some.learner.theta = np.full((some.learner.K, some.learner.n), 9.0)  # beyond what is possible
    rows = {name: column[50:] for name, column in data.items()}
    whole = one.observe_many(rows, learn=learn)
    np.testing.assert_allclose(more.observe_many(rows, learn=learn)[:, :2], whole, rtol=1e-9)
    answers = [other.observe({name: column[t] for name, column in rows.items()}, learn=learn) for t in range(350)]
    assert np.array(answers).tobytes() == whole.tobytes()
    assert everything(other) == everything(one)


def test_one_set_of_weights_is_learned_within_one_range() -> None:
    """Each sequence takes its turn with the weights as the others left them, and its own traces."""
    ask, steps = QUESTIONS[:3], 120
    envs = gymnasium.vector.SyncVectorEnv([lambda: cart(30), lambda: cart(17)])
    env = LearnGVFsVector(envs, ask, coder(), weights="one", record=True)
    rng, infos = np.random.default_rng(0), []
    env.reset(seed=3)
    for _ in range(steps):
        infos.append(env.step(rng.integers(0, 2, 2))[-1])
    logs, n = [env.log(i) for i in range(2)], env.episodes.features.n
    thetas = []
    for i, log in enumerate(logs):
        learner = emphatic.Learner("bounded_etd", n, 3, engine="sparse")
        learner.run(**log)
        thetas.append(learner.theta)
        np.testing.assert_allclose(learner.theta, env.episodes.learners[i].theta, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(sum(thetas), env.episodes.theta, rtol=1e-10, atol=1e-13)
    one, two = env.episodes.hordes
    assert one.possible[1].tolist() == two.possible[1].tolist()
    assert infos[-1]["support"].shape == (2, 3)
    assert infos[-1]["support"][0].tolist() == infos[-1]["support"][1].tolist()
    ratios = [log["rho"][~log["first"]] for log in logs]
    assert min(map(len, ratios)) > 100
    expected = [support(g, *(rho[:, q] for rho in ratios)) for q, g in enumerate((1 - 1 / 20, 0.7, 0.9))]
    np.testing.assert_allclose(one.support, expected, rtol=1e-12)


# ------------------------------------------------------------------------------------------------ support


@pytest.mark.parametrize("rule", [None, "true_online_etd"])
def test_support_is_the_effective_number_of_steps(rule: Any) -> None:
    ask = [*QUESTIONS, GVF("o1", gamma=0.0, policy=LEFT, name="next"), GVF("o1", gamma=0.5, policy=RIGHT, name="two")]
    env = LearnGVFs(cart(), ask, coder(), rule=rule, record=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergenceWarning)
        infos = drive(env, 700)
    log = env.log()
    rho = log["rho"][~log["first"]]
    assert (log["gamma_next"] == 0.0).all(axis=1).sum() > 10
    expected = [support(g, rho[:, q]) for q, g in ((0, 0.95), (1, 0.7), (2, 0.9), (5, 0.0), (6, 0.5))]
    (horde,) = env.episodes.hordes
    np.testing.assert_allclose(horde.support[[0, 1, 2, 5, 6]], expected, rtol=1e-12)
    assert np.isnan(horde.support[[3, 4]]).all()
    np.testing.assert_array_equal(infos[-1]["support"], horde.support)
    assert infos[0]["support"] is not infos[1]["support"]
    assert horde.support[0] < 10 < horde.support[1]


def test_support_without_a_policy_is_the_number_of_steps() -> None:
    data = table(missing=True)
    horde = Horde([*PLAIN, GVF("y", horizon=9)], parts()).warm_up(data)
    horde.run({name: column[:300] for name, column in data.items()}, first=np.arange(300) == 100)
    np.testing.assert_array_equal(horde.support, [300 - 2 - 3, np.nan, 298])
    horde.observe({name: column[300] for name, column in data.items()}, learn=False)
    horde.observe({name: column[301] for name, column in data.items()})
    assert horde.support[2] == 298
    horde.observe({name: column[302] for name, column in data.items()})
    assert horde.support[2] == 299


def test_the_largest_ratios_are_no_obstacle() -> None:
    """The square of (4/3)^2000 is no number."""
    T, ask = 2400, [GVF("x", horizon=2000, policy=Policy({1: 1.0}, "move", 0.75), name="far")]
    horde = Horde(ask, f.Features([f.Bias()]))
    horde.run({"x": np.ones(T), "move": np.ones(T)})
    w = (4 / 3) ** np.minimum(np.arange(1, T) - 2000.0, 0.0)
    assert horde.support[0] == pytest.approx(w.sum() ** 2 / (w**2).sum(), rel=1e-9)


# ------------------------------------------------------------------------------------------------ the warning


def climb(horde: Horde, how: str) -> list[Any]:
    """Rows on which a question with a step size that is too large goes astray."""
    rows = 60
    data = {"x": np.ones(rows) * np.where(np.arange(rows) % 2, 1.0, 0.5)}
    if how == "run":
        return [horde.run(data)]
    if how == "observe":
        return [horde.observe({"x": x}) for x in data["x"]]
    if how == "observe_many":
        return [horde.observe_many({"x": data["x"][i : i + 9]}) for i in range(0, rows, 9)]
    horde.begin({"x": 1.0})
    return [horde.learn(0, x, {"x": x}, terminated=False, predict=t % 5 == 0) for t, x in enumerate(data["x"])]


@pytest.mark.parametrize("how", ["run", "observe", "observe_many", "learn"])
@pytest.mark.parametrize(("scaled", "centred"), [(True, False), (False, False), (False, True)])
def test_a_question_that_predicts_the_impossible_is_named_once(how: str, scaled: bool, centred: bool) -> None:
    ask = [GVF("reward" if how == "learn" else "x", gamma=0.5, lambda_=0.0, name="wild"), GVF(0.0, gamma=0.5, name="0")]
    horde = Horde(ask, f.Features([f.Bias()]), "td", rate=5.0, scaled=scaled, centred=centred)
    horde = horde.prepare(["x"]) if how == "learn" else horde.warm_up({"x": [0.2, 0.9]})
    with pytest.warns(DivergenceWarning) as caught:
        answers = climb(horde, how)
    named = [w for w in caught if "impossible" in str(w.message)]
    assert len(named) == 1
    assert named[0].filename == __file__
    text = str(named[0].message)
    assert text.startswith("'wild' predicts ")
    for part in ("γ = 0.5", "every answer lies from", "rule 'td'", "use rule 'bounded_etd'"):
        assert part in text
    numbers = re.search(r"predicts (\S+), .* from (\S+) to (\S+)\. The steps", text)
    assert numbers is not None
    prediction, low, high = map(float, numbers.groups())
    assert prediction < low - (high - low) or prediction > high + (high - low)
    flat = np.concatenate([np.atleast_2d(answer)[:, 0] for answer in answers if answer is not None])
    assert np.isclose(flat, prediction, rtol=1e-3).any()
    assert np.isfinite(flat).all()
    assert len(np.unique(flat)) > 10, "learning goes on"


@pytest.mark.parametrize("far", [4.6, -2.6])
def test_a_prediction_a_little_outside_is_nothing_to_warn_of(far: float) -> None:
    """Half the width outside is a matter of course for a learner; no width, no range or no fixed γ, no warning."""
    ask = [
        GVF("x", gamma=0.5, name="half"),
        GVF("x", gamma="0.5 + 0 * x", name="varying"),
        GVF("x", gamma=1.0, name="endless"),
        GVF(0.0, gamma=0.5, name="nothing"),
    ]
    horde = Horde(ask, f.Features([f.Bias()]), "td", rate=0.1, scaled=False, centred=False).prepare(["x"])
    horde.begin({"x": 1.0})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for theta in (0.0, 1.0, 3.9, -1.9):
            horde.learner.theta = np.full((4, 1), theta)
            horde.learn(0, 0.0, {"x": 1.0}, terminated=False)
    horde.learner.theta = np.full((4, 1), far)
    with pytest.warns(DivergenceWarning, match=f"'half' predicts {int(far)}") as caught:
        horde.learn(0, 0.0, {"x": 1.0}, terminated=False)
    assert len(caught) == 1


def test_steps_on_policy_are_counted_and_judged_too() -> None:
    """With nothing but signals, a step takes a shorter way."""
    env = LearnGVFs(cart(), [GVF("reward", gamma=0.9), GVF("o2", gamma="0.9 + 0 * o2")], coder(), rule="td", alpha=1.0)
    plain = LearnGVFs(cart(), [GVF("reward", gamma=0.9)], coder(), rule="td", alpha=1.0)

    def drive_plainly(some: LearnGVFs) -> None:
        for t in range(60):
            *_, terminated, truncated, info = some.step(t % 2)
            assert info["support"][0] == t + 1
            if terminated or truncated:
                some.reset()

    for some in (env, plain):
        some.reset(seed=0)
        with pytest.warns(DivergenceWarning, match="'reward@0.9' predicts .* from 0 to 10"):
            drive_plainly(some)
    assert np.isnan(env.episodes.support(0)[1])


@pytest.mark.parametrize("every", [1, 4])
def test_learning_beside_an_agent_warns_too(every: int) -> None:
    env = LearnGVFs(cart(), [QUESTIONS[1], GVF("reward", gamma=0.9)], coder(), rule="td", alpha=1.0, every=every)
    with pytest.warns(DivergenceWarning) as caught:
        drive(env, 300)
    texts = [str(warning.message) for warning in caught]
    assert any(re.search(r"^'cart' predicts .* γ = 0.7 .* rule 'td'", text) for text in texts)
    assert len({text.split(" predicts")[0] for text in texts}) == len(texts)
    assert {warning.filename for warning in caught} == {__file__}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_what_if_the_car_always_went_left(seed: int) -> None:
    """Every return lies in [−12, 6]."""
    centres = np.stack(np.meshgrid(np.linspace(-1.2, 0.6, 8), np.linspace(-0.07, 0.07, 6)), -1).reshape(-1, 2)

    def near(observation: Any) -> Array:
        bumps = np.exp(-0.5 * (((centres - np.asarray(observation)) / (0.25, 0.025)) ** 2).sum(1))
        return np.append(bumps, 1.0)

    ask = [
        GVF("o0", horizon=10, name="as it acts"),
        GVF("o0", horizon=10, policy=Policy({2: 1.0}), name="right"),
        GVF("o0", horizon=10, policy=Policy({0: 1.0}), name="left"),
    ]
    env = LearnGVFs(gymnasium.make("MountainCar-v0"), ask, near)
    env.reset(seed=seed)
    env.action_space.seed(seed)
    answers = []
    for _ in range(4000):
        *_, terminated, truncated, info = env.step(env.action_space.sample())
        answers.append(info["predictions"])
        if terminated or truncated:
            env.reset()
    made = np.array(answers)
    assert (made[:, 1:] >= -12).all()
    assert (made[:, 1:] <= 6).all()
    assert made[-1000:, 1].mean() > made[-1000:, 2].mean(), "to the right is more"
    assert not env.episodes.frozen.any()
    assert info["support"][0] == 4000
    assert (info["support"][1:] < 0.01 * 4000).all()


# ------------------------------------------------------------------------------------------------ in any cut, and kept


def mixed(**given: Any) -> Horde:
    return Horde([PLAIN[0], *WHAT_IF, PLAIN[1]], parts(), **given).warm_up(table(missing=True), 100)


def everything(horde: Horde) -> list[Any]:
    """What may differ between hordes that learned the same."""
    weights = [learner.theta.tobytes() for learner in horde.learners]
    return [*weights, horde.support.tobytes(), *(bound.tobytes() for bound in horde.possible)]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"rule": "bounded_etd", "rate": 1.0},
        {"scaled": False, "centred": False},
    ],
)
@pytest.mark.parametrize("cuts", [range(1, 400), [1, 150, 151, 154, 399], [60]])
def test_any_cut_of_a_log_gives_the_same_bits(given: Any, cuts: Any) -> None:
    data, first = table(missing=True), np.isin(np.arange(400), [0, 150, 151, 300, 302])
    one, other, answers = mixed(engine="sparse", **given), mixed(engine="sparse", **given), []
    whole = one.run(data, first=first)
    for begin, end in pairwise([0, *cuts, 400]):
        rows = {name: column[begin:end] for name, column in data.items()}
        answers.append(other.observe_many(rows, gap=first[begin:end]))
    assert np.concatenate(answers).tobytes() == whole.tobytes()
    assert everything(other) == everything(one)


@pytest.mark.parametrize("at", [0, 1, 40, 200, 305])
@pytest.mark.parametrize("given", [{}, {"rate": 0.5}])
def test_goes_on_with_the_same_bits(at: int, given: Any, tmp_path: Path) -> None:
    data, one = table(missing=True), mixed(**given)
    rows = [{name: column[t] for name, column in data.items()} for t in range(400)]
    for row in rows[:at]:
        one.observe(row)
    one.save(tmp_path / "model")
    other = Horde.load(tmp_path / "model")
    assert everything(other) == everything(one)
    assert repr(other) == repr(one)
    for t, row in enumerate(rows[at:]):
        if t == 30:
            one.cut()
            other.cut()
        assert one.observe(row).tobytes() == other.observe(row).tobytes()
    assert everything(other) == everything(one)


def test_steps_that_wait_are_learned_from_as_others() -> None:
    ask = [*QUESTIONS, GVF("o2", gamma=0.9)]
    (one,) = (now := LearnGVFs(cart(), ask, coder())).episodes.hordes
    (other,) = (later := LearnGVFs(cart(), ask, coder(), every=9)).episodes.hordes
    infos = drive(now, 300), drive(later, 300)
    seen = [(info, late) for info, late in zip(*infos, strict=True) if "support" in late]
    for info, late in seen:
        np.testing.assert_allclose(late["predictions"], info["predictions"], rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(late["support"], info["support"], rtol=1e-12)
    assert 30 < len(seen) < 80
    np.testing.assert_array_equal(one.possible, other.possible)


@pytest.mark.parametrize("shards", [2, 3, 4])
def test_shards_are_the_whole(shards: int, tmp_path: Path) -> None:
    """But for the last bit of a mean."""
    data, whole = table(), mixed(engine="sparse")
    ask = [PLAIN[0], *WHAT_IF, PLAIN[1]]
    expected = whole.run(data)
    with local(ask, parts(), shards=shards, engine="sparse", storage=tmp_path / "run") as horde:
        horde.warm_up(table(missing=True), 100)
        np.testing.assert_allclose(horde.run(data), expected, rtol=1e-11)
        joined = horde.gather()
    assert [learner.K for learner in joined.learners] == [2, 2]
    np.testing.assert_allclose(joined.support, whole.support, rtol=1e-12)
    np.testing.assert_allclose(joined.possible, whole.possible, rtol=1e-12)
    np.testing.assert_allclose(joined.run(data), whole.run(data), rtol=1e-11)
    np.testing.assert_allclose(joined.support, whole.support, rtol=1e-12)


def test_each_of_two_learners_has_a_log() -> None:
    ask = [QUESTIONS[0], GVF("reward", gamma=0.9), QUESTIONS[1]]
    env = LearnGVFs(cart(), ask, coder(), record=True)
    drive(env, 200)
    n, theta = env.episodes.features.n, env.episodes.theta
    for learner, (rule, of) in enumerate([("bounded_etd", [0, 2]), ("true_online_etd", [1])]):
        again = emphatic.Learner(rule, n, len(of), engine="sparse")
        again.run(**env.log(learner))
        np.testing.assert_allclose(again.theta, theta[of], rtol=1e-10, atol=1e-13)
        assert again.theta.any()
    with pytest.raises(RuntimeError, match="give log the number of one"):
        env.log()
    for wrong in (2, -1, True, "1"):
        with pytest.raises(ValueError, match="'learner' parameter of log must be a whole number from 0 to 1"):
            env.log(wrong)  # type: ignore[arg-type]
    learned = [learner.theta for learner in env.episodes.hordes[0].learners]
    np.testing.assert_array_equal(theta, [learned[0][0], learned[1][0], learned[0][1]])
    assert env.episodes.frozen.shape == (1, 3)


# ------------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"rate": {"true_online_etd": 0.1, "bounded_etd": 0.3}}, "'rate' parameter of Horde must be a finite number"),
        ({"low": -1.0}, "'low' parameter"),
        ({"rule": "bounded_etd", "low": 1.0, "high": 0.0}, "'high' parameter of Horde must be left out"),
        ({"stepsize": "autostep"}, "'stepsize' .* Questions with a policy have rule 'bounded_etd' by default"),
        ({"rule": 5}, "'rule' parameter"),
    ],
)
def test_bad_input_is_refused(given: dict[str, Any], match: str) -> None:
    ask = [GVF("x", horizon=3), GVF("x", horizon=4, policy=LEFT, name="a")]
    with pytest.raises(ValueError, match=match):
        Horde(ask, f.Features([f.Bias()]), **given)


def test_a_file_with_another_range_is_refused(tmp_path: Path) -> None:
    horde, path = Horde(WHAT_IF, parts()).warm_up(table(), 100), tmp_path / "model"
    horde.run(table())
    for name, change in (("ratios", lambda a: a[:-1]), ("known", lambda a: a[:, :-1]), ("steps", lambda a: a - 999)):
        horde.save(path)

        def damage(header: Any, arrays: Any, name: str = name, change: Any = change) -> None:
            arrays[f"possible.{name}"] = change(arrays[f"possible.{name}"])

        rewritten(path, damage)
        with pytest.raises(CheckpointError):
            Horde.load(path)
