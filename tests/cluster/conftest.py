"""Ray's processes in these tests know each other by a token of their own, and leave the user's alone.

Ray looks at the environment when it is imported, so that this is set before any test is.
"""

from __future__ import annotations

import atexit
import os
import secrets
import tempfile
from pathlib import Path
from typing import Any

from tests.cluster.support import KILLS

_folder = tempfile.TemporaryDirectory(prefix="emphatic-ray-")
atexit.register(_folder.cleanup)
_token = Path(_folder.name) / "token"
_token.write_text(secrets.token_hex(32))
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(_token)}


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if KILLS:
        terminalreporter.write_line(f"{len(KILLS)} processes were ended by kill -9.")
