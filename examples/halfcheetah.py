"""What will the cheetah's sensors read? Nexting on MuJoCo's HalfCheetah, while another policy moves it.

Each of the 17 sensors, and the reward, is predicted at three horizons, from tile-coded features, while it runs.
Then each prediction is compared with the actual return.

    python examples/halfcheetah.py            # 50,000 steps
    python examples/halfcheetah.py --quick    # 6,000 steps

Needs ``pip install 'emphatic[gym]' 'gymnasium[mujoco]'``.
"""

from __future__ import annotations

import argparse

import gymnasium
import numpy as np
from numpy.typing import NDArray

import emphatic
from emphatic import GVF
from emphatic.gymnasium import LearnGVFs, component_names, tiles

#: In steps of 0.05 s: half a second to four.
HORIZONS = (10, 30, 80)


def behaviour(t: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """A gait: each joint swings at its own phase, with some noise."""
    phase = np.array([0.0, 1.0, 2.0, 3.1, 4.1, 5.1])
    return np.clip(np.sin(0.5 * t + phase) + 0.2 * rng.normal(size=6), -1.0, 1.0).astype(np.float32)


def learned(steps: int) -> tuple[list[GVF], NDArray[np.float64], NDArray[np.float64]]:
    """The questions, the predictions at each step, and the signals that followed."""
    # Readings less their mean, over their spread, as seen so far: then all have one range, and none a large offset.
    env = gymnasium.wrappers.NormalizeObservation(gymnasium.make("HalfCheetah-v5", max_episode_steps=steps))
    signals = [*component_names(env.observation_space), "reward"]
    questions = [GVF(signal, horizon=horizon) for horizon in HORIZONS for signal in signals]
    # Each angle, and the height, with its own velocity.
    groups = [[f"o{i}", f"o{i + 9}"] for i in range(8)]
    ranges = dict.fromkeys(signals[:-1], (-3.0, 3.0))
    features = tiles(env.observation_space, groups, ranges=ranges, tiles=5, tilings=4)
    learning = LearnGVFs(env, questions, features)
    rng = np.random.default_rng(0)
    _, info = learning.reset(seed=0)
    predictions, followed = [], []
    for t in range(steps):
        predictions.append(info["predictions"])
        observation, reward, _, _, info = learning.step(behaviour(t, rng))
        followed.append([*observation, reward])
    return questions, np.array(predictions), np.array(followed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="6,000 steps instead of 50,000")
    questions, predictions, followed = learned(6_000 if parser.parse_args().quick else 50_000)
    print("variance explained in the second half, by signal and horizon")
    C, half = followed.shape[1], len(followed) // 2
    explained = np.empty(len(questions))
    for q in range(len(questions)):
        gamma = 1.0 - 1.0 / HORIZONS[q // C]
        G, known = emphatic.learning.returns(followed[:, q % C], gamma)
        some = known & (np.arange(len(G)) >= half)
        explained[q] = 1.0 - np.var(G[some] - predictions[some, q]) / np.var(G[some])
    print(f"{'':8}" + "".join(f"{horizon:8}" for horizon in HORIZONS))
    for c in range(C):
        print(f"{questions[c].cumulant!s:8}" + "".join(f"{value:8.2f}" for value in explained[c::C]))
    assert np.median(explained) > 0.25, f"the median is {np.median(explained):.2f}"


if __name__ == "__main__":
    main()
