"""The main job: a table of readings in; predictions, scores, a report and a model out; the same live on a pipe.

``run`` does it in one call; ``load`` reads the result of an earlier run, ``load_model`` the model that continues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emphatic.nexting.runner import NextingResult as NextingResult
    from emphatic.nexting.runner import Progress as Progress
    from emphatic.nexting.runner import load as load
    from emphatic.nexting.runner import load_model as load_model
    from emphatic.nexting.runner import run as run

__all__ = ["NextingResult", "Progress", "load", "load_model", "run"]


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first used: the command line reads ``settings`` alone for its flags."""
    if name not in __all__:
        raise AttributeError(f"module 'emphatic.nexting' has no attribute {name!r}")
    from emphatic.nexting import runner

    return globals().setdefault(name, getattr(runner, name))
