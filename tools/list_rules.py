"""Write out what lists the rules: the table in the README, and the names of their learners for type checkers.

    python -m tools.list_rules

All of it is said by the rules themselves; a test holds both lists against them.
"""

from __future__ import annotations

import re
from pathlib import Path

from emphatic import rules

README = Path("README.md")
PACKAGE = Path("src/emphatic/__init__.py")
BEGIN, END = "<!-- rules -->\n", "<!-- /rules -->\n"
TYPED = r"(?:    \w+: partial\[Learner\]\n)+"


def with_table(readme: str) -> str:
    """The README with a row for each rule between its marks."""
    rows = ["| rule | update | paper |", "|---|---|---|"]
    names = re.compile(rf"\b({'|'.join(rules.names())})\b")
    for rule in map(rules.get, rules.names()):
        update = names.sub(r"`\1`", rule.update).replace("|", "∣")
        rows.append(f"| `{rule.name}` | {update} | {rule.paper} |")
    before, rest = readme.split(BEGIN)
    return before + BEGIN + "".join(f"{row}\n" for row in rows) + END + rest.split(END)[1]


def with_names(package: str) -> str:
    """``emphatic/__init__.py`` with a typed name for each rule."""
    return re.sub(TYPED, "".join(f"    {name}: partial[Learner]\n" for name in rules.class_names()), package)


def main() -> None:
    """Write both files."""
    for path, change in ((README, with_table), (PACKAGE, with_names)):
        path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
