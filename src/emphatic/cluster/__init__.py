"""Hordes and learners beyond one machine, on Ray: ``pip install 'emphatic[ray]'``."""

from __future__ import annotations

from emphatic.cluster.connection import ClusterError
from emphatic.cluster.driver import ClusterStatus
from emphatic.cluster.horde import ClusterHorde
from emphatic.cluster.learner import ClusterLearner
from emphatic.cluster.local import local

__all__ = ["ClusterError", "ClusterHorde", "ClusterLearner", "ClusterStatus", "local"]
