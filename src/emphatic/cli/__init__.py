"""The command line: one module a command, each a thin layer over the library."""

from emphatic.cli.commands import app

__all__ = ["app"]
