"""The same shards in one process, without Ray."""

from __future__ import annotations

from typing import Any, overload

from emphatic.cluster.base import IN_PROCESS
from emphatic.cluster.horde import ClusterHorde
from emphatic.cluster.learner import ClusterLearner
from emphatic.rules import Rule

__all__ = ["local"]


@overload
def local(what: str | Rule, *arguments: Any, shards: int, storage: Any = None, **options: Any) -> ClusterLearner: ...
@overload
def local(what: Any, *arguments: Any, shards: int, storage: Any = None, **options: Any) -> ClusterHorde: ...
def local(
    what: Any, *arguments: Any, shards: int, storage: Any = None, **options: Any
) -> ClusterLearner | ClusterHorde:
    """What ``ClusterLearner`` (of a rule) or ``ClusterHorde`` (of questions) makes, with all shards in this process.

    Takes their arguments but ``address``. The bits are those of the same shards on Ray, whatever was killed there. The
    storage is a temporary folder unless it is given.

    >>> with local("true_online_etd", 3, 1024, shards=4, engine="chunked") as learner:
    ...     print(learner)
    ClusterLearner('true_online_etd', n=3, K=1024, dtype='float64', engine='chunked', shards=4)
    """
    kind: Any = ClusterLearner if isinstance(what, str | Rule) else ClusterHorde
    made: ClusterLearner | ClusterHorde = kind(
        what, *arguments, shards=shards, address=IN_PROCESS, storage=storage, **options
    )
    return made
