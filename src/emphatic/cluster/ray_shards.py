"""Ray: the connection to a cluster, and shards in Ray's actors, which Ray starts again where they died.

A cluster is reached by its address, or one is started here and stopped again. What would make Ray wait in silence is
looked at first: nothing at the address, too few CPUs. Later every call has a deadline: a shard that gives no sign of
life is killed, so that Ray starts it again, and when Ray itself is at fault the run ends with one line that says so.
"""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import signal
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from emphatic.cluster.driver import Lost
from emphatic.cluster.watch import Calls, ClusterError, RayLog, ServerWatch, is_answering
from emphatic.cluster.watchdog import MARK, ServerProcesses, Watchdog, find_logs, kill_all
from emphatic.learning.inputs import refusal

__all__ = ["ClusterError", "Connection", "Place", "RayShards", "import_ray", "run_in_shards"]

_log = logging.getLogger(__name__)

#: How many seconds Ray tries to reach a cluster.
_PATIENCE = "RAY_gcs_server_port_wait_time_s"
#: Seconds for CPUs that another run is just giving back.
_FREE = 5.0
#: Seconds for Ray to start, for a shard to begin or one that died to be back, for Ray to end, and to say what failed.
_START_WITHIN, _BACK_WITHIN, _END_WITHIN, _SAY_WITHIN = 45.0, 45.0, 25.0, 30.0
#: Seconds without an answer after which the driver looks around, and without a sign of life after which it kills.
_TURN, _SILENT = 4.0, 12.0
#: Seconds between two lines about a shard that is alive, but has not ended its block.
_PATIENT = 60.0
#: How often a task is sent again when its shard dies: a task may be what kills it.
_ATTEMPTS = 5
#: What a Ray that is started here need not count, because it has no dashboard that would show it.
_UNCOUNTED = {
    "RAY_enable_metrics_collection": "0",
    "RAY_task_events_report_interval_ms": "0",
    "RAY_event_stats": "0",
    "RAY_io_context_monitor_probe_interval_ms": "60000",
    "RAY_io_context_event_loop_lag_collection_interval_ms": "60000",
}
_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "BLIS_NUM_THREADS")


def import_ray(local: bool = False) -> Any:
    """Ray; ``ImportError`` with the command that installs it.

    Args:
        local: Whether a cluster is to be started on this machine. Where Ray has tokens, only who has a token that is
            made here is let in, unless ``RAY_AUTH_MODE`` is set. Ray reads the token when it is imported: one that was
            imported before keeps its own ways.
    """
    # Ray prints a page for each process that died; the driver logs one line.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "worker died or was killed|worker with ID|node with node id")
    if local and "RAY_AUTH_MODE" not in os.environ and "ray" not in sys.modules:
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    try:
        import ray
    except ImportError as error:
        raise ImportError("emphatic.cluster needs Ray: pip install 'emphatic[ray]'") from error
    return ray


