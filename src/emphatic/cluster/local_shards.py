"""Shards in this process, one after the other: what the same shards on Ray must equal bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emphatic.cluster.shard import Shard, ShardPart, Start

__all__ = ["LocalShards"]


class _Call:
    """A call that has been made: its answer, or what it raised."""

    def __init__(self, shard: Shard, method: str, arguments: tuple[Any, ...]) -> None:
        self.error: Exception | None = None
        try:
            self.answer = getattr(shard, method)(*arguments)
        except Exception as error:
            self.error = error


class LocalShards:
    """A ``Backend`` without Ray."""

    def __init__(self, parts: Sequence[ShardPart], storage: str, start: Start) -> None:
        self._shards = [Shard(index, part, storage, start) for index, part in enumerate(parts)]

    def put(self, value: Any) -> Any:
        return value

    def call(self, shard: int, method: str, *arguments: Any) -> _Call:
        return _Call(self._shards[shard], method, arguments)

    def wait(self, calls: list[Any]) -> list[Any]:
        return calls

    def get(self, call: _Call) -> Any:
        if call.error is not None:
            raise call.error
        return call.answer

    def revive(self, shard: int, method: str, *arguments: Any) -> Any:
        return self.get(self.call(shard, method, *arguments))

    def close(self) -> None:
        pass
