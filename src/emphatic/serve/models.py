"""Several models in one service: each has a name and a folder, with its settings, its file, its journal and its lock.

    FOLDER/NAME/model.toml                    its settings, and a table [service] with its sources
    FOLDER/NAME/model.safetensors             the model, and beside it the journal
    FOLDER/NAME/stopped                       is there while the model is stopped

A model that is stopped takes no readings, and has saved all that it acknowledged; what it did not acknowledge, the
sender or the broker still has. A model that fails does not end the others.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emphatic.common.files import atomic_file
from emphatic.common.names import check_names
from emphatic.common.settings import check_settings, declared_settings, is_list, parse_toml, read_toml, setting
from emphatic.nexting.settings import Settings
from emphatic.serve import credentials
from emphatic.serve.credentials import TLSFiles
from emphatic.serve.payloads import TopicNames
from emphatic.serve.service import END, Connected, Service
from emphatic.serve.sources import STANDARD_INPUT, Address, MessageOptions, check_loop, make_publisher, make_source

__all__ = ["ExistsError", "ModelOptions", "NamedModels", "NoModelError", "connect"]

logger = logging.getLogger("emphatic.serve")

#: A name is a folder and a step of an address: nothing in it means anything to either.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
#: Models of a service at most; each has a thread, kernels and its share of memory.
_MOST = 64
_CONFIGURATION, _MODEL, _STOPPED = "model.toml", "model.safetensors", "stopped"
#: What the settings of a model that comes by HTTP may have in their table [service]: nothing that reads a file of this
#: machine, or that makes it connect to another.
_BY_HTTP = ("warm_up",)
#: Seconds until a model that is stopped must have saved.
_SAVED = 60.0


class NoModelError(LookupError):
    """There is no model of that name."""


class ExistsError(ValueError):
    """There is a model of that name."""


def _is_text(value: object) -> bool:
    return isinstance(value, str)


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Where the readings of a model come from and its predictions go, besides HTTP: the table [service] of its file."""

    source: str | None = setting(help="Where readings come from.", must="an address", is_valid=_is_text)
    publish: str | None = setting(help="Where predictions go.", must="an address", is_valid=_is_text)
    password_file: str | None = setting(
        help="A file with the password for the user in source.", must="the path of a file", is_valid=_is_text
    )
    publish_password_file: str | None = setting(
        help="A file with the password for the user in publish.", must="the path of a file", is_valid=_is_text
    )
    topic_names: tuple[str, ...] = setting((), help="Names for the signals of a topic.", is_valid=is_list)
    publish_as: str = setting(
        "message",
        help="How predictions are divided into messages.",
        must="message or signals",
        is_valid=lambda value: value in ("message", "signals"),
    )
    home_assistant: bool = setting(
        False,
        help="Announce the predictions to Home Assistant.",
        must="true or false",
        is_valid=lambda value: isinstance(value, bool),
    )
    discovery_prefix: str = setting(
        "homeassistant", help="The first level of its topics.", must="text", is_valid=_is_text
    )
    units: tuple[str, ...] = setting((), help="The units of signals, NAME=UNIT.", is_valid=is_list)
    warm_up: int | None = setting(
        help="The readings to warm up on.",
        must="3 readings or more",
        is_valid=lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 3,
    )

    @classmethod
    def of(cls, table: object, where: str) -> ModelOptions:
        """From the table of a file, which messages call ``where``; ValueError if it is none."""
        if not isinstance(table, dict):
            raise ValueError(f"{where}: 'service' must be a table, [service].")
        check_names(table, declared_settings(cls), where)
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in table.items()
        }
        options = cls(**values)
        check_settings(options, where)
        if options.source == STANDARD_INPUT.name:
            raise ValueError(f"{where}: only the model of the command line can read standard input.")
        return options


