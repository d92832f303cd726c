"""ruff, mypy and import-linter, as the tests and CI run them: ``python -m tools.lint``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
COMMANDS = {
    "ruff check": [sys.executable, "-m", "ruff", "check", "."],
    "ruff format": [sys.executable, "-m", "ruff", "format", "--check", "."],
    "mypy": [sys.executable, "-m", "mypy"],
    "import-linter": [str(Path(sys.executable).with_name("lint-imports"))],
}


def main() -> int:
    """Run all, show what each has to say, and return how many found something."""
    failed = [name for name, command in COMMANDS.items() if subprocess.run(command, cwd=ROOT, check=False).returncode]
    print("nothing to mend" if not failed else f"to be mended: {', '.join(failed)}")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
