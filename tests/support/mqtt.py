"""A client of a broker."""

from __future__ import annotations

import json
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

__all__ = ["Watcher"]


class Watcher:
    """A client that publishes, and keeps what comes: the last payload of each topic, and all of them in order."""

    def __init__(self, port: int, *topics: str) -> None:
        self.last: dict[str, bytes] = {}
        self.messages: list[tuple[str, bytes, bool]] = []
        self.client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
        self.client.on_message = lambda _client, _data, message: self._keep(message)
        self.client.connect("127.0.0.1", port)
        for topic in topics:
            self.client.subscribe(topic, qos=1)
        self.client.loop_start()

    def _keep(self, message: paho.MQTTMessage) -> None:
        self.last[message.topic] = bytes(message.payload)
        self.messages.append((message.topic, bytes(message.payload), message.retain))

    def send(
        self, topic: str, payload: Any, *, id: str | None = None, name: str = "Idempotency-Key", retain: bool = False
    ) -> None:
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        if id is not None:
            properties.UserProperty = [(name, id)]
        body = payload if isinstance(payload, bytes) else json.dumps(payload)
        sent = self.client.publish(topic, body, qos=1, retain=retain, properties=properties)
        sent.wait_for_publish(30)

    def configs(self, component: str) -> dict[str, Any]:
        """The descriptions of entities, by their names."""
        found = [
            json.loads(body) for topic, body in self.last.items() if topic.startswith(f"homeassistant/{component}/")
        ]
        return {config["name"]: config for config in found}

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.disconnect()
        self.client.loop_stop()
