"""A model downloaded from a running service."""

from __future__ import annotations

from pathlib import Path

import httpx

from emphatic.nexting.runs.predictor import Predictor
from emphatic.nexting.serve.app import create_app
from emphatic.nexting.serve.service import Incoming, Service
from tests.support.services import offer, readings, send

TOKEN = "correct-horse-battery-staple"


def download(service: Service, token: str | None = TOKEN) -> httpx.Response:
    headers = {"authorization": f"Bearer {TOKEN}"}
    return send(create_app(service, token=token), "GET", "/model", headers=headers)


def learn(service: Service, count: int, start: int = 0) -> None:
    assert all(receipt.taken for receipt in offer(service, [Incoming(row) for row in readings(count, start)]))


def test_a_model_goes_out_as_it_is(service: Service, tmp_path: Path) -> None:
    """It goes on from there, and nothing of the download is left beside the model."""
    assert download(service).status_code == 422  # it warms up
    learn(service, 70)
    answer = download(service)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/octet-stream")
    learn(service, 30, 70)
    (tmp_path / "copy").write_bytes(answer.content)
    copy, _ = Predictor.load(tmp_path / "copy")
    assert copy.step == 70
    copy.take(enumerate(readings(30, 70)))
    assert copy.horde is not None
    assert service.predictor.horde is not None
    assert copy.horde.learner.theta.tobytes() == service.predictor.horde.learner.theta.tobytes()
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".model.") and path.suffix != ".lock"] == []


def test_it_needs_the_token(service: Service) -> None:
    learn(service, 70)
    assert download(service, token=None).status_code == 403
    assert download(service, token="another-token-of-the-service").status_code == 401
