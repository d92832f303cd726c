"""A model downloaded from a running service, and another put in its place."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from emphatic.nexting.predictor import Predictor
from emphatic.nexting.settings import Settings
from emphatic.serve.app import create_app
from emphatic.serve.service import Incoming, Receipt, Service
from tests.support.services import readings, wait_for

TOKEN = "correct-horse-battery-staple"


def ask(service: Service, method: str, token: str | None = TOKEN, **options: Any) -> httpx.Response:
    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(create_app(service, token=token))
        headers = {"authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
            return await client.request(method, "/model", **options)

    return asyncio.run(send())


def learn(service: Service, count: int, start: int = 0) -> None:
    receipts: list[Receipt] = []
    assert service.inbox.offer([Incoming(row).answered_by(receipts.append) for row in readings(count, start)]) == count
    wait_for(lambda: len(receipts) == count)
    assert all(receipt.taken for receipt in receipts)


def make(folder: Path) -> Service:
    service = Service(folder / "model", Settings(horizons=(2, 9)), warm_up=60, save_every=3600.0)
    service.open()
    service.start()
    return service


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = make(tmp_path)
    yield service
    service.close()


def test_a_model_goes_out_and_comes_back(service: Service, tmp_path: Path) -> None:
    assert ask(service, "GET").status_code == 422  # it warms up
    learn(service, 70)
    answer = ask(service, "GET")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/octet-stream")
    early = answer.content
    (tmp_path / "early").write_bytes(early)
    assert Predictor.load(tmp_path / "early")[0].step == 70
    learn(service, 30, 70)
    late = ask(service, "GET").content
    put = ask(service, "PUT", content=early)
    assert (put.status_code, put.json()) == (200, {"step": 70})
    learn(service, 5, 100)  # not one of these is lost
    assert service.step == 75
    (tmp_path / "late").write_bytes(late)
    assert Predictor.load(tmp_path / "late")[0].step == 100


def test_a_replaced_model_survives_a_crash(tmp_path: Path) -> None:
    """It is saved before the answer, with its place in the journal, whose later readings it learns from again."""
    service = make(tmp_path)
    learn(service, 70)
    early = ask(service, "GET").content
    learn(service, 30, 70)
    assert ask(service, "PUT", content=early).status_code == 200
    learn(service, 7, 100)
    service._save = lambda: True  # type: ignore[method-assign]  # as if it were killed: nothing more is saved
    service.close()
    again = make(tmp_path)
    try:
        assert again.step == 77
        undisturbed, _ = Predictor.load(tmp_path / "model")
        assert undisturbed.step == 70
        undisturbed.take(enumerate(readings(7, 100)))
        assert undisturbed.horde is not None
        assert again.predictor.horde is not None
        assert undisturbed.horde.learner.theta.tobytes() == again.predictor.horde.learner.theta.tobytes()
    finally:
        again.close()


def test_what_is_no_model_changes_nothing(service: Service, tmp_path: Path) -> None:
    learn(service, 70)
    model, rng = ask(service, "GET").content, np.random.default_rng(1)
    hostile = [b"", b"nonsense", b"\xff" * 1000, model[:-1], model[: len(model) // 2], b"\x00" * 8 + model]
    hostile += [(1 << 62).to_bytes(8, "little") + b"{}"]
    for _ in range(20):
        at = int(rng.integers(len(model)))
        hostile.append(model[:at] + bytes([model[at] ^ 1 << int(rng.integers(8))]) + model[at + 1 :])
    for body in hostile:
        answer = ask(service, "PUT", content=body)
        assert answer.status_code == 422, answer.text
        assert str(tmp_path) not in answer.text
    assert (service.step, service.alive) == (70, True)
    learn(service, 3, 70)
    assert service.step == 73
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".model.") and path.suffix != ".lock"] == []


def test_both_need_the_token(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    learn(service, 70)
    model = ask(service, "GET").content
    for method in ("GET", "PUT"):
        assert ask(service, method, token=None, content=model).status_code == 403
        assert ask(service, method, token="another-token-of-the-service", content=model).status_code == 401
    monkeypatch.setattr("emphatic.serve.app._LONGEST_MODEL", 1000)
    assert ask(service, "PUT", content=model).status_code == 413
    assert service.step == 70


def test_a_full_disk_keeps_the_old_model(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    learn(service, 70)
    model = ask(service, "GET").content
    learn(service, 10, 70)

    def fail(_journal: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(service, "_store", fail)
        answer = ask(service, "PUT", content=model)
        assert (answer.status_code, "the old one continues" in answer.text) == (422, True)
        assert service.step == 80
    learn(service, 1, 80)
    assert service.step == 81
