"""A roboticist learns what would happen while another policy acts, in a Gymnasium environment, and saves it."""

import gymnasium
import numpy as np

from emphatic import GVF, Policy
from emphatic.gymnasium import LearnGVFs, tiles

RANGES = {"o0": (-2.4, 2.4), "o1": (-3.0, 3.0), "o2": (-0.21, 0.21), "o3": (-3.5, 3.5)}
QUESTIONS = [
    GVF("reward", gamma=0.9),
    GVF("o2", horizon=20, policy=Policy({0: 1.0}), name="angle, pushing left"),
]


def walk(env: LearnGVFs, steps: int, seed: int) -> np.ndarray:
    """The predictions at each step of a random walk."""
    env.action_space.seed(seed)
    _, info = env.reset(seed=seed)
    predictions = []
    for _ in range(steps):
        _, _, terminated, truncated, info = env.step(env.action_space.sample())
        predictions.append(info["predictions"])
        if terminated or truncated:
            _, info = env.reset()
    return np.array(predictions)


cart = gymnasium.make("CartPole-v1")
features = tiles(cart.observation_space, [["o0", "o1"], ["o2", "o3"]], ranges=RANGES, tiles=8, tilings=8)
env = LearnGVFs(cart, QUESTIONS, features)
predictions = walk(env, 2000, seed=0)
assert predictions.shape == (2000, 2)
assert np.isfinite(predictions).all()
assert 5 < predictions[-500:, 0].mean() < 10.5, predictions[-500:, 0].mean()  # Σ γ^k of rewards of 1

env.save("agent.safetensors")
loaded = LearnGVFs.load("agent.safetensors", gymnasium.make("CartPole-v1"))
assert np.array_equal(walk(env, 200, seed=1), walk(loaded, 200, seed=1))
