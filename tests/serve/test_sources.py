"""Sources of readings that other distributions add by entry points."""

from __future__ import annotations

from pathlib import Path

import pytest

from emphatic.nexting.serve.sources import STANDARD_INPUT, Address, find_source, make_publisher
from tests.support.distributions import run_with, write_distribution

WAVES = """
import math
from emphatic.nexting.serve.service import Incoming
from emphatic.nexting.serve.sources import Feed, StreamSource

sent = []


def waves(address):
    for t in range(int(address.name)):
        yield Incoming({"S1": math.sin(t / address.port), "S2": math.cos(t / address.port)})


class Printer:
    def __init__(self, address, model):
        self.address = address

    def start(self):
        print("publishes to", self.address)

    def stop(self):
        pass

    def __call__(self, line):
        sent.append(line)


WAVES = StreamSource(
    name="wave",
    read=lambda address, service: Feed(service, waves(address), "waves"),
    publish=Printer,
    form="wave://HOST:PERIOD/COUNT",
    port=7,
    encrypted_port=9,
)
LOST = StreamSource(
    name="lost", read=lambda address, service: __import__("no_such_client"), title="Lost", package="a client",
    extra="of-another[client]",
)
__all__ = ["LOST", "WAVES"]
"""

USE = """
import time
from pathlib import Path
import of_another
from emphatic.nexting.runs.settings import Settings
from emphatic.nexting.serve.service import Service
from emphatic.nexting.serve.sources import Address, make_publisher, make_source

service = Service(Path("model"), Settings(horizons=(2, 9)), warm_up=60, save_every=3600.0)
source, publisher = make_source("wave://here/80", service), make_publisher("waves://there:3/x", service.model)
service.open()
service.publish = publisher
publisher.start()
service.start()
source.start()
end = time.monotonic() + 200
while service.readings < 80 or len(of_another.sent) < 21:
    assert time.monotonic() < end
    time.sleep(0.02)
source.stop()
service.close()
assert (service.step, service.malformed) == (80, 0)
for address in ("kafka://x/y", "wave"):
    try:
        make_source(address, service)
    except ValueError as error:
        print(error)
try:
    make_source("lost", service)
except ImportError as error:
    print(error)
"""


def test_a_source_of_another_distribution_is_learned_from(tmp_path: Path) -> None:
    points = {"wave": "of_another:WAVES", "lost": "of_another", "broken": "of_nobody:X"}
    write_distribution(tmp_path, "another", {"of_another": WAVES}, {"emphatic.sources": points})
    lines = run_with(tmp_path, USE).splitlines()
    forms = "mqtt://HOST:PORT/TOPIC or wave://HOST:PERIOD/COUNT"
    assert lines == [
        "publishes to waves://there:3/x",
        f"'kafka://x/y' is not an address of the form {forms}.",
        f"'wave' is not an address of the form {forms}.",
        "Lost needs a client: pip install 'of-another[client]'",
    ]


def test_sources_of_the_library_are_found_by_name(tmp_path: Path) -> None:
    assert find_source("-") is STANDARD_INPUT
    assert find_source("kafka") is None
    mqtt = find_source("mqtt")
    assert mqtt is not None
    assert (mqtt.extra, mqtt.form) == ("emphatic[mqtt]", "mqtt://HOST:PORT/TOPIC")
    assert Address.parse("-") == Address("-")
    assert Address.parse("mqtts://u:p%20w@h/s%2F1") == Address("mqtt", "h", 8883, "s/1", True, "u", "p w")
    assert repr(Address.parse("mqtts://h/t")) == "mqtts://h:8883/t"
    for text in ("-", "mqtt://", "mqtt://h", "mqtt://h:x/t", "-://h/t", "mqtt"):
        with pytest.raises(ValueError, match="is not an address of the form mqtt://HOST:PORT/TOPIC"):
            make_publisher(text, tmp_path)
