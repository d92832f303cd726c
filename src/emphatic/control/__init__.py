"""Control: agents with discrete actions that learn action values.

>>> from emphatic.control import Agent
>>> agent = Agent("true_online_sarsa", 48, 4, alpha=0.1, gamma=1.0, lambda_=0.9, seed=0)
>>> agent.start(36) in range(4)
True
"""

from emphatic.control.agent import Agent, Training
from emphatic.control.algorithms import ALGORITHMS, Algorithm
from emphatic.control.episodes import WORLDS
from emphatic.control.policies import EpsilonGreedy, Schedule, Softmax, exponential, linear

__all__ = ["ALGORITHMS", "WORLDS", "Agent", "Algorithm", "EpsilonGreedy", "Schedule", "Softmax", "Training"]
__all__ += ["exponential", "linear"]
