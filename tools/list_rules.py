"""Write out what lists the rules: tables in the README and of updates, and the reference.

    python -m tools.list_rules

All of it is said by the rules themselves; a test holds the lists against them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from emphatic import rules
from emphatic.rules import Rule

BEGIN, END = "<!-- rules -->\n", "<!-- /rules -->\n"


def with_summary(readme: str) -> str:
    """The README with the rules between its marks, a row for each family."""
    families: dict[str, list[str]] = {}
    for rule in _rules():
        families.setdefault(_family(rule), []).append(f"`{rule.name}`")
    rows = [f"| {family} | {', '.join(names)} |" for family, names in families.items()]
    return _between_marks(readme, ["| family | rules |", "|---|---|", *rows])


def with_updates(page: str) -> str:
    """``docs/rules.md`` with a row for each rule between its marks."""
    lines = ["| rule | update | paper |", "|---|---|---|"]
    names = re.compile(rf"\b({'|'.join(rules.names())})\b")
    for rule in _rules():
        update = names.sub(r"`\1`", rule.update).replace("|", "∣")
        lines.append(f"| [`{rule.name}`](api/rules.md#{rule.name}) | {update} | {rule.paper} |")
    return _between_marks(page, lines)


def with_reference(page: str) -> str:
    """``docs/api/rules.md`` with a section for each rule between its marks: what its module says of itself."""
    lines: list[str] = []
    for rule in _rules():
        options = "    options: {show_root_heading: false, members: false}"
        lines += [f"## {rule.name}", "", f"::: emphatic.rules.{rule.name}", options, "", _learners(rule), ""]
    return _between_marks(page, lines[:-1])


#: The files, and what is written into each.
LISTS: dict[str, Callable[[str], str]] = {
    "README.md": with_summary,
    "docs/rules.md": with_updates,
    "docs/api/rules.md": with_reference,
}


def _rules() -> list[Rule]:
    return [rules.get(name) for name in rules.names()]


def _family(rule: Rule) -> str:
    if rule.emphasis:
        return "emphatic TD"
    if rule.fixed_point == "residual":
        return "residual gradient"
    if len(rule.weights) > 1:
        return "gradient TD"
    return "TD(λ)" if rule.fixed_point == "projected" or rule.continuing else "bounded traces"


def _learners(rule: Rule) -> str:
    """How a rule's learners are made, and its extra parameters."""
    extra = [f"`{name}` ({_default(rule, name)})" for name in rule.extra]
    about = f'Learners: `emphatic.Learner("{rule.name}", n)`.'
    about += f" Extra parameters: {', '.join(extra)}." if extra else ""
    return about + ("" if rule.interest else " Accepts only I = 1.")


def _default(rule: Rule, name: str) -> str:
    if name not in rule.defaults:
        return "required"
    default = rule.defaults[name]
    return f"default: {'`eta`·α' if default == 'eta' else f'`{default}`'}"


def _between_marks(text: str, lines: list[str]) -> str:
    before, rest = text.split(BEGIN)
    return before + BEGIN + "".join(f"{line}\n" for line in lines) + END + rest.split(END)[1]


def main() -> None:
    """Write all files."""
    for name, change in LISTS.items():
        path = Path(name)
        path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
