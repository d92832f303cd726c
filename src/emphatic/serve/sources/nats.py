"""Readings from a NATS JetStream stream, and predictions to a subject.

A durable consumer reads the stream, and a message is acknowledged once its reading is in the journal. The journal also
keeps the sequence number, so that after a crash the service goes on in the order of the stream. A message is known by
the stream's name, the time at which the stream was created, and its sequence number; a publisher that sends again is
known by the header ``Nats-Msg-Id``.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
import time
import zlib
from collections import deque
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emphatic.serve.ids import scoped_id
from emphatic.serve.service import Incoming, NotJson, Receipt, Service, read_json, with_ids
from emphatic.serve.sources import Address, StreamSource
from emphatic.serve.status import ConnectionStatus
from emphatic.tables.pipe import BLOCK
from emphatic.tables.table import Malformed

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext
    from nats.js.api import ConsumerInfo, StreamInfo

    PullSubscription = JetStreamContext.PullSubscription

__all__ = ["NATS", "NatsPublisher", "NatsSource"]

logger = logging.getLogger("emphatic.serve")

#: Seconds between two attempts, for a single answer, and between two looks at the whole stream; and for which a fetch
#: waits.
_RETRY, _PATIENCE, _LOOK, _WAIT = 1.0, 5.0, 1.0, 0.5
#: Seconds after which the server sends a message again that is not acknowledged, and how many of these there may be.
_ACK_WAIT, _ACK_PENDING = 10.0, 10_000
#: A message that is longer is no reading.
_LONGEST = 1 << 23
#: Lines that the publisher keeps for a server that is away, and that are sent before the first is confirmed.
_QUEUED, _TOGETHER = 10_000, 256
#: The headers of a message: its publisher's id, and what everything has that this service publishes.
_ID, _MARK, _PREDICTION = "Nats-Msg-Id", "emphatic", "prediction"


class _Worker:
    """A thread with an event loop that works with a server, and after an error again."""

    def __init__(self, address: Address, purpose: str, name: str, status: ConnectionStatus) -> None:
        import nats  # noqa: F401 (where it is missing, the service ends here)

        self._address, self._name, self._status = address, name, status
        self._stopped = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name=f"emphatic {address!r}", daemon=True)
        logger.info("%s %r.", purpose, address)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stopped.set()
        self._thread.join(3.0)

    def _run(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        from nats.errors import Error

        self._loop, trouble = asyncio.get_running_loop(), ""
        while not self._stopped.is_set():
            client: Client | None = None
            try:
                client = await self._connect()
                await self._begin(client)
                self._status.connect()
                logger.info("%r: connected.", self._address)
                trouble = ""
                while not self._stopped.is_set():
                    await self._step(client)
            except (Error, OSError, TimeoutError, ValueError) as error:
                text = str(error).strip() or type(error).__name__
                if text != trouble:
                    logger.warning("%r: %s; trying again.", self._address, text)
                trouble = text
                self._status.disconnect(trouble)
                await asyncio.sleep(0 if self._stopped.is_set() else _RETRY)
            finally:
                if client is not None:
                    with suppress(Exception):  # it may be closed already
                        await asyncio.wait_for(client.close(), 1.0)

    async def _connect(self) -> Client:
        import nats

        address = self._address

        async def ignore(_error: Exception) -> None:
            """What is wrong is raised where it matters."""

        options: dict[str, Any] = {"user": address.user, "password": address.password}
        options = {name: value for name, value in options.items() if value is not None}
        if address.encrypted:
            options |= {"tls": address.tls.context(), "tls_hostname": address.host}
        host = f"[{address.host}]" if ":" in address.host else address.host
        server = f"{'tls' if address.encrypted else 'nats'}://{host}:{address.port}"
        connecting = nats.connect(
            server, name=self._name, allow_reconnect=False, connect_timeout=5, error_cb=ignore, **options
        )
        return await asyncio.wait_for(connecting, _PATIENCE + 1.0)

    async def _begin(self, client: Client) -> None:
        """What comes after each connection."""

    async def _step(self, client: Client) -> None:
        raise NotImplementedError


def _digest(model: Path) -> str:
    return hashlib.sha256(str(model.absolute()).encode()).hexdigest()[:12]


class NatsSource(_Worker):
    """Readings from a stream, from its beginning: a JSON object a message, or a list of them."""

    def __init__(self, address: Address, service: Service) -> None:
        self._service, self._key, self._stream = service, repr(address), address.name
        self._durable = f"emphatic-{_digest(service.model)}"
        super().__init__(address, "readings come from", self._durable, service.add_source(self._key))
        #: When the stream was created, as the server writes it, and the number of the last message that was taken.
        self._created = ""
        self._last: int | None = None
        self._look_at = 0.0
        self._connection = 0
        self._subscription: PullSubscription | None = None

    def start(self) -> None:
        """Begin after the last reading that the model knows."""
        position = self._service.positions.get(self._key)
        if position is not None:
            self._created, self._last = str(position[0]), int(position[1])
        super().start()

    async def _begin(self, client: Client) -> None:
        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, RetentionPolicy
        from nats.js.errors import NotFoundError

        self._connection += 1
        manager = client.jetstream(timeout=_PATIENCE)
        try:
            info = await manager.stream_info(self._stream)
        except NotFoundError:
            raise ValueError(f"there is no stream {self._stream!r}") from None
        self._compare(info)
        try:
            consumer: ConsumerInfo | None = await manager.consumer_info(self._stream, self._durable)
        except NotFoundError:
            consumer = None
        start = (self._last or 0) + 1
        if consumer is not None and info.config.retention == RetentionPolicy.LIMITS:
            # What was delivered and not acknowledged would come again later, among newer messages. The number of the
            # last reading is in the journal: a new consumer goes on from there, in the order of the stream.
            await manager.delete_consumer(self._stream, self._durable)
            consumer = None
        if consumer is None:
            config = ConsumerConfig(
                durable_name=self._durable,
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE if start > 1 else DeliverPolicy.ALL,
                opt_start_seq=start if start > 1 else None,
                ack_policy=AckPolicy.EXPLICIT,
                ack_wait=_ACK_WAIT,
                max_ack_pending=_ACK_PENDING,
            )
            if info.config.retention == RetentionPolicy.WORK_QUEUE:  # takes no start in the middle
                config.deliver_policy, config.opt_start_seq = DeliverPolicy.ALL, None
            await manager.add_consumer(self._stream, config)
        elif consumer.num_ack_pending:
            # Without interest or work the stream forgets messages, so the consumer stays: first come those again that
            # were not acknowledged.
            await asyncio.sleep(_ACK_WAIT + 0.5)
        self._subscription = await manager.pull_subscribe_bind(self._durable, self._stream)
        self._look_at = time.monotonic() + _LOOK

    async def _step(self, client: Client) -> None:
        if not client.is_connected:
            raise OSError("the connection is lost")
        if time.monotonic() >= self._look_at:
            await self._look(client)
            self._look_at = time.monotonic() + _LOOK
        assert self._subscription is not None
        try:
            messages: list[Msg] = await self._subscription.fetch(BLOCK, timeout=_WAIT)
        except TimeoutError:
            return
        if not await asyncio.to_thread(self._put, messages, self._connection):
            self._stopped.set()

    def _put(self, messages: list[Msg], connection: int) -> bool:
        """Put the readings of messages into the inbox; False if that was closed."""
        for message in messages:
            number = message.metadata.sequence.stream
            if self._last is not None and number > self._last + 1:
                self._lose(number - 1, "messages were deleted or expired unread")
            self._status.count_message()
            headers = message.headers or {}
            if headers.get(_MARK) == _PREDICTION:
                self._status.skipped += 1
                self._last = max(number, self._last or 0)
                self._acknowledge(message, connection)
                continue
            payload = bytes(message.data)
            try:
                readings = [Incoming(Malformed("too long"))] if len(payload) > _LONGEST else read_json(payload)[0]
            except NotJson as error:
                readings = [Incoming(Malformed(str(error)))]
            id = f"{self._created}/{number}/{zlib.crc32(payload):08x}"
            for index, incoming in enumerate(readings):
                # Of several readings only the last one moves the position, and each has a number of its own.
                origin: dict[str, Any] = {"ids": [scoped_id(self._stream, id, index, len(readings))]}
                is_last = index == len(readings) - 1
                if is_last:
                    origin[self._key] = [self._created, number]
                message_id = headers.get(_ID)
                if message_id is not None and len(readings) > 1:
                    message_id = f"{message_id}/{index}/{len(readings)}"
                [incoming] = with_ids([incoming], self._stream, self._service.id_field, message_id, origin)
                if is_last:
                    incoming = incoming.answered_by(partial(self._answer, message, connection))
                if not self._service.inbox.put(incoming):
                    return False
            self._last = max(number, self._last or 0)
            if not readings:  # an empty list
                self._acknowledge(message, connection)
        return True

    def _answer(self, message: Msg, connection: int, receipt: Receipt) -> None:  # in the thread that learns
        if receipt.taken:
            self._acknowledge(message, connection)

    def _acknowledge(self, message: Msg, connection: int) -> None:
        """Acknowledge a message, unless its connection has ended: then the number in the journal stands for it."""

        async def acknowledge() -> None:
            with suppress(Exception):  # the connection ends just now
                await message.ack()

        if connection == self._connection and self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                asyncio.run_coroutine_threadsafe(acknowledge(), self._loop)

    # ------------------------------------------------------------------ what was lost

    async def _look(self, client: Client) -> None:
        """Compare what the stream has with what was read: how much is to come, and what will never come."""
        from nats.js.errors import NotFoundError

        manager = client.jetstream(timeout=_PATIENCE)
        try:
            info = await manager.stream_info(self._stream)
            if not self._compare(info):
                raise OSError("the consumer begins again")
            await manager.consumer_info(self._stream, self._durable)
        except NotFoundError as error:
            raise OSError(f"the stream or its consumer was deleted: {error.description}") from None

    def _compare(self, info: StreamInfo) -> bool:
        """Take over what the stream is like; False if the consumer must begin elsewhere."""
        created, state = str(info.created), info.state
        goes_on = True
        if self._created and created != self._created:
            self._status.lose(str(self._last), "1", self._status.lag, "the stream was deleted and created again")
            self._last, goes_on = None, False
        self._created = created
        if self._last is not None and state.last_seq < self._last:
            self._status.lose(
                str(state.last_seq + 1), str(self._last), None, "the server has lost the last messages of the stream"
            )
            self._last, goes_on = state.last_seq, False
        if self._last is None:
            self._last = max(0, state.first_seq - 1)  # what was before is none of this model's
        elif state.first_seq > self._last + 1:
            self._lose(state.first_seq - 1, "messages were deleted or expired unread")
        self._status.lag = max(0, state.last_seq - self._last)
        return goes_on

    def _lose(self, until: int, reason: str) -> None:
        assert self._last is not None
        self._status.lose(str(self._last + 1), str(until), until - self._last, reason)
        self._last = until


class NatsPublisher(_Worker):
    """Predictions to a subject, a line a message, each at least once where a stream keeps the subject."""

    def __init__(self, address: Address, model: Path) -> None:
        self.status = ConnectionStatus(repr(address))
        self._digest = _digest(model)
        super().__init__(address, "predictions go to", f"emphatic-publisher-{self._digest}", self.status)
        if any(sign in address.name for sign in "*> \t"):
            raise ValueError(f"--publish {address!r}: predictions go to one subject, without * and >.")
        self._lines: deque[bytes] = deque()
        self._filled = threading.Event()
        self._is_kept = True

    def __call__(self, line: bytes) -> None:
        """Send a line; one that the server's absence leaves no room for is lost, and counted."""
        if len(self._lines) >= _QUEUED:
            self.status.lost += 1
            lost = self.status.lost
            if lost in (1, 10, 100) or lost % 1000 == 0:
                logger.warning("%r: %d predictions were not published so far.", self._address, lost)
            return
        self._lines.append(line.rstrip(b"\n"))
        self.status.lag = len(self._lines)
        self._filled.set()

    def unconfirmed(self) -> list[bytes]:
        """The lines that the server has not confirmed."""
        return list(self._lines)

    def stop(self) -> None:
        """Send no more. What the server has not confirmed was saved with the model, and is sent again."""
        until = time.monotonic() + 1.0
        while self._lines and self.status.state == "connected" and time.monotonic() < until:
            time.sleep(0.01)
        super().stop()

    async def _step(self, client: Client) -> None:
        from nats.js.errors import NoStreamResponseError

        if not client.is_connected:
            raise OSError("the connection is lost")
        if not await asyncio.to_thread(self._filled.wait, 0.2):
            self.status.lag = len(self._lines)  # the other thread may have written it last, and late
            return
        self._filled.clear()
        stream = client.jetstream(timeout=_PATIENCE)
        while self._lines:
            lines = [self._lines[i] for i in range(min(_TOGETHER, len(self._lines)))]
            try:
                # The server drops a line that comes again within its window.
                sending = (
                    stream.publish(self._address.name, line, headers={_MARK: _PREDICTION, _ID: self._line_id(line)})
                    for line in lines
                )
                await asyncio.gather(*sending)
            except NoStreamResponseError:
                if self._is_kept:
                    logger.warning("%r: no stream stores this subject; only current subscribers get it.", self._address)
                self._is_kept = False
                for line in lines:
                    await client.publish(self._address.name, line, headers={_MARK: _PREDICTION})
                await client.flush()
            except BaseException:
                self._filled.set()
                raise
            for _ in lines:
                self._lines.popleft()
                self.status.count_message()
            self.status.lag = len(self._lines)

    def _line_id(self, line: bytes) -> str:
        return f"{self._digest}-{hashlib.blake2b(line, digest_size=8).hexdigest()}"


NATS = StreamSource(
    name="nats",
    read=NatsSource,
    publish=NatsPublisher,
    form="nats://HOST:PORT/STREAM",
    port=4222,
    encrypted_name="tls",
    encrypted_port=4222,
    title="NATS",
    package="nats-py",
    extra="emphatic[nats]",
)
