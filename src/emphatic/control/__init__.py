"""Control: agents with discrete actions that learn action values.

>>> from emphatic.control import Agent
>>> agent = Agent("true_online_sarsa", 48, 4, alpha=0.1, gamma=1.0, lambda_=0.9, seed=0)
>>> agent.start(36) in range(4)
True
"""

from emphatic.control.agent import Agent, Training, train_vector
from emphatic.control.algorithms import ALGORITHMS, Algorithm
from emphatic.control.many import WORLDS, Agents, Trainings, tile_coding
from emphatic.control.policies import EpsilonGreedy, Schedule, Softmax, exponential, linear

__all__ = ["ALGORITHMS", "WORLDS", "Agent", "Agents", "Algorithm", "EpsilonGreedy", "Schedule", "Softmax", "Training"]
__all__ += ["Trainings", "exponential", "linear", "tile_coding", "train_vector"]
