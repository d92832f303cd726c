"""The lowest versions that ``pyproject.toml`` allows of what the library needs, one a line, for pip:

pip install . -c <(python -m tools.lowest_versions)

and of what an extra needs, if one is named:

pip install '.[ray]' -c <(python -m tools.lowest_versions ray)
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

__all__ = ["lowest_versions"]


def lowest_versions(project: Path = Path(__file__).parents[1] / "pyproject.toml", extra: str = "") -> list[str]:
    """As ``name==version``, in order.

    Args:
        project: The file.
        extra: An extra, whose versions are wanted instead.
    """
    found = []
    table = tomllib.loads(project.read_text("utf-8"))["project"]
    for requirement in table["optional-dependencies"][extra] if extra else table["dependencies"]:
        match = re.fullmatch(r"([A-Za-z0-9_.-]+)>=([0-9.]+)(,.*)?", requirement)
        if match is None:
            raise ValueError(f"{project}: {requirement!r} has no lower bound.")
        found.append(f"{match[1]}=={match[2]}")
    return found


if __name__ == "__main__":
    print("\n".join(lowest_versions(extra="".join(sys.argv[1:2]))))