def connect(service: Service, options: ModelOptions, tls: TLSFiles) -> Connected:
    """A service with its connections, which are not started; ValueError in one sentence if the options are not right.

    Args:
        service: The service, before ``open``.
        options: Where readings come from and predictions go.
        tls: The files of encrypted connections.
    """
    source, publish = options.source, options.publish
    for_source = ("--password-file", credentials.PASSWORD)
    for_publisher = ("--publish-password-file", credentials.PUBLISH_PASSWORD)
    credentials.refuse_password(source, "SOURCE", *for_source)
    credentials.refuse_password(publish, "--publish", *for_publisher)
    check_loop(source, publish)
    password = credentials.find_password(_path(options.password_file), *for_source)
    publish_password = credentials.find_password(_path(options.publish_password_file), *for_publisher)
    if publish_password is None and source is not None and publish is not None:
        same_server = Address.parse(source).server == Address.parse(publish).server
        publish_password = password if same_server else None
    messages = MessageOptions(
        TopicNames.parse(options.topic_names),
        options.publish_as == "signals",
        options.discovery_prefix if options.home_assistant else "",
        _read_units(options.units),
    )
    if (options.home_assistant or messages.by_signal) and (publish is None or Address.parse(publish).kind != "mqtt"):
        flag = "--home-assistant" if options.home_assistant else "--publish-as signals"
        raise ValueError(f"{flag} needs --publish mqtt://HOST:1883/TOPIC, where the predictions go.")
    publisher = make_publisher(publish, service.model, publish_password, tls, messages)
    service.publish_to(publisher)
    return Connected(service, make_source(source, service, password, tls, messages), publisher)


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def _read_units(texts: Sequence[str]) -> dict[str, str]:
    """The units that options give, NAME=UNIT, several with commas between them."""
    units = {}
    for pair in (pair for text in texts for pair in text.split(",") if pair.strip()):
        name, separator, unit = pair.partition("=")
        if not separator or not name.strip():
            raise ValueError(f"--units {pair!r} must be NAME=UNIT, such as temperature=°C.")
        units[name.strip()] = unit.strip()
    return units


# ---------------------------------------------------------------------- the models of a service


@dataclass
class _Entry:
    """A model of a service: what runs, if it does, and why it does not, if that is not wanted."""

    name: str
    running: Connected | None = None
    error: str = ""

    @property
    def failure(self) -> str:
        """What went wrong; empty if nothing did."""
        failure = None if self.running is None else self.running.service.failure
        return self.error if failure is None else f"learning ended with an error: {failure}"

    @property
    def state(self) -> str:
        if self.failure:
            return "failed"
        if self.running is None or self.running.service.inbox.closed:
            return "stopped"
        return "warming up" if self.running.service.warming_up else "running"


