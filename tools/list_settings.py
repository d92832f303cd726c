"""Write the page of settings, ``docs/settings.md``, from their declarations.

    python -m tools.list_settings

A test holds the page against the declarations.
"""

from __future__ import annotations

from pathlib import Path

from emphatic.common.settings import declared_settings
from emphatic.nexting.runs.settings import Settings

__all__ = ["PAGE", "with_settings"]

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"
BEGIN, END = "<!-- settings -->\n", "<!-- /settings -->\n"


def with_settings(page: str) -> str:
    """The page with a row for each setting between its marks."""
    rows = ["| setting | flag | default | meaning |", "|---|---|---|---|"]
    for name, (_, declaration) in declared_settings(Settings).items():
        default = getattr(Settings(), name)
        flag = f"`{declaration.flag or '--' + name.replace('_', '-')}`" if declaration.commands else ""
        help_text, _, written_default = declaration.help.rstrip(".").partition("; default: ")
        absent = "no" if declaration.flag_type is bool else "found from the table"
        shown = written_default or (absent if default is None else f"`{default}`")
        rows.append(f"| `{name}` | {flag} | {shown} | {help_text}. |")
    start, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    return page[:start] + "\n".join(rows) + "\n" + page[end:]


if __name__ == "__main__":
    PAGE.write_text(with_settings(PAGE.read_text("utf-8")), "utf-8")