class Connection:
    """Ray, ready for ``shards`` actors of ``threads`` CPUs; None for either leaves it to the cluster.

    By default there is one shard a node, with all the CPUs of the smallest node. When something goes wrong, Ray's own
    log is put into ``ray.log`` in the storage.
    """

    def __init__(
        self, address: str | None, shards: int | None, threads: int | None, storage: Path, gpus: int = 0
    ) -> None:
        local = address in (None, "local")
        self.ray = import_ray(local)
        self.started, self._mark = False, ""
        self._watch: ServerWatch | None = None
        self._processes = ServerProcesses(os.getpid())
        self._watchdog: Watchdog | None = None
        self._log, self._failure = RayLog(storage / "ray.log"), ""
        self.call = Calls(self._find_fault)
        try:
            self._connect(address, local, (shards or 1) * (threads or 1) if shards or threads else None)
            self._watch = ServerWatch(self._servers())
            self._watch.start()
            nodes = self.nodes()
            cpus_of = [int(node.get("CPU", 0)) for node in nodes if node.get("CPU", 0) >= 1]
            self.cpus = sum(cpus_of)
            if shards is None:
                shards, threads = max(1, len(cpus_of)), threads or min(cpus_of, default=1)
            self.shards, self.threads = shards, threads or 1
            self._check_cpus(cpus_of)
            if gpus and sum(int(node.get("GPU", 0)) for node in nodes) < gpus * shards:
                raise ClusterError(
                    f"{shards} shards on cuda need {gpus * shards} GPUs, which the cluster does not have."
                )
        except BaseException as error:
            if isinstance(error, ClusterError) and self._watch is not None and self._watch.fault:
                failure = self.failure(str(error))
                self.close()
                raise failure from None
            self.close()
            raise

    def nodes(self) -> list[dict[str, float]]:
        """The resources of each node that is alive."""
        return [node["Resources"] for node in self.call(self.ray.nodes) if node["Alive"]]

    def failure(self, what: str) -> ClusterError:
        """The error that ends a run: one line, which names the file with Ray's own log."""
        path = self._log.write()
        self._failure = f"{what.rstrip('.')}." + (f" Ray's log: {path}" if path else "")
        if self._watchdog is not None and self._find_fault():
            self._watchdog.trust()
            self._watchdog.limit(_SAY_WITHIN, self._failure)
            _leave_exceptions()
        return ClusterError(self._failure)

    def keep_log(self) -> Path | None:
        """Put Ray's own log into a file; its path."""
        return self._log.write()

    def close(self) -> None:
        """Disconnect, and stop a Ray that was started here; a given cluster goes on."""
        faulty = bool(self._mark) or self.call.is_busy if self._watch is None else bool(self._watch.fault)
        if self._watch is not None:
            self._watch.end()
        if self.started and self._watchdog is not None:
            self.started = False
            self._shut_down(faulty)
            self._log.detach()
        self.call.end()

    # ------------------------------------------------------------------ inside

    def _find_fault(self) -> str:
        if self._watch is not None:
            return self._watch.fault
        return self._processes.find_fault(self._mark) if self._mark else ""

    def _shut_down(self, faulty: bool) -> None:
        """``ray.shutdown``, which may wait for what is gone: then Ray's processes that were started here are killed.

        Ray ends a process that is waiting for its object store when that goes: then they are killed as this process
        ends.
        """
        watchdog, mark, session = self._watchdog, self._mark, self._processes.session
        assert watchdog is not None
        watchdog.trust()
        if not faulty:
            watchdog.limit(_END_WITHIN, "Ray cannot be used: it did not end")
            self._disconnect()
            watchdog.end()
            return
        is_over = watchdog.beat(_SILENT, self._failure)
        _limit_exit(watchdog, is_over, mark, session)
        if not self.call.is_busy:
            kill_all(mark, session)  # what is at fault need not be waited for
            self._disconnect()
            kill_all(mark, session)
            is_over.set()

    def _disconnect(self) -> None:
        ended = threading.Thread(target=lambda: _quietly(self.ray.shutdown), daemon=True)
        ended.start()
        ended.join(10.0)
        if ended.is_alive():
            kill_all(self._mark, self._processes.session)
            ended.join(5.0)

    def _connect(self, address: str | None, local: bool, cpus: int | None) -> None:
        ray = self.ray
        if ray.is_initialized():
            _log.info("using the Ray cluster that this process is connected to")
            if not local and address != "auto" and ray.get_runtime_context().gcs_address != address:
                raise ClusterError(
                    f"This process is connected to another Ray, {ray.get_runtime_context().gcs_address}."
                )
            return
        if local:
            self._mark = secrets.token_hex(8)
            unset = {name: value for name, value in _UNCOUNTED.items() if name not in os.environ}
            with _loopback(), _without_log_monitor(), _set({MARK: self._mark} | unset):
                self._init(address="local", num_cpus=max(cpus or 1, os.cpu_count() or 1))
            return
        if address != "auto":
            _check_address(str(address))
        # Ray tries for 20 seconds where it is refused; something does listen, so that a few are enough.
        with _set({_PATIENCE: os.environ.get(_PATIENCE, "4")}):
            self._init(address=address)

    def _init(self, **arguments: object) -> None:
        local = "num_cpus" in arguments
        self.started = True
        self._watchdog = Watchdog(self._mark, self._log.path)
        self._watchdog.limit(
            _START_WITHIN + 5.0, f"Ray cannot be used: it has not answered within {_START_WITHIN:.0f} s"
        )
        self._log.attach()
        try:
            context = self.call(
                _init_quietly,
                self.ray.init,
                include_dashboard=False if local else None,
                configure_logging=False,
                log_to_driver=False,
                namespace="emphatic",
                within=_START_WITHIN,
                **arguments,
            )
            self._log.attach()
            session = Path(context.address_info["session_dir"]).resolve()
            self._log.folder, self._processes.session = session / "logs", str(session)
            self._watchdog.free()
        except Exception as error:
            failure = ClusterError(f"Ray cannot be used: {_first_line(error)}")
            if local:
                self._log.folder = self._log.folder or find_logs(self._processes.session)
            if local or isinstance(error, ClusterError):  # a given cluster that refuses says why itself
                failure = self.failure(str(failure))
            self.close()
            if not local and _is_unauthenticated(error):
                raise ClusterError(
                    f"Ray at {arguments['address']} requires a token: copy its head node's to this "
                    "machine, and set RAY_AUTH_MODE=token."
                ) from error
            raise failure from (None if isinstance(error, ClusterError) else error)

    def _servers(self) -> dict[str, str]:
        """The servers that a driver depends on: Ray's global one, and that of its own node."""
        context = self.ray.get_runtime_context()
        servers = {"Ray's GCS server": context.gcs_address}
        for node in self.call(self.ray.nodes):
            if node["NodeID"] == context.get_node_id():
                servers["The raylet of this node"] = f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}"
        return servers

    def _check_cpus(self, cpus_of: list[int]) -> None:
        """An actor for which there is no CPU would wait for ever."""
        needed, until = self.shards * self.threads, time.monotonic() + _FREE
        room = sum(cpus // self.threads for cpus in cpus_of)
        while True:
            free = int(self.call(self.ray.available_resources).get("CPU", 0))
            if room >= self.shards and free >= needed:
                return
            if room < self.shards or time.monotonic() > until:
                threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
                raise ClusterError(
                    f"{self.shards} shards with {threads} each need {needed} CPUs: the cluster's nodes have "
                    f"{' + '.join(map(str, cpus_of)) or 'none'}, {free} of them free. Use fewer shards or threads."
                )
            time.sleep(0.2)


def _init_quietly(init: Callable[..., Any], **arguments: object) -> Any:
    """``ray.init`` without its advice about later versions of Ray."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return init(**arguments)


def _limit_exit(watchdog: Watchdog, is_over: threading.Event, mark: str, session: str) -> None:
    """What Ray waits for at the end of a process, for a minute, may be gone: do not wait for it.

    The thread that limits the wait begins now: from Python 3.12 on, none can begin while a process ends.
    """
    exiting = threading.Event()

    def end() -> None:
        exiting.wait()
        time.sleep(3.0)
        kill_all(mark, session)
        for stream in (sys.stdout, sys.stderr):
            _quietly(stream.flush)
        os._exit(1)

    def begin_to_end() -> None:
        is_over.set()
        time.sleep(0.1)
        watchdog.limit(_SILENT, "")  # Ray may not let the thread run
        exiting.set()

    threading.Thread(target=end, daemon=True).start()
    atexit.register(begin_to_end)


def _leave_exceptions() -> None:
    """An error that ends the process is printed as without Ray, which would tell its GCS server first, and wait."""
    names = vars(sys.modules["ray._private.worker"])
    if sys.excepthook is names.get("custom_excepthook"):
        sys.excepthook = names.get("normal_excepthook", sys.__excepthook__)


def _quietly(act: Callable[[], object]) -> None:
    with suppress(Exception):
        act()


@contextmanager
def _loopback() -> Iterator[None]:
    """Let a Ray that is started here listen on 127.0.0.1 alone, as it does by itself on Windows and macOS."""
    from ray._private import ray_constants as constants

    listens, constants.ENABLE_RAY_CLUSTER = constants.ENABLE_RAY_CLUSTER, False
    try:
        with _set({"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}):
            yield
    finally:
        constants.ENABLE_RAY_CLUSTER = listens


@contextmanager
def _without_log_monitor() -> Iterator[None]:
    """Let a Ray that is started here not follow the logs of its processes: none of them is sent to the driver."""
    from ray._private.node import Node

    start = Node.start_log_monitor
    setattr(Node, start.__name__, lambda node: None)
    try:
        yield
    finally:
        setattr(Node, start.__name__, start)


@contextmanager
def _set(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables of the environment for a while."""
    set_before = {name: os.environ.get(name) for name in variables}
    os.environ |= variables
    try:
        yield
    finally:
        for name, value in set_before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _check_address(address: str) -> None:
    """Whether something that may be Ray listens there: ``ray.init`` would try for minutes, and say nothing."""
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdigit():
        raise refusal("address", "a cluster", "be host:port of the head node, 'local' or 'auto'", repr(address))
    try:
        is_ray = is_answering(address)
    except (OSError, OverflowError) as error:
        raise ClusterError(f"No Ray answers at {address}: {error}. Start one there with ray start --head.") from error
    if not is_ray:
        raise ClusterError(f"The server at {address} is not Ray. Start one with ray start --head --port PORT.")


def _is_unauthenticated(error: BaseException | None) -> bool:
    while error is not None:
        if "AuthenticationError" in f"{type(error).__name__} {error}":
            return True
        error = error.__cause__ or error.__context__
    return False


def _first_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


class Place(NamedTuple):
    """Where a shard runs: the id of its process, of its node, and the GPUs that Ray gave it."""

    process: int
    node: str
    gpus: tuple[str, ...]


class ShardActor:
    """A shard in an actor. What it raises is an answer: Ray would print a page for each error that nobody fetched."""

    def __init__(self) -> None:
        self._shard: object = None

    def begin(self, make: Callable[..., Any], *arguments: object) -> tuple[None, None]:
        """The first call after each start: Ray would lose what is given to a constructor, if it is not small."""
        self._shard = make(*arguments)
        return None, None

    def call(self, method: str, *arguments: object) -> tuple[Any, Exception | None]:
        """What the shard's method returns, or raises."""
        if self._shard is None:
            return None, Lost("its process was started again")
        try:
            return getattr(self._shard, method)(*arguments), None
        except Exception as error:
            return None, error.with_traceback(None)

    def pulse(self) -> Place:
        """A sign of life, beside whatever the shard is doing."""
        import ray

        context = ray.get_runtime_context()
        return Place(os.getpid(), context.get_node_id(), tuple(map(str, ray.get_gpu_ids())))


def kill_process(process: int) -> bool:
    """Kill a process of Ray's on this machine; whether it was there."""
    try:
        if b"ray::" not in Path(f"/proc/{process}/cmdline").read_bytes():
            return False
    except OSError:  # gone; or a system without /proc
        if Path("/proc").is_dir():
            return False
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


class RayShards:
    """A ``Backend`` of one actor a shard, named ``emphatic-RUN-shard-3``.

    Args:
        connection: Ray.
        make: What makes a shard in its actor.
        arguments: Its arguments, for each shard.
        run: The name of the run.
        gpus: The GPUs of a shard.
    """

    def __init__(
        self,
        connection: Connection,
        make: Callable[..., Any],
        arguments: Sequence[Sequence[Any]],
        run: str,
        gpus: int = 0,
    ) -> None:
        self._connection, self._ray, self._call = connection, connection.ray, connection.call
        errors = self._ray.exceptions
        self._lost = (errors.RayActorError, errors.ObjectLostError, errors.NodeDiedError, errors.WorkerCrashedError)
        threads, count = connection.threads, len(arguments)
        # What a shard begins with, held here for every process that takes its place, and once if several share it.
        distinct = {id(value): value for values in arguments for value in values}
        references = {number: self.put(value) for number, value in distinct.items()}
        self._begin = [(make, *(references[id(value)] for value in values)) for values in arguments]
        kind = self._ray.remote(concurrency_groups={"pulse": 1})(ShardActor)
        self._actors = [
            kind.options(
                name=f"emphatic-{run}-shard-{index}",
                namespace="emphatic",
                num_cpus=threads,
                num_gpus=gpus,
                max_restarts=-1,
                max_task_retries=0,
                scheduling_strategy="SPREAD",
                runtime_env={"env_vars": dict.fromkeys(_THREADS, str(threads))},
            ).remote()
            for index in range(count)
        ]
        #: The question for a sign of life that is open, and since when.
        self._pulses: list[tuple[float, Any] | None] = [None] * count
        #: When each was last heard of, when it was last said that one is slow, and where they are.
        self._heard, self._said = [time.monotonic()] * count, [time.monotonic()] * count
        self._places: list[Place | None] = [None] * count
        self._node = self._ray.get_runtime_context().get_node_id()
        # All begin at once: to import what a shard needs takes seconds.
        self._begun = {shard: actor.begin.remote(*self._begin[shard]) for shard, actor in enumerate(self._actors)}
        self._look_around(range(count))  # (to know their processes, in case one stops while it begins)
        try:
            for shard in range(count):
                self.revive(shard)
        except BaseException:
            self.end()
            raise

    @property
    def places(self) -> list[Place]:
        """Where each shard runs, as far as it is known."""
        return [place for place in self._places if place is not None]

    @property
    def is_in_one_place(self) -> bool:
        """Whether all shards are on this process's node, and share its object store."""
        return all(place is not None and place.node == self._node for place in self._places)

    def put(self, value: object) -> Any:
        try:
            return self._call(self._ray.put, value)
        except self._ray.exceptions.ObjectStoreFullError:
            wanted = "Use smaller blocks, a smaller 'ahead', or a Ray with a larger object store."
            raise ClusterError(f"Ray's object store is too small for the blocks. {wanted}") from None
        except ClusterError as error:
            raise self._connection.failure(str(error)) from None

    def call(self, shard: int, method: str, *arguments: object) -> Any:
        return self._actors[shard].call.remote(method, *arguments)

    def wait(self, calls: list[Any]) -> list[Any]:
        ready = self._wait(calls)
        if not ready:
            self._look_around(range(len(self._actors)))
        return ready

    def get(self, call: Any) -> Any:
        try:
            answer, error = self._call(self._ray.get, call)
        except ClusterError as fault:
            raise self._connection.failure(str(fault)) from None
        except self._lost as lost:
            raise Lost(_reason(lost)) from None
        except self._ray.exceptions.RayTaskError as failed:
            if isinstance(failed.cause, self._lost):  # what the shard was sent got lost on the way
                raise Lost(_reason(failed.cause)) from None
            raise
        if error is not None:
            raise error
        return answer

    def revive(self, shard: int, method: str = "", *arguments: object) -> Any:
        """The answer of a shard that may have died, as soon as it is back; without a method, when it is."""
        if shard not in self._begun:  # (those that begin have all begun at once)
            self._heard[shard] = self._said[shard] = time.monotonic()
            self._pulses[shard] = None
        why = ""
        while True:
            begun = self._begun.pop(shard, None) or self._actors[shard].begin.remote(*self._begin[shard])
            call = self.call(shard, method, *arguments) if method else begun
            while not self._wait([call]):
                self._look_around([shard])
                self._check_deadline(shard, why)
            try:
                self.get(begun)
                answer = self.get(call)
            except Lost as lost:
                why = str(lost)
                self._check_deadline(shard, why)
                time.sleep(0.05)
            else:
                self._places[shard] = self._find_place(shard)
                return answer

    def check_storage(self, storage: Path) -> None:
        """Every shard must see what the driver writes.

        Args:
            storage: The folder.
        """
        token = f".token-{secrets.token_hex(8)}"
        path = storage / token
        path.touch()
        try:
            blind = [shard for shard in range(len(self._actors)) if not self.revive(shard, "sees", token)]
        finally:
            path.unlink()
        if blind:
            raise ClusterError(
                f"{storage}: shards {', '.join(map(str, blind))} cannot see this folder. "
                "The storage must be a folder that all nodes reach by the same path."
            )

    def failure(self, what: str) -> ClusterError:
        """The error that ends a run, in one line.

        Args:
            what: What is wrong.
        """
        return self._connection.failure(what)

    def end(self) -> None:
        """End the shards."""
        for actor in self._actors:
            with suppress(Exception):
                self._call(self._ray.kill, actor, within=5.0)

    def close(self) -> None:
        self.end()
        self._connection.close()

    # ------------------------------------------------------------------ inside

    def _wait(self, calls: list[Any]) -> list[Any]:
        """Those of some calls whose answers are there, after a while at most."""

        def wait() -> list[Any]:
            # (With fetch_local Ray would use its object store, and end this process when that is gone.)
            ready, _ = self._ray.wait(calls, num_returns=1, timeout=_TURN, fetch_local=False)
            if ready:
                ready, _ = self._ray.wait(calls, num_returns=len(calls), timeout=0, fetch_local=False)
            return list(ready)

        try:
            ready: list[Any] = self._call(wait)
        except ClusterError as error:
            raise self._connection.failure(str(error)) from None
        return ready

    def _look_around(self, shards: Sequence[int]) -> None:
        """Ask shards for a sign of life, and kill those that have given none for too long: Ray starts them again."""
        moment = time.monotonic()
        for shard in shards:
            asked = self._pulses[shard]
            if asked is not None and self._ray.wait([asked[1]], timeout=0, fetch_local=False)[0]:
                with suppress(Exception):  # it died: its other calls say so
                    self._places[shard] = self._call(self._ray.get, asked[1])
                    self._heard[shard] = moment
                asked = None
            if asked is None:
                pulse = self._actors[shard].pulse.options(concurrency_group="pulse")
                self._pulses[shard] = (moment, pulse.remote())
            elif moment - asked[0] > _SILENT and self._places[shard] is not None:
                self._put_down(shard)
            if (
                moment - max(self._said[shard], self._heard[shard] - _PATIENT) > _PATIENT
                and moment - self._heard[shard] < 10
            ):
                self._said[shard] = moment
                _log.warning("shard %d is alive, but has not ended its block for %.0f s", shard, _PATIENT)

    def _put_down(self, shard: int) -> None:
        place, self._places[shard], self._pulses[shard] = self._places[shard], None, None
        assert place is not None
        what = f"shard {shard}, process {place.process}, does not answer: it is killed and started again"
        _log.warning("%s; Ray's log: %s", what, self._connection.keep_log())
        if place.node == self._node:
            kill_process(place.process)
            return
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        there = NodeAffinitySchedulingStrategy(place.node, soft=False)
        with suppress(Exception):  # the node may be gone; Ray finds that out by itself
            killer = self._ray.remote(num_cpus=0, max_retries=0)(kill_process)
            killer.options(scheduling_strategy=there).remote(place.process)

    def _find_place(self, shard: int) -> Place | None:
        pulse = self._actors[shard].pulse.options(concurrency_group="pulse").remote()
        with suppress(Exception):
            if self._wait([pulse]):
                place: Place = self._call(self._ray.get, pulse)
                return place
        return None

    def _check_deadline(self, shard: int, why: str) -> None:
        """``ClusterError`` if a shard has given no sign of life for too long; it blames what is at fault."""
        if time.monotonic() - self._heard[shard] <= _BACK_WITHIN:
            return
        threads, alive = self._connection.threads, self._connection.nodes()
        room = sum(int(node.get("CPU", 0)) // threads for node in alive)
        if room < len(self._actors):
            cpus = " + ".join(str(int(node.get("CPU", 0))) for node in alive)
            why = f"{why or 'it did not answer'}, and the nodes that are left, with {cpus} CPUs, have no room for it"
        what = f"did not come back within {_BACK_WITHIN:.0f} s: {why}"
        if not why:
            what = f"has not answered for {_BACK_WITHIN:.0f} s: its process is stopped, or cannot start"
        raise self._connection.failure(f"Shard {shard} {what}")


def run_in_shards(
    backend: RayShards, shards: int, method: str, tasks: Iterator[tuple[Any, Any]]
) -> Iterator[tuple[Any, Any]]:
    """The answers of shards to tasks, with the name of each, as they are done. A task whose shard died is sent again.

    Args:
        backend: The shards.
        shards: Their number.
        method: The method of a shard that takes a task.
        tasks: The name of each task, and the task.
    """
    idle, lost_tasks = list(range(shards)), deque[tuple[Any, Any]]()
    running: dict[Any, tuple[int, tuple[Any, Any]]] = {}
    deaths: dict[Any, int] = {}
    while True:
        while idle and (task := lost_tasks.popleft() if lost_tasks else next(tasks, None)) is not None:
            shard = idle.pop()
            running[backend.call(shard, method, task[1])] = shard, task
        if not running:
            return
        for call in backend.wait(list(running)):
            shard, task = running.pop(call)
            idle.append(shard)
            try:
                answer = backend.get(call)
            except Lost as lost:
                deaths[task[0]] = deaths.get(task[0], 0) + 1
                if deaths[task[0]] == _ATTEMPTS:
                    why = f"Task {task[0]} has lost {_ATTEMPTS} shards, the last one because {lost}"
                    raise backend.failure(why) from None
                _log.warning("shard %d failed: %s; restarting it and its task", shard, lost)
                backend.revive(shard)
                lost_tasks.append(task)
            else:
                yield task[0], answer


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
