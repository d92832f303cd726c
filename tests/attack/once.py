"""Kills under load by MQTT: ``python -m tests.attack.once --kills 100 --broker-kills 20``.

A publisher sends readings by MQTT with QoS 1, and sends again what the broker has not acknowledged. Meanwhile the
service and the broker are killed, at random. Predictions go to a second broker, which is not killed: they tell which
reading was learned from at which step. At the end every reading must have been learned from once, every prediction
published, and the model must be bit for bit that of an undisturbed run over the same readings.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen
from tempfile import TemporaryDirectory
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.support.mqtt import Watcher
from tests.support.services import FLAGS, Served, free_port, mosquitto, readings, same_as_undisturbed, wait_for

__all__ = ["Counts", "kill_under_load"]

#: Seconds for which the broker may not have written down what it acknowledged: its interval, and a little more.
UNWRITTEN = 3.0
BEGIN = 1_700_000_000
#: The readings of the warm-up, which have no predictions.
WITHOUT = 59


@dataclass
class Counts:
    """What became of the readings.

    Attributes:
        kills: Kills of the service.
        broker_kills: Kills of the broker.
        sent: Readings that were sent.
        steps: Steps of the model at the end.
        doubled: Readings that were learned from more than once.
        lost: Readings that the broker acknowledged and had, and that were not learned from.
        lost_by_broker: Readings that the broker acknowledged within its interval before a kill, and lost.
        repeated: Readings that came again since the last start of the service, and were recognised.
        unpublished: Steps whose prediction was not published.
        differing: Steps that were published twice with different predictions.
    """

    kills: int = 0
    broker_kills: int = 0
    sent: int = 0
    steps: int = 0
    doubled: int = 0
    lost: int = 0
    lost_by_broker: int = 0
    repeated: int = 0
    unpublished: int = 0
    differing: int = 0


@dataclass
class Sender:
    """Sends readings at a steady rate, each with its number as id if ``ids``, until it is stopped."""

    port: int
    rate: float
    ids: bool
    acknowledged: dict[int, float] = field(default_factory=dict)
    sent: int = 0
    stopped: bool = False

    def __post_init__(self) -> None:
        self.client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id="sender",
            protocol=paho.MQTTv5,
        )
        self.client.reconnect_delay_set(1, 1)
        self.client.on_publish = self._acknowledge
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = 3600
        self.client.connect("127.0.0.1", self.port, clean_start=False, properties=properties)
        self.client.loop_start()
        self.numbers: dict[int, int] = {}  # of a reading, by that of its message

    def _acknowledge(self, _client: paho.Client, _data: Any, mid: int, *_: Any) -> None:
        self.acknowledged.setdefault(mid, time.monotonic())

    def send(self, count: int = 1) -> None:
        """The next readings."""
        for row in readings(count, self.sent):
            properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            if self.ids:
                properties.UserProperty = [("Idempotency-Key", str(self.sent))]
            message = self.client.publish("plant/readings", json.dumps(row), qos=1, properties=properties)
            self.numbers[message.mid] = self.sent
            self.sent += 1

    def run(self, most: int) -> None:
        """Send until ``stopped``."""
        while not self.stopped and self.sent < most:
            self.send()
            time.sleep(1 / self.rate)

    def times(self) -> dict[int, float]:
        """When the broker acknowledged each reading."""
        return {self.numbers[mid]: seconds for mid, seconds in dict(self.acknowledged).items()}


class Broker:
    """A broker that can be killed, and comes back with what it has written to the disk."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder, self._port = folder, port
        self._stack = ExitStack()
        self.killed: list[float] = []
        self.process: Popen[bytes] = self._stack.enter_context(mosquitto(folder, port, "autosave_interval 1"))

    def kill(self, pause: float) -> None:
        self.process.kill()
        self.process.wait(10)
        self.killed.append(time.monotonic())
        time.sleep(pause)
        self._stack.close()
        self.process = self._stack.enter_context(mosquitto(self._folder, self._port, "autosave_interval 1"))

    def close(self) -> None:
        self._stack.close()


def _published(watcher: Watcher) -> list[dict[str, Any]]:
    """The predictions that came to a broker."""
    return [json.loads(payload) for _, payload, _ in list(watcher.messages)]


@contextmanager
def _brokers(folder: Path) -> Iterator[tuple[Broker, int, Watcher, int]]:
    """The broker of readings and that of predictions, with their ports."""
    port, other_port = free_port(), free_port()
    for name in ("broker", "other"):
        (folder / name).mkdir(parents=True)
    broker = Broker(folder / "broker", port)
    try:
        with mosquitto(folder / "other", other_port), Watcher(other_port, "predictions") as watcher:
            yield broker, port, watcher, other_port
    finally:
        broker.close()