class NamedModels:
    """The models in a folder, by name. ``start`` starts all that were not stopped, ``stop`` ends them.

    Args:
        folder: The folder, with a folder for each model.
        make: Makes the service of a model from its file, its settings and its options.
        tls: The files of encrypted connections to brokers.
    """

    def __init__(self, folder: Path, make: Callable[[Path, Settings, ModelOptions], Service], tls: TLSFiles) -> None:
        self.folder, self._make, self._tls = folder, make, tls
        self._entries: dict[str, _Entry] = {}
        self._lock = threading.RLock()  # one model is started or stopped at a time
        self._ended = False

    # ------------------------------------------------------------------ what there is

    def find(self, name: str) -> Service | None:
        """The service of a model; None if it does not run. NoModelError if there is no such model."""
        entry = self._entries.get(name)
        if entry is None:
            raise NoModelError(f"there is no model {name[:100]!r}")
        return None if entry.running is None else entry.running.service

    def describe(self, name: str | None = None) -> list[dict[str, Any]]:
        """The state of each model, or of one."""
        described = []
        for entry in list(self._entries.values()):
            if name is not None and entry.name != name:
                continue
            state: dict[str, Any] = {"name": entry.name, "state": entry.state}
            if entry.running is not None:
                service = entry.running.service
                state |= {"step": service.step, "readings": service.readings}
                if trouble := service.trouble or service.disconnected:
                    state["trouble"] = trouble
            described.append(state | ({"error": entry.failure} if entry.failure else {}))
        return described

    @property
    def trouble(self) -> str:
        """What is wrong with a model that ought to run; empty if nothing is."""
        for state in self.describe():
            if trouble := state.get("error") or state.get("trouble"):
                return f"model {state['name']}: {trouble}"
        return ""

    # ------------------------------------------------------------------ beginning and end

    def start(self) -> None:
        """Start the models of the folder, except those that were stopped. One that cannot be started is logged."""
        if not self.folder.is_dir():
            return
        for name in sorted(path.name for path in self.folder.iterdir() if (path / _CONFIGURATION).is_file()):
            if not _NAME.fullmatch(name):
                logger.warning("%s: not served: a name has letters, digits, - and _.", self.folder / name)
            elif (self.folder / name / _STOPPED).exists():
                self._entries[name] = _Entry(name)
            else:
                with self._lock:
                    self._start(name)

    def stop(self) -> None:
        """End all of them, and wait until they are saved."""
        with self._lock:
            self._ended = True
            running = [entry.running for entry in self._entries.values() if entry.running is not None]
            for connected in running:
                connected.service.stop()
            until = time.monotonic() + END
            for connected in running:
                connected.close(max(0.1, until - time.monotonic()))

    def create(self, name: str, text: bytes) -> None:
        """Make a new model from settings in TOML, and start it.

        ValueError if they are not right, ExistsError if there is a model of the name, and then nothing has changed.

        Args:
            name: The name: letters, digits, - and _.
            text: The settings.
        """
        if not _NAME.fullmatch(name):
            raise ValueError("a name has up to 64 letters, digits, - and _, and does not begin with a sign")
        table = parse_toml(text, "the settings")
        _read(table, "the settings")
        if refused := [key for key in table.get("service", {}) if key not in _BY_HTTP]:
            raise ValueError(f"the settings: {refused[0]!r} can only be set in {_CONFIGURATION}, on the server's disk")
        with self._lock:
            folder = self.folder / name
            if name in self._entries or (folder / _CONFIGURATION).exists():
                raise ExistsError(f"there is a model {name!r}")
            if len(self._entries) >= _MOST:
                raise ValueError(f"there are {_MOST} models, which is the limit")
            folder.mkdir(parents=True, exist_ok=True)  # without its settings it is not a model: a crash leaves nothing
            with atomic_file(folder / _CONFIGURATION) as file:
                file.write(text)
            self._start(name)

    def resume(self, name: str) -> None:
        """Start a model that was stopped or has failed, or whose folder is new; its settings are read again.

        Args:
            name: The name.
        """
        with self._lock:
            if not _NAME.fullmatch(name) or not (self.folder / name / _CONFIGURATION).is_file():
                raise NoModelError(f"there is no model {name[:100]!r}")
            entry = self._entries.get(name)
            if entry is not None and entry.running is not None and not entry.failure:
                return
            self._end(name)
            (self.folder / name / _STOPPED).unlink(missing_ok=True)
            self._start(name)

    def halt(self, name: str) -> None:
        """Stop a model, also for the next start of the service; what it has learned is saved.

        Args:
            name: The name.
        """
        with self._lock:
            self.find(name)
            with atomic_file(self.folder / name / _STOPPED):
                pass
            self._end(name)
            self._entries[name] = _Entry(name)
            logger.info("model %s: stopped.", name)

    def _start(self, name: str) -> None:
        """Start a model; what is wrong is kept in its entry."""
        entry, path = _Entry(name), self.folder / name / _MODEL
        connected: Connected | None = None
        try:
            if self._ended:
                raise ValueError("the service ends")
            settings, options = _read(read_toml(path.with_name(_CONFIGURATION)), f"{name}/{_CONFIGURATION}")
            connected = connect(self._make(path, settings, options), options, self._tls)
            connected.service.open(wait=False)
            connected.start()
            entry.running = connected
        except (ValueError, ArithmeticError, RecursionError, MemoryError, OSError, ImportError) as error:
            entry.error = str(error) or type(error).__name__
            logger.error("model %s does not run: %s", name, entry.error)
            if connected is not None:
                connected.service.close()
        self._entries[name] = entry

    def _end(self, name: str) -> None:
        entry = self._entries.get(name)
        if entry is not None and entry.running is not None:
            entry.running.close(_SAVED)


def _read(table: dict[str, Any], where: str) -> tuple[Settings, ModelOptions]:
    """The settings of a model, and its options; ValueError if they are not right."""
    options = ModelOptions.of(table.get("service", {}), where)
    return Settings.of({key: value for key, value in table.items() if key != "service"}, where), options
