"""Hordes and learners beyond one machine, on Ray: ``pip install 'emphatic[ray]'``."""

from __future__ import annotations

from emphatic.cluster.driver import ClusterStatus
from emphatic.cluster.horde import ClusterHorde, local
from emphatic.cluster.learner import ClusterLearner
from emphatic.cluster.sweeps import sweep
from emphatic.cluster.watch import ClusterError

__all__ = ["ClusterError", "ClusterHorde", "ClusterLearner", "ClusterStatus", "local", "sweep"]
