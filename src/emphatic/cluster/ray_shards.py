"""Shards in Ray's actors, which Ray starts again where they died, on another node if need be."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from emphatic.cluster.connection import ClusterError, Connection
from emphatic.cluster.driver import Lost
from emphatic.cluster.shard import Shard, ShardPart, Start

__all__ = ["RayShards"]

_log = logging.getLogger(__name__)

#: Seconds for a shard to begin, and for one that died to be back.
_PATIENCE = 120.0
#: Seconds without an answer after which the driver looks around.
_TURN = 5.0
_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "BLIS_NUM_THREADS")


class ShardActor:
    """A shard in an actor. What it raises is an answer: Ray would print a page for each error that nobody fetched."""

    def __init__(self, *arguments: Any) -> None:
        self._shard = Shard(*arguments)

    def call(self, method: str, *arguments: Any) -> tuple[Any, Exception | None]:
        """What the shard's method returns, or raises."""
        try:
            return getattr(self._shard, method)(*arguments), None
        except Exception as error:
            return None, error.with_traceback(None)


class RayShards:
    """A ``Backend`` of one actor a shard, named ``emphatic-RUN-shard-3``."""

    def __init__(
        self, connection: Connection, parts: Sequence[ShardPart], storage: Path, start: Start, gpus: int = 0
    ) -> None:
        self._connection, self._ray = connection, connection.ray
        errors = self._ray.exceptions
        self._lost = (errors.RayActorError, errors.ObjectLostError, errors.NodeDiedError, errors.WorkerCrashedError)
        threads = connection.threads
        kind = self._ray.remote(ShardActor)
        self._actors = [
            kind.options(
                name=f"emphatic-{start.session}-shard-{index}", namespace="emphatic", num_cpus=threads, num_gpus=gpus,
                max_restarts=-1, max_task_retries=0, scheduling_strategy="SPREAD",
                runtime_env={"env_vars": dict.fromkeys(_THREADS, str(threads))},
            ).remote(index, part, str(storage), start)
            for index, part in enumerate(parts)
        ]  # fmt: skip
        try:
            self._check_storage(storage)
        except BaseException:
            self.close()
            raise

    @property
    def processes(self) -> list[int]:
        """The id of each shard's process, on its own node."""
        return [self.revive(shard, "process") for shard in range(len(self._actors))]

    def put(self, value: Any) -> Any:
        try:
            return self._ray.put(value)
        except self._ray.exceptions.ObjectStoreFullError:
            wanted = "Use smaller blocks, a smaller 'ahead', or a Ray with a larger object store."
            raise ClusterError(f"Ray's object store has no room for the blocks that are kept. {wanted}") from None

    def call(self, shard: int, method: str, *arguments: Any) -> Any:
        return self._actors[shard].call.remote(method, *arguments)

    def wait(self, calls: list[Any]) -> list[Any]:
        ready, _ = self._ray.wait(calls, num_returns=1, timeout=_TURN)
        more, _ = self._ray.wait(calls, num_returns=len(calls), timeout=0)
        return list({*ready, *more})

    def get(self, call: Any) -> Any:
        try:
            answer, error = self._ray.get(call)
        except self._lost as lost:
            raise Lost(_reason(lost)) from None
        except self._ray.exceptions.RayTaskError as failed:
            if isinstance(failed.cause, self._lost):  # what the shard was sent got lost on the way
                raise Lost(_reason(failed.cause)) from None
            raise
        if error is not None:
            raise error
        return answer

    def revive(self, shard: int, method: str, *arguments: Any) -> Any:
        until = time.monotonic() + _PATIENCE
        while True:
            call = self.call(shard, method, *arguments)
            with suppress(self._ray.exceptions.GetTimeoutError):
                try:
                    self._ray.wait([call], timeout=max(0.1, until - time.monotonic()))
                    return self.get(call) if self._ray.wait([call], timeout=0)[0] else self._give_up(shard, "")
                except Lost as lost:
                    if time.monotonic() > until:
                        self._give_up(shard, str(lost))
            time.sleep(0.05)

    def close(self) -> None:
        for actor in self._actors:
            with suppress(Exception):
                self._ray.kill(actor)
        self._connection.close()

    # ------------------------------------------------------------------ inside

    def _give_up(self, shard: int, why: str) -> None:
        free = int(self._ray.available_resources().get("CPU", 0))
        raise ClusterError(
            f"Shard {shard} did not come back within {_PATIENCE:.0f} s ({why or 'no answer'}); "
            f"it needs {self._connection.threads} CPUs on one node, and {free} are free in all."
        )

    def _check_storage(self, storage: Path) -> None:
        """Every shard must see what the driver writes."""
        token = f".token-{secrets.token_hex(8)}"
        path = storage / token
        path.touch()
        try:
            blind = [shard for shard in range(len(self._actors)) if not self.revive(shard, "sees", token)]
        finally:
            path.unlink()
        if blind:
            raise ClusterError(
                f"{storage}: shards {', '.join(map(str, blind))} do not see this folder. "
                "The storage must be one that all nodes share, by the same path."
            )


def _reason(error: BaseException) -> str:
    """What happened, in a few words: Ray's own text is a page."""
    text = " ".join(str(error).split())
    for sign, reason in (
        ("node", "its node died"), ("OOM", "it was out of memory"), ("unavailable", "its process died"),
    ):  # fmt: skip
        if sign in text and (sign != "node" or "node died" in text or "node was terminated" in text):
            return reason
    return "its process died" if "Actor" in type(error).__name__ else type(error).__name__
