"""How soon would the pole fall, if I kept pushing left? And right?

An agent drives CartPole. It pushes at random, a little more often to the side to which the pole leans. At the same time
two questions are learned off-policy, about policies that never drive: always left, always right. At the end the
predictions are compared with what happens when the cart really is pushed in this way, from the same states.

    python examples/cartpole.py            # 100,000 steps
    python examples/cartpole.py --quick    # 20,000 steps

Needs ``pip install 'emphatic[gym]'``.
"""

from __future__ import annotations

import argparse

import gymnasium
import numpy as np
from numpy.typing import NDArray

from emphatic import GVF, Policy
from emphatic.gymnasium import LearnGVFs, tiles

LEFT, RIGHT = 0, 1
QUESTIONS = [
    # 1 a step, undiscounted: the number of steps until the episode ends, as it does when the pole falls.
    GVF(1.0, gamma=1.0, lambda_=0.0, policy=Policy({LEFT: 1.0}), name="steps until it falls, pushing left"),
    GVF(1.0, gamma=1.0, lambda_=0.0, policy=Policy({RIGHT: 1.0}), name="steps until it falls, pushing right"),
]
#: Cart position and velocity, pole angle and angular velocity.
RANGES = {"o0": (-2.4, 2.4), "o1": (-3.0, 3.0), "o2": (-0.21, 0.21), "o3": (-3.5, 3.5)}
#: The mean error that is allowed, in steps; and in how many of the last steps the answers are checked.
TOLERANCE, CHECKED = 2.0, 1000


def learned(steps: int, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The answers at each of the last steps, and the truth there: both (CHECKED, 2)."""
    env = gymnasium.make("CartPole-v1")
    features = tiles(env.observation_space, [["o2", "o3"], ["o1", "o2", "o3"]], ranges=RANGES, tiles=6, tilings=16)
    # Emphasis with β = .3 instead of γ = 1: its variance stays small, though ρ is 0 or about 2 in every step.
    learning = LearnGVFs(env, QUESTIONS, features, rule="true_online_etd_beta", decay=0.3, alpha=0.05)
    rng, other = np.random.default_rng(seed), gymnasium.make("CartPole-v1")
    answers, truth = [], []
    observation, info = learning.reset(seed=seed)
    for t in range(steps):
        if t >= steps - CHECKED:
            answers.append(info["predictions"])
            truth.append([fall(other, observation, action) for action in (LEFT, RIGHT)])
        right = 0.55 if observation[2] > 0.0 else 0.45
        action = RIGHT if rng.random() < right else LEFT
        learning.mu = right if action == RIGHT else 1.0 - right
        observation, _, terminated, truncated, info = learning.step(action)
        if terminated or truncated:
            observation, info = learning.reset()
    return np.array(answers), np.array(truth, np.float64)


def fall(env: gymnasium.Env[NDArray[np.float32], int], state: NDArray[np.float32], action: int) -> int:
    """How many steps it takes from this state, with this action always."""
    env.reset()
    env.unwrapped.state = state.astype(np.float64)  # type: ignore[attr-defined]
    steps, terminated = 0, False
    while not terminated:
        _, _, terminated, _, _ = env.step(action)
        steps += 1
    return steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="20,000 steps instead of 100,000")
    answers, truth = learned(20_000 if parser.parse_args().quick else 100_000)
    print(f"{'at ten of the last states':40}learned actual")
    for k, question in enumerate(QUESTIONS):
        for t in range(0, CHECKED, CHECKED // 10):
            print(f"{question.name:40}{answers[t, k]:7.1f}{truth[t, k]:7.0f}")
    error, spread = np.abs(answers - truth).mean(axis=0), np.abs(truth - truth.mean(axis=0)).mean(axis=0)
    for question, own, plain in zip(QUESTIONS, error, spread, strict=True):
        print(f"{question.name}: mean error {own:.2f} steps (of the mean answer: {plain:.2f})")
    assert (error < TOLERANCE).all(), f"mean errors of {error} steps, {TOLERANCE} allowed"
    assert (error < spread).all(), "the mean answer does as well"


if __name__ == "__main__":
    main()
