"""A hook of mkdocs: what the documentation links to outside ``docs/`` becomes part of the site.

A link such as ``../src/emphatic/engines/sparse/SPARSE.md`` works wherever the repository is browsed. In the site that
file is a page of its own, Markdown as it is and anything else as a listing, and the link leads there.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

__all__ = ["on_files", "on_page_markdown"]

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(?=[)#])")
#: Where such pages are in the site, by their paths in the repository.
PLACE = "source/"
LANGUAGES = {".py": "python", ".toml": "toml", ".yml": "yaml", ".json": "json"}


def on_files(files: Any, config: Any) -> Any:
    """Add a page for every file that is linked to, from these pages in turn too."""
    from mkdocs.structure.files import File

    waiting = list(files.documentation_pages())
    while waiting:
        page = waiting.pop()
        for link in LINK.findall(page.content_string):
            target = _outside(page.src_uri, link)
            if target is not None and files.get_file_from_path(_uri(target)) is None:
                made = File.generated(config, _uri(target), content=_content(target))
                files.append(made)
                if target.endswith(".md"):
                    waiting.append(made)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Lead these links to their pages."""
    here = page.file.src_uri

    def lead(match: re.Match[str]) -> str:
        target = _outside(here, match[0])
        return match[0] if target is None else posixpath.relpath(_uri(target), posixpath.dirname(here) or ".")

    return LINK.sub(lead, markdown)


def _outside(uri: str, link: str) -> str | None:
    """The file of the repository, outside ``docs/``, that a link on a page leads to; None if it leads elsewhere."""
    here = uri.removeprefix(PLACE) if uri.startswith(PLACE) else f"docs/{uri}"
    target = posixpath.normpath(posixpath.join(posixpath.dirname(here), link))
    return None if target.startswith(("docs/", "../", "/")) or not (ROOT / target).is_file() else target


def _uri(target: str) -> str:
    return f"{PLACE}{target}" if target.endswith(".md") else f"{PLACE}{target}.md"


def _content(target: str) -> str:
    text = (ROOT / target).read_text(encoding="utf-8")
    if target.endswith(".md"):
        return text
    return f"# {target}\n\n````{LANGUAGES.get(Path(target).suffix, 'text')}\n{text}````\n"
