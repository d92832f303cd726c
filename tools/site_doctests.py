"""An extension of Griffe: examples in docstrings are shown as code.

mkdocstrings takes a docstring for Markdown, in which ``>>>`` would be a quotation.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

__all__ = ["Doctests"]

#: A prompt, and all lines to the next empty one.
EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class Doctests(griffe.Extension):
    """Puts a fence around each example."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
