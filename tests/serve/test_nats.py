"""Readings from NATS JetStream, each once, with a real server."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.services import (
    FLAGS,
    Served,
    free_port,
    journal_readings,
    nats_server,
    readings,
    same_as_undisturbed,
    wait_for,
)

nats = pytest.importorskip("nats", reason="needs pip install 'emphatic[nats]'")

pytestmark = pytest.mark.serve


class Sender:
    """A client in a thread of its own."""

    def __init__(self, port: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.client = self.do(nats.connect(f"nats://127.0.0.1:{port}"))
        self.stream = self.client.jetstream()

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def make(self, name: str, **options: Any) -> None:
        self.do(self.stream.add_stream(name=name, subjects=[f"{name}.>"], **options))

    def send(self, name: str, rows: list[Any], ids: Callable[[int], str] | None = None) -> None:
        async def send() -> None:
            for i, row in enumerate(rows):
                headers = {"Nats-Msg-Id": ids(i)} if ids else None
                await self.stream.publish(f"{name}.device", json.dumps(row).encode(), headers=headers)

        self.do(send())

    def close(self) -> None:
        self.do(self.client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


@contextmanager
def sending(port: int) -> Iterator[Sender]:
    sender = Sender(port)
    try:
        yield sender
    finally:
        sender.close()


def source_of(service: Served) -> dict[str, Any]:
    return dict(service.client.get("/readyz").json()["sources"][0])


def test_killed_under_load_each_reading_once(tmp_path: Path) -> None:
    port, rows, rng = free_port(), readings(1500), np.random.default_rng(2)
    publish = f"nats://127.0.0.1:{port}/predicted.plant"
    options = (f"nats://127.0.0.1:{port}/plant", *FLAGS, "--save-every", "0.5s", "--publish", publish)
    with nats_server(tmp_path / "server", port) as server, sending(port) as sender:
        sender.make("plant", duplicate_window=0.1)
        sender.make("predicted")

        def load() -> None:
            for start in range(0, len(rows), 50):
                sender.send("plant", rows[start : start + 50], lambda i, start=start: str(start + i))  # type: ignore[misc]
                time.sleep(0.05)

        loading = threading.Thread(target=load)
        loading.start()
        for _ in range(5):
            with Served(tmp_path / "model", *options) as service:
                time.sleep(float(rng.uniform(0.1, 0.8)))
                service.kill()
        loading.join(60)
        # The publisher sends again what it knows no answer to, long after the window of the server itself.
        sender.send("plant", rows[-200:], lambda i: str(1300 + i))
        with Served(tmp_path / "model", *options) as service:
            wait_for(lambda: service.metric("step") == 1500)
            wait_for(lambda: service.metric("repeated_total") >= 200)
            assert service.metric("step") == 1500
            info = wait_for(lambda: consumer_when_done(sender))
            assert info.num_ack_pending == 0
            assert source_of(service)["losses"] == []
            published = wait_for(lambda: published_when_done(service), 10.0, "all is published")
            assert published["lost"] == 0
            service.stop()
        lines = sender.do(sender.stream.stream_info("predicted")).state.messages
        assert lines >= 1500 - 60
        assert server.poll() is None
    same_as_undisturbed(tmp_path / "model", rows, tmp_path)


def consumer_when_done(sender: Sender) -> Any:
    [info] = sender.do(sender.stream.consumers_info("plant"))
    assert info.name.startswith("emphatic-")
    return info if info.num_pending == 0 and info.num_ack_pending == 0 else None


def published_when_done(service: Served) -> Any:
    [published] = service.client.get("/readyz").json()["publishers"]
    return published if published["lag"] == 0 else None


def test_what_was_lost_is_reported(tmp_path: Path) -> None:
    """Messages deleted unread, a stream made anew, and a server that goes away for a while."""
    port = free_port()
    options = (f"nats://127.0.0.1:{port}/plant", *FLAGS, "--save-every", "1h")
    with nats_server(tmp_path / "server", port) as server, sending(port) as sender:
        sender.make("plant")
        sender.send("plant", readings(70))
        with Served(tmp_path / "model", *options) as service:
            wait_for(lambda: service.metric("step") == 70)
            service.stop()
        sender.send("plant", readings(30, 70))
        sender.do(sender.stream.purge_stream("plant", seq=91))  # 71 to 90, which nobody has read
        with Served(tmp_path / "model", *options) as service:
            loss = wait_for(lambda: source_of(service)["losses"], 5.0)[0]
            assert (loss["from"], loss["to"], loss["count"]) == ("71", "90", 20)
            wait_for(lambda: service.metric("step") == 80)
            sender.do(sender.stream.delete_stream("plant"))
            time.sleep(1.1)
            sender.make("plant")
            sender.send("plant", readings(20, 100))  # with the numbers of other readings
            wait_for(lambda: service.metric("step") == 100, 10.0)
            assert "created again" in source_of(service)["losses"][-1]["reason"]
            server.kill()
            server.wait(10)
            wait_for(lambda: source_of(service)["state"] == "disconnected", 10.0)
            with nats_server(tmp_path / "server", port), sending(port) as again:
                wait_for(lambda: source_of(service)["state"] == "connected", 10.0)
                again.send("plant", [readings(5, 120), {"nonsense": 1}])
                wait_for(lambda: service.metric("step") == 105)
                wait_for(lambda: service.metric("malformed_total") == 1)
                assert sum("created again" in loss["reason"] for loss in source_of(service)["losses"]) == 1  # not again
                service.stop()


def test_predictions_do_not_come_back(tmp_path: Path) -> None:
    """Although the stream that is read keeps their subject, too."""
    port = free_port()
    options = (f"nats://127.0.0.1:{port}/plant", "--publish", f"nats://127.0.0.1:{port}/plant.predictions", *FLAGS)
    with nats_server(tmp_path / "server", port), sending(port) as sender:
        sender.make("plant")
        with Served(tmp_path / "model", *options) as service:
            sender.send("plant", readings(80))
            wait_for(lambda: source_of(service)["skipped"] == 21)
            assert (service.metric("readings_total"), service.metric("malformed_total")) == (80, 0)
            service.stop()


def test_encrypted_with_a_client_certificate(certificates: dict[str, Path], tmp_path: Path) -> None:
    port = free_port()
    files = {name: str(path) for name, path in certificates.items()}
    tls = ("--tls", "--tlscert", files["server"], "--tlskey", files["server_key"], "--tlscacert", files["ca"])
    with nats_server(tmp_path / "server", port, *tls, "--tlsverify"):
        options = ("--ca-file", files["ca"], "--client-cert", files["client"], "--client-key", files["client_key"])
        with Served(tmp_path / "model", f"tls://localhost:{port}/plant", *options, *FLAGS) as service:
            # It is trusted: that there is no such stream can only be said after that.
            wait_for(lambda: "there is no stream 'plant'" in source_of(service)["error"])
            assert source_of(service)["name"] == f"tls://localhost:{port}/plant"
            service.stop()
        with Served(tmp_path / "model", f"tls://localhost:{port}/plant", *FLAGS) as service:
            wait_for(lambda: "certificate" in source_of(service)["error"])
            service.stop()


def test_a_work_queue(tmp_path: Path) -> None:
    """Whose messages go when they are acknowledged: the consumer stays over a crash, and the order of the stream."""
    port = free_port()
    options = (f"nats://127.0.0.1:{port}/plant", *FLAGS, "--save-every", "1h")
    with nats_server(tmp_path / "server", port), sending(port) as sender:
        sender.make("plant", retention="workqueue")
        sender.send("plant", readings(70))
        with Served(tmp_path / "model", *options) as service:
            wait_for(lambda: service.metric("step") == 70)
            wait_for(lambda: sender.do(sender.stream.stream_info("plant")).state.messages == 0)
            service.kill()
        sender.send("plant", readings(10, 70))
        with Served(tmp_path / "model", *options) as service:
            wait_for(lambda: service.metric("step") == 80)
            wait_for(lambda: sender.do(sender.stream.stream_info("plant")).state.messages == 0)  # acknowledged
            assert source_of(service)["losses"] == []
            assert [row["time"] for row in journal_readings(tmp_path / "model.journal")] == [
                row["time"] for row in readings(80)
            ]
            service.stop()
