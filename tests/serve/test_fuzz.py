"""A thousand hostile requests; ``python -m tests.attack.service --calls 100_000`` is the long form."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="needs pip install 'emphatic[serve]'")
from tests.attack.service import attack_by_mqtt, attack_service

pytestmark = pytest.mark.serve


def test_hostile_requests_never_break_the_service_nor_change_what_it_learns(tmp_path: Path) -> None:
    attack = attack_service(tmp_path, 1000, seed=11)
    assert attack.faults == []
    assert attack.codes.keys() >= {200, 400, 404, 405, 413, 415, 422}
    assert len(attack.accepted) > 200


def test_hostile_messages_change_nothing_either(tmp_path: Path) -> None:
    pytest.importorskip("paho", reason="needs pip install 'emphatic[mqtt]'")
    assert attack_by_mqtt(tmp_path, 500, seed=3) > 500
