"""Readings from an MQTT broker, and predictions to one.

The session is persistent and messages are acknowledged by hand, once their reading is safe: what the service has not
acknowledged when it is killed the broker sends again. With QoS 1 a message may also come twice; the ids of readings
tell which were learned from. Whether a message is marked as a duplicate says nothing: its first copy may never have
arrived.

One client subscribes and publishes where both are at one broker, with "no local". Every prediction has a user property
by which any instance of this service skips it. MQTT 3.1.1 (``?version=3.1.1`` behind a topic) knows neither.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from emphatic.nexting.serve.home_assistant import OFFLINE, ONLINE, HomeAssistant
from emphatic.nexting.serve.payloads import TimeStamps, name_fields, read_message
from emphatic.nexting.serve.service import Incoming, Receipt, Service, with_ids
from emphatic.nexting.serve.sources import Address, StreamSource, is_same_server
from emphatic.nexting.serve.status import ConnectionStatus
from emphatic.nexting.tables.table import Malformed

if TYPE_CHECKING:
    from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
    from paho.mqtt.properties import Properties
    from paho.mqtt.reasoncodes import ReasonCode

__all__ = ["MQTT", "PREDICTION", "MqttPublisher", "MqttSource", "import_paho", "topics_overlap"]

logger = logging.getLogger("emphatic.serve")

#: Messages that the publisher keeps for a broker that is away.
_QUEUED = 10_000
#: Messages that are sent before the first of them is confirmed.
_INFLIGHT = 1000
#: A message that is longer is no reading.
_LONGEST = 1 << 23
#: A description of an entity of Home Assistant that is longer is ignored.
_LONGEST_CONFIG = 1 << 16
#: The user property of everything that this service publishes.
PREDICTION = ("emphatic", "prediction")
#: The user properties that have the id of a message, in small letters.
_ID_PROPERTIES = ("idempotency-key", "reading_id")
#: What stands behind a topic for a broker that does not know MQTT 5.
_OLD_VERSION = "?version=3.1.1"
#: Seconds for a broker to read what was acknowledged before the service ends.
_READ_WITHIN = 2.0
#: Seconds for which a broker keeps the session of a client that is away: for ever.
_FOREVER = 0xFFFFFFFF


def import_paho() -> ModuleType:
    """The client; it is imported only where an address asks for it."""
    import paho.mqtt.client as client

    return client


def topics_overlap(wanted: str, topic: str) -> bool:
    """Whether a subscription, with + and #, receives what is published to a topic.

    >>> topics_overlap("plant/#", "plant/predictions"), topics_overlap("plant/+/a", "plant/b/c")
    (True, False)
    """
    if wanted.startswith("$share/"):
        wanted = wanted.split("/", 2)[-1]
    levels, names = wanted.split("/"), topic.split("/")
    if names[0].startswith("$") and levels[0] in ("+", "#"):
        return False
    for i, level in enumerate(levels):
        if level == "#":
            return True
        if i >= len(names) or level not in ("+", names[i]):
            return False
    return len(levels) == len(names)


def _split_version(address: Address) -> tuple[str, bool]:
    """The topic of an address, and whether its broker knows MQTT 5."""
    return address.name.removesuffix(_OLD_VERSION), not address.name.endswith(_OLD_VERSION)


def _overlaps(source: Address, publisher: Address) -> bool:
    """Whether predictions would come back: with MQTT 5 only those to the very topic that is read count as a mistake."""
    (wanted, is_new), (topic, publishes_new) = _split_version(source), _split_version(publisher)
    if wanted == topic or (is_new and publishes_new):
        return wanted == topic
    return any(topics_overlap(wanted, published) for published in (topic, f"{topic}/availability"))


class _Connection:
    """A client, and the thread that it works in; a source and a publisher at one broker share it.

    It connects, and connects again, by itself. Its name is always the same for the same model.
    """

    def __init__(self, address: Address, name: str, model: Path, *, lasting: bool) -> None:
        paho = import_paho()
        digest = hashlib.sha256(str(model.absolute()).encode()).hexdigest()[:12]
        self.address, self.is_new = address, _split_version(address)[1]
        options: dict[str, Any] = {"client_id": f"emphatic-{name}-{digest}", "manual_ack": lasting}
        options |= {"protocol": paho.MQTTv5} if self.is_new else {"clean_session": not lasting}
        self.client: Client = paho.Client(paho.CallbackAPIVersion.VERSION2, **options)
        if address.user is not None:
            self.client.username_pw_set(address.user, address.password)
        if address.encrypted:
            self.client.tls_set_context(address.tls.context())
        self.client.reconnect_delay_set(1, 3)
        self.client.on_connect, self.client.on_disconnect = self._connected, self._lost
        self.client.on_connect_fail = self._failed
        self.lasting, self._users = lasting, 0
        # A broker closes the connection of a client that sends more at a time than it allows, and paho does not look at
        # what it allows: at first as many as mosquitto does, then as many as this broker has said.
        self._allowed = 20
        self.client.max_inflight_messages_set(self._allowed)
        #: Counts connections and their ends.
        self.number = 0
        #: Those who want to know of the connection, and what is called when it is there.
        self.statuses: list[ConnectionStatus] = []
        self.greet: list[Any] = []

    def start(self) -> None:
        """Connect, for the first of those who share this."""
        self._users += 1
        if self._users > 1:
            return
        options: dict[str, Any] = {}
        if self.is_new:
            from paho.mqtt.packettypes import PacketTypes
            from paho.mqtt.properties import Properties

            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = _FOREVER if self.lasting else 0
            options = {"properties": properties, "clean_start": not self.lasting}
        # A name that cannot be resolved, say: the thread tries again.
        self.client.connect_async(self.address.host, self.address.port, **options)
        self.client.loop_start()

    def stop(self) -> None:
        """Disconnect, for the last of those who share this; what is not acknowledged comes again."""
        self._users -= 1
        if self._users:
            return
        if self.lasting and self.client.is_connected():
            self._wait_for_broker()
        self.client.disconnect()
        self.client.loop_stop()

    def _wait_for_broker(self) -> None:
        """Wait until the broker has read all acknowledgements, or for a moment.

        A socket that is closed while messages wait in it resets the connection, and the broker may lose what it has not
        read by then. It answers in order: so it is asked for something harmless, to end a subscription that is none.
        """
        answered = threading.Event()
        self.client.on_unsubscribe = lambda *_: answered.set()
        if self.client.unsubscribe(f"emphatic/{secrets.token_hex(8)}")[0] == 0:
            answered.wait(_READ_WITHIN)

    def _connected(
        self, _client: Client, _data: object, flags: ConnectFlags, reason: ReasonCode, properties: Properties | None
    ) -> None:
        if reason.is_failure:
            advice = f" Add {_OLD_VERSION} to the topic." if "protocol" in str(reason).lower() else ""
            logger.error("%r rejects the connection: %s.%s", self.address, reason, advice)
            self._tell(f"rejected: {reason}")
            return
        self._allowed = min(_INFLIGHT, getattr(properties, "ReceiveMaximum", _INFLIGHT))
        self.number += 1
        for status in self.statuses:
            status.connect()
        for greet in self.greet:
            greet(flags)

    def _lost(
        self,
        client: Client,
        _data: object,
        _flags: DisconnectFlags,
        reason: ReasonCode,
        _properties: Properties | None,
    ) -> None:
        self.number += 1  # before the next connection: nothing of this one may be acknowledged there
        with suppress(RuntimeError):  # not while it is connected
            client.max_inflight_messages_set(self._allowed)
        if reason.is_failure:
            logger.warning("%r: the connection is lost: %s; trying again.", self.address, reason)
            self._tell(str(reason))

    def _failed(self, _client: Client, _data: object) -> None:
        logger.warning("%r cannot be reached: is a broker running there? Trying again.", self.address)
        self._tell("it cannot be reached")

    def _tell(self, error: str) -> None:
        for status in self.statuses:
            status.disconnect(error)


class MqttSource:
    """Readings from a topic: a JSON object a message, a list of them, or a single value."""

    def __init__(self, address: Address, service: Service) -> None:
        self._address, self._service, self._key = address, service, repr(address)
        self._topic, self._is_new = _split_version(address)
        self._status = service.add_source(self._key)
        self._unacknowledged = 0
        publisher = service.publish
        if isinstance(publisher, MqttPublisher) and publisher.can_share(address):
            self._connection = _Connection(address, "source", service.model, lasting=True)
            publisher.share(self._connection)
        else:
            self._connection = _Connection(address, "source", service.model, lasting=True)
        self._connection.statuses.append(self._status)
        self._connection.greet.append(self._subscribe)
        self._connection.client.on_message = self._receive
        self._was_connected = False
        self._stamps: TimeStamps | None = None
        logger.info("readings come from %r.", address)

    def start(self) -> None:
        """Connect, and begin to read."""
        self._connection.start()

    def stop(self) -> None:
        """Read no more; what is not acknowledged comes again."""
        self._connection.stop()

    def _subscribe(self, flags: ConnectFlags) -> None:
        paho, client = import_paho(), self._connection.client
        known_until = self._service.positions.get(self._key)
        if not flags.session_present and (self._was_connected or known_until is not None):
            start = self._status.last_message or known_until or self._status.since
            self._status.lose(
                _iso(start), _iso(time.time()), None, "the broker has forgotten the session and its stored messages"
            )
        self._was_connected = True
        if self._is_new:
            # Of messages that the broker retains, only those of a new subscription.
            client.subscribe(self._topic, options=paho.SubscribeOptions(qos=1, noLocal=True, retainHandling=1))
        else:
            client.subscribe(self._topic, qos=1)
        logger.info("%r: connected.", self._address)

    def _receive(self, client: Client, _data: object, message: MQTTMessage) -> None:
        """A message. While the inbox is full this waits, and nothing more is read."""
        mid, qos, payload = message.mid, message.qos, bytes(message.payload)
        self._status.count_message()
        properties = list(getattr(message.properties, "UserProperty", ()))
        if PREDICTION in [tuple(entry) for entry in properties] or _is_discovery(message.topic):
            self._status.skipped += 1
            client.ack(mid, qos)
            return
        readings = [Incoming(Malformed("too long"))] if len(payload) > _LONGEST else read_message(payload)
        id = next((value for name, value in properties if name.lower() in _ID_PROPERTIES), None)
        digest = hashlib.blake2b(payload, digest_size=8).hexdigest()
        origin = {self._key: round(time.time(), 3), "payload": [message.topic, digest]}
        readings = with_ids(readings, message.topic, self._service.id_field, id, origin)
        readings = [self._name(incoming, message.topic) for incoming in readings]
        remaining = len(readings)
        self._unacknowledged += 1
        self._status.lag = self._unacknowledged
        connection = self._connection.number

        def acknowledge(receipt: Receipt) -> None:  # in the thread that learns
            nonlocal remaining
            remaining -= 1
            if remaining:
                return
            self._unacknowledged -= 1
            self._status.lag = self._unacknowledged
            # After a new connection the number may be that of another message.
            if receipt.taken and connection == self._connection.number:
                client.ack(mid, qos)

        for incoming in readings:
            # Whether the last of several readings is known says it of all of them.
            retained = message.retain and incoming is readings[-1] and len(readings) == 1
            if not self._service.inbox.put(incoming.answered_by(acknowledge)._replace(retained=retained)):
                return
        if not readings:  # an empty list
            self._unacknowledged -= 1
            client.ack(mid, qos)

    def _name(self, incoming: Incoming, topic: str) -> Incoming:
        predictor = self._service.predictor
        if self._stamps is None:
            self._stamps = TimeStamps(*predictor.example_time())
        known = () if predictor.horde is None else predictor.columns
        return name_fields(incoming, topic, self._address.options.topic_names, self._stamps, known)


def _is_discovery(topic: str) -> bool:
    """Whether a message describes an entity to Home Assistant, and is no reading."""
    return topic.startswith("homeassistant/") and topic.endswith("/config")


def _iso(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


class MqttPublisher:
    """Predictions to a topic, a line a message, each at least once."""

    def __init__(self, address: Address, model: Path) -> None:
        self._address, self._topic = address, _split_version(address)[0]
        self.status = ConnectionStatus(repr(address))
        self._connection = _Connection(address, "publisher", model, lasting=False)
        # The lines that are not confirmed, by the numbers of their messages; empty for other messages.
        self._sent: dict[int, bytes] = {}
        self._early: set[int] = set()  # confirmed before their line was here
        options = address.options
        self._home_assistant: HomeAssistant | None = None
        self._announced: dict[str, bytes] = {}  # the discovery messages that were sent
        self._shape: object = None  # the entities of the last line
        if "+" in self._topic or "#" in self._topic:
            raise ValueError(f"--publish {address!r}: predictions go to one topic, without + and #.")
        if options.home_assistant:
            self._home_assistant = HomeAssistant(
                model,
                self._topic,
                units=options.units,
                names=options.topic_names,
            )
        self._prepare()
        logger.info("predictions go to %r.", address)

    def can_share(self, address: Address) -> bool:
        """Whether a source at an address can use the same client."""
        mine = self._connection.address
        same = (mine.user, mine.password, mine.encrypted) == (address.user, address.password, address.encrypted)
        return same and self._connection.is_new == _split_version(address)[1] and is_same_server(mine, address)

    def share(self, connection: _Connection) -> None:
        """Publish by the client of a source."""
        self._connection = connection
        self._prepare()

    def _prepare(self) -> None:
        self._connection.statuses.append(self.status)
        client = self._connection.client
        client.max_queued_messages_set(_QUEUED)
        client.on_publish = self._confirmed
        self._properties = will = None
        if self._connection.is_new:
            from paho.mqtt.packettypes import PacketTypes
            from paho.mqtt.properties import Properties

            self._properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            will = Properties(PacketTypes.WILLMESSAGE)  # type: ignore[no-untyped-call]
            self._properties.UserProperty = will.UserProperty = [PREDICTION]
        if self._home_assistant is not None:
            client.will_set(self._home_assistant.availability, OFFLINE, qos=1, retain=True, properties=will)
            self._connection.greet.append(self._appear)
            for subscription in self._home_assistant.subscriptions:
                client.message_callback_add(subscription, self._learn_unit)

    def start(self) -> None:
        """Connect, and begin to send."""
        self._connection.start()

    def stop(self) -> None:
        """Send no more. What the broker has not confirmed was saved with the model, and is sent again."""
        if self._home_assistant is not None and self.status.state == "connected":
            self._send(self._home_assistant.availability, OFFLINE, retain=True)
        until = time.monotonic() + 1.0
        while self._sent and self.status.state == "connected" and time.monotonic() < until:
            time.sleep(0.01)
        self._connection.stop()

    def __call__(self, line: bytes) -> None:
        """Send a line; one that the broker's absence leaves no room for is lost, and counted."""
        if self._home_assistant is not None:
            self._announce(self._home_assistant, json.loads(line))
        if not self._send(self._topic, line.rstrip(b"\n"), line):
            self._count_lost("the buffer was full while the broker was not available")

    def _send(self, topic: str, payload: bytes, line: bytes = b"", *, retain: bool = False) -> bool:
        """Send a message; False if there is no room for it."""
        sent = None
        if len(self._sent) < _QUEUED:
            client = self._connection.client
            sent = client.publish(topic, payload, qos=1, retain=retain, properties=self._properties)
        is_queued = sent is not None and sent.rc != import_paho().MQTT_ERR_QUEUE_SIZE
        if sent is not None and is_queued:
            self._sent[sent.mid] = line
            if sent.mid in self._early:
                self._forget(sent.mid)
        self.status.lag = len(self._sent)
        return is_queued

    def unconfirmed(self) -> list[bytes]:
        """The lines that the broker has not confirmed."""
        return list(dict.fromkeys(filter(None, list(self._sent.values()))))

    # ------------------------------------------------------------------ Home Assistant

    def _announce(self, home_assistant: HomeAssistant, fields: dict[str, Any]) -> None:
        """Describe the entities of a line that were not described as they are now."""
        shape = [(signal, tuple(horizons)) for signal, horizons in fields["predictions"].items()]
        if shape == self._shape:
            return
        for topic, payload in home_assistant.describe(fields).items():
            if self._announced.get(topic) != payload and self._send(topic, payload, retain=True):
                self._announced[topic] = payload
        self._shape = shape

    def _appear(self, _flags: ConnectFlags) -> None:
        """Say that the service is there, and describe the entities to a broker that may have forgotten them."""
        home_assistant = self._home_assistant
        assert home_assistant is not None
        client = self._connection.client
        for subscription in home_assistant.subscriptions:
            client.subscribe(subscription, qos=0)
        self._send(home_assistant.availability, ONLINE, retain=True)
        for topic, payload in list(self._announced.items()):
            self._send(topic, payload, retain=True)

    def _learn_unit(self, client: Client, _data: object, message: MQTTMessage) -> None:
        if message.qos and self._connection.lasting:  # of an overlapping subscription of the source
            client.ack(message.mid, message.qos)
        home_assistant, payload = self._home_assistant, bytes(message.payload)
        if home_assistant is not None and len(payload) < _LONGEST_CONFIG and home_assistant.learn(payload):
            self._shape = None  # with the next line all entities are described again

    # ------------------------------------------------------------------ what was sent

    def _confirmed(
        self, _client: Client, _data: object, mid: int, reason: ReasonCode, _properties: Properties | None
    ) -> None:
        # No lock: paho holds one of its own here, and another thread may wait for that in ``publish``.
        self._early.add(mid)
        if mid in self._sent:
            self._forget(mid)
        self.status.count_message()
        self.status.lag = len(self._sent)
        if reason.is_failure:
            self._count_lost(f"the broker rejected it: {reason}")

    def _forget(self, mid: int) -> None:
        self._sent.pop(mid, None)
        self._early.discard(mid)

    def _count_lost(self, reason: str) -> None:
        self.status.lost += 1
        lost = self.status.lost
        if lost in (1, 10, 100) or lost % 1000 == 0:
            logger.warning("%r: %d predictions were not published so far: %s.", self._address, lost, reason)


MQTT = StreamSource(
    name="mqtt",
    read=MqttSource,
    publish=MqttPublisher,
    form="mqtt://HOST:PORT/TOPIC",
    port=1883,
    encrypted_port=8883,
    title="MQTT",
    overlaps=_overlaps,
    package="paho-mqtt",
    extra="emphatic[mqtt]",
)