def kill_under_load(
    folder: Path,
    kills: int,
    broker_kills: int,
    *,
    ids: bool = True,
    rate: float = 50.0,
    seed: int = 1,
) -> Counts:
    """Kill the service and the broker at random while readings come.

    Args:
        folder: An empty folder.
        kills: Kills of the service.
        broker_kills: Kills of the broker, between them.
        ids: Whether readings have ids.
        rate: Readings a second.
        seed: What decides when to kill.
    """
    rng, counts = random.Random(seed), Counts(kills, broker_kills)
    with _brokers(folder) as (broker, port, watcher, other_port):
        model, source = folder / "model", f"mqtt://127.0.0.1:{port}/plant/readings"
        publish = f"mqtt://127.0.0.1:{other_port}/predictions"
        options = (source, "--publish", publish, *FLAGS, "--save-every", "1s", "--topic-names", "plant/readings=")
        sender = Sender(port, rate, ids)
        with Served(model, *options) as service:  # the broker remembers who has subscribed
            wait_for(lambda: any("connected." in line for line in service.log))
            sender.send(WITHOUT + 1)
            wait_for(lambda: service.metric("step") == WITHOUT + 1)
            time.sleep(2 * UNWRITTEN if broker_kills else 0)
            service.kill()
        thread = threading.Thread(target=sender.run, args=(60_000,), daemon=True)
        thread.start()
        with_broker = set(rng.sample(range(kills), broker_kills))
        for kill in range(kills):
            with Served(model, *options, wait=rng.random() < 0.5) as service:  # or while readings wait for kernels
                assert service.url, service.log
                time.sleep(rng.uniform(0.0, 1.0))
                if kill in with_broker:
                    broker.kill(rng.uniform(0.0, 0.5))
                    time.sleep(rng.uniform(0.0, 2.0))
                service.kill()
        sender.stopped = True
        thread.join(10)
        with Served(model, *options) as service:
            wait_for(lambda: len(sender.acknowledged) == sender.sent, 60, "the broker acknowledges all readings")
            _wait_until_quiet(service)
            counts.repeated, counts.steps = int(service.metric("repeated_total")), int(service.metric("step"))
            service.stop()
        last = counts.steps - 1
        wait_for(lambda: any(line["step"] == last for line in _published(watcher)), what="the last prediction")
        lines = _published(watcher)
    counts.sent = sender.sent
    _count(counts, lines, sender, broker.killed)
    _compare(model, lines, counts.steps, folder)
    return counts


def _wait_until_quiet(service: Served) -> None:
    """Until nothing has come for three seconds, and all predictions are published."""
    step, since, until = -1, time.monotonic(), time.monotonic() + 300
    while time.monotonic() - since < 3:
        assert time.monotonic() < until
        if (now := int(service.metric("step"))) != step:
            step, since = now, time.monotonic()
        time.sleep(0.2)
    wait_for(lambda: not service.client.get("/readyz").json()["publishers"][0]["lag"])


def _count(counts: Counts, lines: list[dict[str, Any]], sender: Sender, killed: list[float]) -> None:
    learned = {step: step for step in range(WITHOUT)}
    texts: dict[int, dict[str, Any]] = {}
    for line in lines:
        learned[line["step"]] = line["time"] - BEGIN
        counts.differing += texts.setdefault(line["step"], line) != line
    times = Counter(learned.values())
    counts.unpublished = counts.steps - len(learned)
    counts.doubled = sum(times.values()) - len(times)
    for number, seconds in sender.times().items():
        if number not in times:
            is_unwritten = any(0 <= kill - seconds < UNWRITTEN for kill in killed)
            counts.lost_by_broker += is_unwritten
            counts.lost += not is_unwritten


def _compare(model: Path, lines: list[dict[str, Any]], steps: int, folder: Path) -> None:
    """The model is bit for bit that of an undisturbed run over what was learned from."""
    learned = {step: step for step in range(WITHOUT)} | {line["step"]: line["time"] - BEGIN for line in lines}
    same_as_undisturbed(model, [readings(1, learned[step])[0] for step in range(steps)], folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--broker-kills", type=int, default=20)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--without-ids", action="store_true")
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder:
        counts = kill_under_load(
            Path(folder) / "run",
            arguments.kills,
            arguments.broker_kills,
            ids=not arguments.without_ids,
            rate=arguments.rate,
            seed=arguments.seed,
        )
    print(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in vars(counts).items()))
    return (
        1
        if counts.lost or counts.unpublished or counts.differing or (counts.doubled and not arguments.without_ids)
        else 0
    )


if __name__ == "__main__":
    sys.exit(main())
