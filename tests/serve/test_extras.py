"""What the service needs is installed, imported and missed only where it is used."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.processes import COMMAND, run

#: Hides installed packages from the import system, as if they were not there.
HIDE = """
import sys
from importlib.machinery import PathFinder
hidden = sys.argv.pop(1).split(",")
for name in [name for name in sys.modules if name.split(".")[0] in hidden]:
    del sys.modules[name]
class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] in hidden else PathFinder.find_spec(name, path, target)
sys.meta_path[:] = [Without if finder is PathFinder else finder for finder in sys.meta_path]
"""


@pytest.mark.parametrize(
    ("hidden", "arguments", "command"),
    [
        ("starlette", (), "emphatic serve needs starlette, uvicorn and itsdangerous: pip install 'emphatic[serve]'"),
        ("itsdangerous", (), "emphatic serve needs starlette, uvicorn and itsdangerous: pip install 'emphatic[serve]'"),
        ("uvicorn", (), "emphatic serve needs starlette, uvicorn and itsdangerous: pip install 'emphatic[serve]'"),
        ("paho", ("mqtt://localhost/t",), "MQTT needs paho-mqtt: pip install 'emphatic[mqtt]'"),
        ("paho", ("--publish", "mqtt://localhost/t"), "MQTT needs paho-mqtt: pip install 'emphatic[mqtt]'"),
    ],
)
def test_what_is_missing_is_named_with_its_command(
    hidden: str, arguments: tuple[str, ...], command: str, tmp_path: Path
) -> None:
    done = run(HIDE + COMMAND, hidden, "serve", *arguments, "--port", 0, "--model", tmp_path / "m")
    assert (done.returncode, done.stderr.decode()) == (2, f"Error: {command}\n")
    assert list(tmp_path.iterdir()) == []


def test_nothing_of_it_is_imported_by_the_package() -> None:
    code = (
        "import sys; [sys.modules.pop(n) for n in list(sys.modules) if n.split('.')[0] in "
        "('emphatic', 'starlette', 'uvicorn', 'paho')]\n"
        "import emphatic, emphatic.nexting.live, emphatic.nexting.cli\n"
        "print(sorted(n for n in sys.modules if n.split('.')[0] in ('starlette', 'uvicorn', 'paho')"
        " or n.startswith('emphatic.nexting.serve')))"
    )
    done = run(code)
    assert done.stdout.decode().strip() == "[]", done.stderr.decode()
