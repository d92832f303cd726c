"""Make the oracles and check them: ``python -m oracles``. The exit code is 1 if one is off."""

from __future__ import annotations

import json
import sys

from oracles import NAMES, TOLERANCE, check, make, write


def main() -> int:
    """Write every file, read it back and compare it; the exit code."""
    errors = {name: check(json.loads(write(make(name)).read_text(encoding="utf-8"))) for name in NAMES}
    for name, found in errors.items():
        print(f"{name:16}" + "".join(f"{text:>12} {error:.0e}" for text, error in found.items()))
    return int(not all(error <= TOLERANCE for found in errors.values() for error in found.values()))


if __name__ == "__main__":
    sys.exit(main())
