"""Ray is started once for the tests that need it; its processes know each other by a token of their own.

Ray looks at the environment when it is imported, so that the token is set before any test is.
"""

from __future__ import annotations

import atexit
import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_folder = tempfile.TemporaryDirectory(prefix="emphatic-ray-")
atexit.register(_folder.cleanup)
_token = Path(_folder.name) / "token"
_token.write_text(secrets.token_hex(32))
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(_token)}


@pytest.fixture(scope="session")
def ray() -> Iterator[Any]:
    """Ray with four CPUs, to which this process is connected."""
    pytest.importorskip("ray", reason="needs Ray: pip install 'emphatic[ray]'")
    from emphatic.nexting.cluster import connect

    with connect("local", 4) as connected:
        yield connected


@pytest.fixture(scope="session")
def expected() -> Any:
    """The predictions of shards in this process that nothing disturbs."""
    from emphatic.nexting.cluster import local
    from tests.cluster.support import SETUP, features, log, questions

    with local(questions(), features(), **SETUP) as horde:
        return horde.run(log())
