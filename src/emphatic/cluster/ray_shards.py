"""Ray: the connection to a cluster, and shards in Ray's actors, which Ray starts again where they died.

A cluster is reached by its address, or one is started here and stopped again. What would make Ray wait in silence is
looked at first: nothing at the address, too few CPUs.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from emphatic.cluster.driver import Lost, Shard, ShardPart, Start
from emphatic.learning.inputs import refusal

__all__ = ["ClusterError", "Connection", "RayShards", "import_ray"]

_log = logging.getLogger(__name__)

#: How an HTTP/2 conversation, such as Ray's, begins: the client's preface, with empty settings.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_SETTINGS = 4
#: How many seconds Ray tries to reach a cluster.
_PATIENCE = "RAY_gcs_server_port_wait_time_s"
#: Seconds for a connection, and for CPUs that another run is just giving back.
_REACH, _FREE = 3.0, 5.0
#: Seconds for a shard to begin, and for one that died to be back.
_BACK_WITHIN = 120.0
#: Seconds without an answer after which the driver looks around.
_TURN = 5.0
_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "BLIS_NUM_THREADS")


class ClusterError(OSError):
    """A cluster that cannot be used, or that has lost what the run needs."""


def import_ray() -> Any:
    """Ray; ``ImportError`` with the command that installs it."""
    # Ray prints a page for each process that died; the driver logs one line.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "worker died or was killed|worker with ID|node with node id")
    try:
        import ray
    except ImportError as error:
        raise ImportError("emphatic.cluster needs Ray: pip install 'emphatic[ray]'") from error
    return ray


class Connection:
    """Ray, ready for ``shards`` actors of ``threads`` CPUs; None for either leaves it to the cluster.

    By default there is one shard a node, with all the CPUs of the smallest node.
    """

    def __init__(self, address: str | None, shards: int | None, threads: int | None, gpus: int = 0) -> None:
        self.ray = ray = import_ray()
        self.started = False
        local = address in (None, "local")
        if ray.is_initialized():
            _log.info("using the Ray that this process is connected to")
            if not local and address != "auto" and ray.get_runtime_context().gcs_address != address:
                raise ClusterError(
                    f"This process is connected to another Ray, {ray.get_runtime_context().gcs_address}."
                )
        elif local:
            cpus = (shards or 1) * (threads or 1) if shards or threads else None
            self._init(address="local", num_cpus=max(cpus or 1, os.cpu_count() or 1))
            self.started = True
        else:
            if address != "auto":
                _check_address(str(address))
            with _short_patience():
                self._init(address=address)
            self.started = True
        try:
            nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            cpus_of = [int(node.get("CPU", 0)) for node in nodes if node.get("CPU", 0) >= 1]
            if shards is None:
                shards, threads = max(1, len(cpus_of)), threads or min(cpus_of, default=1)
            self.shards, self.threads = shards, threads or 1
            self._check_cpus(cpus_of)
            if gpus and sum(int(node.get("GPU", 0)) for node in nodes) < gpus * shards:
                raise ClusterError(
                    f"{shards} shards on cuda need {gpus * shards} GPUs, which the cluster does not have."
                )
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Disconnect, and stop a Ray that was started here; a given cluster goes on."""
        if self.started:
            self.started = False
            self.ray.shutdown()

    def _init(self, **arguments: object) -> None:
        try:
            self.ray.init(
                include_dashboard=False if "num_cpus" in arguments else None,
                log_to_driver=False,
                logging_level=logging.WARNING,
                namespace="emphatic",
                **arguments,
            )
        except Exception as error:
            self.ray.shutdown()
            if "num_cpus" not in arguments and _is_unauthenticated(error):
                raise ClusterError(
                    f"The Ray at {arguments['address']} requires a token: copy its head node's to this "
                    "machine, and set RAY_AUTH_MODE=token."
                ) from error
            raise ClusterError(f"Ray cannot be used: {_first_line(error)}") from error

    def _check_cpus(self, cpus_of: list[int]) -> None:
        """An actor for which there is no CPU would wait for ever."""
        needed, until = self.shards * self.threads, time.monotonic() + _FREE
        room = sum(cpus // self.threads for cpus in cpus_of)
        while True:
            free = int(self.ray.available_resources().get("CPU", 0))
            if room >= self.shards and free >= needed:
                return
            if room < self.shards or time.monotonic() > until:
                threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
                raise ClusterError(
                    f"{self.shards} shards with {threads} each need {needed} CPUs: the cluster's nodes have "
                    f"{' + '.join(map(str, cpus_of)) or 'none'}, {free} of them free. Use fewer shards or threads."
                )
            time.sleep(0.2)


def _check_address(address: str) -> None:
    """Whether something that may be Ray listens there: ``ray.init`` would try for minutes, and say nothing."""
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdigit():
        raise refusal("address", "a cluster", "be host:port of the head node, 'local' or 'auto'", repr(address))
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH) as connection:
            connection.sendall(_PREFACE)
            answer = connection.recv(9)
    except (OSError, OverflowError) as error:
        raise ClusterError(f"No Ray answers at {address}: {error}. Start one there with ray start --head.") from error
    if len(answer) < 4 or answer[3] != _SETTINGS:
        raise ClusterError(f"What listens at {address} is not Ray. Start one with ray start --head --port PORT.")


