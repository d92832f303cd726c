"""The ``emphatic nexting`` command in this process."""

from __future__ import annotations

import pytest

from emphatic.nexting.cli import app

__all__ = ["nexting"]


def nexting(capsys: pytest.CaptureFixture[str], *given: object) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        app(["nexting", *map(str, given)])
    assert isinstance(stopped.value.code, int)
    return stopped.value.code, *capsys.readouterr()
