"""Home Assistant: predictions, intervals and alarms as entities, by MQTT discovery.

Home Assistant makes an entity of each retained message at ``homeassistant/sensor/<object_id>/config``. A value is a
field of the message that the predictions are published in, by a template. All entities share a topic that says whether
the service is there; the broker itself writes "offline" to it when the service dies.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from emphatic.nexting.serve.payloads import TopicNames

__all__ = ["OFFLINE", "ONLINE", "HomeAssistant"]

ONLINE, OFFLINE = b"online", b"offline"
#: The first level of the topics where Home Assistant looks for entities.
_PREFIX = "homeassistant"
#: The names of keys in the short form of discovery messages.
_SHORT = {
    "stat_t": "state_topic",
    "unit_of_meas": "unit_of_measurement",
    "val_tpl": "value_template",
    "dev_cla": "device_class",
}
#: The field that a template shows: value_json.power, value_json.emeter.power or value_json["power"].
_FIELD = re.compile(r"""value_json(?:\.([\w.]+)|\[\s*['"]([^'"]+)['"]\s*\])""")
#: Signs that the id of an entity cannot have.
_NOT_IN_IDS = re.compile(r"[^a-zA-Z0-9_-]+")


class HomeAssistant:
    """The entities of a model.

    Args:
        model: The file of the model, after which the device is named.
        topic: The topic of the predictions.
        units: The unit of a signal, by its name or by that of its field.
        names: What signals are called, to recognise those that other devices have described.
    """

    def __init__(
        self,
        model: Path,
        topic: str,
        *,
        units: Mapping[str, str] | None = None,
        names: TopicNames | None = None,
    ) -> None:
        self.topic = topic
        self._units, self._names = dict(units or {}), names or TopicNames()
        self._classes: dict[str, str] = {}
        digest = hashlib.sha256(str(model.absolute()).encode()).hexdigest()[:12]
        self._id = f"emphatic_{digest}"
        self._model = model
        #: The topic that says whether the service is there.
        self.availability = f"{topic}/availability"
        #: The subscriptions by which units are learned from what other devices say of themselves.
        self.subscriptions = (f"{_PREFIX}/+/+/config", f"{_PREFIX}/+/+/+/config")

    def describe(self, line: Mapping[str, Any]) -> dict[str, bytes]:
        """The discovery messages for a line of predictions, by topic.

        Args:
            line: The line, as it is published.
        """
        messages: dict[str, bytes] = {}
        signals = line.get("alarm", {})
        for signal, horizons in line["predictions"].items():
            for horizon in horizons:
                for kind, label in (("predictions", "prediction"), ("low", "low end"), ("high", "high end")):
                    name = f"{signal} {label} {horizon}".strip()
                    config = self._config(name, signal, self._template(kind, signal, horizon))
                    config["state_class"] = "measurement"
                    if unit := self._find(self._units, signal):
                        config["unit_of_measurement"] = unit
                        if device_class := self._classes.get(signal):
                            config["device_class"] = device_class
                    self._add(messages, "sensor", config)
            if signal in signals:
                alarm = f"{{{{ 'ON' if {self._value('alarm', signal)} else 'OFF' }}}}"
                config = self._config(f"{signal} alarm", signal, alarm)
                self._add(messages, "binary_sensor", config | {"device_class": "problem"})
                config = self._config(f"{signal} anomaly score", signal, self._template("anomaly", signal))
                self._add(messages, "sensor", config | {"state_class": "measurement"})
        return messages

    def learn(self, payload: bytes) -> bool:
        """Take over the unit from the discovery message of another device; whether there was a new one.

        Args:
            payload: The message.
        """
        try:
            config = json.loads(payload)
            config = {_SHORT.get(key, key): value for key, value in config.items()}
            topic, unit = str(config["state_topic"]), config["unit_of_measurement"]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return False
        if not isinstance(unit, str) or str(config.get("unique_id", "")).startswith("emphatic_"):
            return False
        base = str(config.get("~", ""))
        if topic.startswith("~"):
            topic = base + topic[1:]
        elif topic.endswith("~"):
            topic = topic[:-1] + base
        field = _FIELD.search(str(config.get("value_template", "")))
        signal = self._names.signal(topic, (field[1] or field[2]) if field else "")
        if self._find(self._units, signal) is not None or len(self._units) > 10_000:
            return False
        self._units[signal] = unit[:32]
        if isinstance(device_class := config.get("device_class"), str):
            self._classes[signal] = device_class[:64]
        return True

    def _config(self, name: str, signal: str, template: str) -> dict[str, Any]:
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        slug = _NOT_IN_IDS.sub("_", name).strip("_")[:48].lower()
        release = version("emphatic")
        return {
            "name": name,
            "unique_id": f"{self._id}_{slug}_{digest}",
            "state_topic": self.topic,
            "value_template": template,
            "availability_topic": self.availability,
            "payload_available": ONLINE.decode(),
            "payload_not_available": OFFLINE.decode(),
            "device": {
                "identifiers": [self._id],
                "name": f"emphatic {self._model.stem}",
                "manufacturer": "emphatic",
                "model": "predictions",
                "sw_version": release,
            },
            "origin": {"name": "emphatic", "sw_version": release},
        }

    def _add(self, messages: dict[str, bytes], component: str, config: dict[str, Any]) -> None:
        messages[f"{_PREFIX}/{component}/{config['unique_id']}/config"] = json.dumps(config).encode()

    def _template(self, kind: str, *keys: str) -> str:
        return f"{{{{ {self._value(kind, *keys)} }}}}"

    def _value(self, kind: str, signal: str, *horizon: str) -> str:
        """Where a value stands in the message, as a template has it."""
        return "value_json" + "".join(f"[{json.dumps(key)}]" for key in (kind, signal, *horizon))

    @staticmethod
    def _find(units: Mapping[str, str], signal: str) -> str | None:
        """The unit of a signal, by its name, or by the last word of its name."""
        words = re.split(r"[./]", signal)
        return next((units[name] for name in _suffixes(signal, words) if name in units), None)


def _suffixes(signal: str, words: list[str]) -> Iterator[str]:
    yield signal
    for count in range(len(words) - 1, 0, -1):
        yield signal[-len(".".join(words[-count:])) :]
