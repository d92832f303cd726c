"""Readings from an MQTT broker, and predictions to one.

The session is persistent and messages are acknowledged by hand, once their reading is safe: what the service has not
acknowledged when it is killed the broker sends again. With QoS 1 a message may also come twice.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from emphatic.serve.service import Incoming, NotJson, Receipt, Service, read_json
from emphatic.serve.sources import Address, StreamSource
from emphatic.tables.table import Malformed

if TYPE_CHECKING:
    from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
    from paho.mqtt.properties import Properties
    from paho.mqtt.reasoncodes import ReasonCode

__all__ = ["MQTT", "MqttPublisher", "MqttSource", "import_paho"]

logger = logging.getLogger("emphatic.serve")

#: Messages that the publisher keeps for a broker that is away.
_QUEUED = 10_000
#: A message that is longer is no reading.
_LONGEST = 1 << 23


def import_paho() -> ModuleType:
    """The client; it is imported only where an address asks for it."""
    import paho.mqtt.client as client

    return client


def _connect(address: Address, name: str, model: Path, purpose: str, **options: bool) -> Client:
    """A client that connects, and connects again, by itself; its name is always the same for the same model."""
    paho = import_paho()
    digest = hashlib.sha256(str(model.absolute()).encode()).hexdigest()[:12]
    client: Client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id=f"emphatic-{name}-{digest}", **options)
    if address.user is not None:
        client.username_pw_set(address.user, address.password)
    if address.encrypted:
        client.tls_set_context(address.tls.context())
    client.reconnect_delay_set(1, 10)

    def lost(
        _client: Client, _data: object, _flags: DisconnectFlags, reason: ReasonCode, _properties: Properties | None
    ) -> None:
        if reason.is_failure:
            logger.warning("%r: the connection is lost: %s; trying again.", address, reason)

    def failed(_client: Client, _data: object) -> None:
        logger.warning("%r cannot be reached: is a broker running there? Trying again.", address)

    client.on_disconnect, client.on_connect_fail = lost, failed
    logger.info("%s %r.", purpose, address)
    return client


class _Connection:
    """A client and the thread that it works in."""

    def __init__(self, address: Address, client: Client) -> None:
        self._address, self._client = address, client

    def start(self) -> None:
        """Connect, and begin to read or send."""
        self._client.connect_async(self._address.host, self._address.port)
        self._client.loop_start()

    def stop(self) -> None:
        """Read and send no more; what is not acknowledged comes again."""
        self._client.disconnect()
        self._client.loop_stop()


class MqttSource(_Connection):
    """Readings from a topic: a JSON object a message, or a list of them."""

    def __init__(self, address: Address, service: Service) -> None:
        options = {"clean_session": False, "manual_ack": True}
        super().__init__(address, _connect(address, "source", service.model, "readings come from", **options))
        self._service = service
        self._client.on_connect, self._client.on_message = self._subscribe, self._receive

    def _subscribe(
        self, client: Client, _data: object, _flags: ConnectFlags, reason: ReasonCode, _properties: Properties | None
    ) -> None:
        if reason.is_failure:
            logger.error("%r refuses the connection: %s.", self._address, reason)
        else:
            client.subscribe(self._address.name, qos=1)
            logger.info("%r: connected.", self._address)

    def _receive(self, client: Client, _data: object, message: MQTTMessage) -> None:
        """A message. While the inbox is full this waits, and nothing more is read."""
        mid, qos, payload = message.mid, message.qos, bytes(message.payload)
        try:
            readings = [Incoming(Malformed("too long"))] if len(payload) > _LONGEST else read_json(payload)[0]
        except NotJson as error:
            readings = [Incoming(Malformed(str(error)))]
        unacknowledged = len(readings)

        def acknowledge(receipt: Receipt) -> None:  # in the thread that learns
            nonlocal unacknowledged
            unacknowledged -= 1
            if not unacknowledged and receipt.taken:
                client.ack(mid, qos)

        for incoming in readings:
            if not self._service.inbox.put(incoming.answered_by(acknowledge)):
                return
        if not readings:  # an empty list
            client.ack(mid, qos)


class MqttPublisher(_Connection):
    """Predictions to a topic, a line a message."""

    def __init__(self, address: Address, model: Path) -> None:
        super().__init__(address, _connect(address, "publisher", model, "predictions go to"))
        self._lost = 0
        self._client.max_queued_messages_set(_QUEUED)
        self._client.max_inflight_messages_set(1000)

    def __call__(self, line: bytes) -> None:
        """Send a line; one that the broker's absence leaves no room for is lost, and counted."""
        sent = self._client.publish(self._address.name, line.rstrip(b"\n"), qos=1)
        if sent.rc == import_paho().MQTT_ERR_QUEUE_SIZE:
            self._lost += 1
            if self._lost in (1, 10, 100) or self._lost % 1000 == 0:
                logger.warning("%r: %d predictions could not be sent so far.", self._address, self._lost)


MQTT = StreamSource(
    name="mqtt",
    read=MqttSource,
    publish=MqttPublisher,
    form="mqtt://HOST:PORT/TOPIC",
    port=1883,
    encrypted_port=8883,
    title="MQTT",
    package="paho-mqtt",
    extra="emphatic[mqtt]",
)