@contextmanager
def _short_patience() -> Iterator[None]:
    """Ray tries for 20 seconds where it is refused; something does listen, so that a few are enough."""
    configured = os.environ.get(_PATIENCE)
    os.environ.setdefault(_PATIENCE, "4")
    try:
        yield
    finally:
        if configured is None:
            os.environ.pop(_PATIENCE, None)


def _is_unauthenticated(error: BaseException | None) -> bool:
    while error is not None:
        if "AuthenticationError" in f"{type(error).__name__} {error}":
            return True
        error = error.__cause__ or error.__context__
    return False


def _first_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


class ShardActor:
    """A shard in an actor. What it raises is an answer: Ray would print a page for each error that nobody fetched."""

    def __init__(self, index: int, model: ShardPart, storage: str, start: Start) -> None:
        self._shard = Shard(index, model, storage, start)

    def call(self, method: str, *arguments: object) -> tuple[Any, Exception | None]:
        """What the shard's method returns, or raises."""
        try:
            return getattr(self._shard, method)(*arguments), None
        except Exception as error:
            return None, error.with_traceback(None)


class RayShards:
    """A ``Backend`` of one actor a shard, named ``emphatic-RUN-shard-3``."""

    def __init__(
        self, connection: Connection, models: Sequence[ShardPart], storage: Path, start: Start, gpus: int = 0
    ) -> None:
        self._connection, self._ray = connection, connection.ray
        errors = self._ray.exceptions
        self._lost = (errors.RayActorError, errors.ObjectLostError, errors.NodeDiedError, errors.WorkerCrashedError)
        threads = connection.threads
        kind = self._ray.remote(ShardActor)
        self._actors = [
            kind.options(
                name=f"emphatic-{start.session}-shard-{index}",
                namespace="emphatic",
                num_cpus=threads,
                num_gpus=gpus,
                max_restarts=-1,
                max_task_retries=0,
                scheduling_strategy="SPREAD",
                runtime_env={"env_vars": dict.fromkeys(_THREADS, str(threads))},
            ).remote(index, model, str(storage), start)
            for index, model in enumerate(models)
        ]
        try:
            self._check_storage(storage)
        except BaseException:
            self.close()
            raise

    @property
    def processes(self) -> list[int]:
        """The id of each shard's process, on its own node."""
        return [self.revive(shard, "process") for shard in range(len(self._actors))]

    def put(self, value: object) -> Any:
        try:
            return self._ray.put(value)
        except self._ray.exceptions.ObjectStoreFullError:
            wanted = "Use smaller blocks, a smaller 'ahead', or a Ray with a larger object store."
            raise ClusterError(f"Ray's object store has no room for the blocks that are kept. {wanted}") from None

    def call(self, shard: int, method: str, *arguments: object) -> Any:
        return self._actors[shard].call.remote(method, *arguments)

    def wait(self, calls: list[Any]) -> list[Any]:
        ready, _ = self._ray.wait(calls, num_returns=1, timeout=_TURN)
        all_ready, _ = self._ray.wait(calls, num_returns=len(calls), timeout=0)
        return list({*ready, *all_ready})

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

    def revive(self, shard: int, method: str, *arguments: object) -> Any:
        until = time.monotonic() + _BACK_WITHIN
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
            f"Shard {shard} did not come back within {_BACK_WITHIN:.0f} s ({why or 'no answer'}); "
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
        ("node", "its node died"),
        ("OOM", "it was out of memory"),
        ("unavailable", "its process died"),
    ):
        if sign in text and (sign != "node" or "node died" in text or "node was terminated" in text):
            return reason
    return "its process died" if "Actor" in type(error).__name__ else type(error).__name__
