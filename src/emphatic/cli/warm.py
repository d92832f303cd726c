"""``emphatic warm``."""

from __future__ import annotations

import time

import typer

from emphatic.cli.terminal import FAILURES, report_error

__all__ = ["warm"]


def warm() -> None:
    """Compile the kernels of nexting and serve ahead, into the cache.

    The first run of emphatic nexting or emphatic serve compiles kernels, which takes a minute or so. Run this command
    when an image is built, or after an installation, and no run waits for it. The cache is $EMPHATIC_CACHE_DIR, or the
    user's cache folder; it may be read-only afterwards. Kernels are compiled for the processor of this machine.
    """
    from emphatic.engines.generated import cache_folder
    from emphatic.nexting.warm import compile_for_live, compile_for_logs

    began = time.monotonic()
    try:
        folder = cache_folder()
        if folder is None:
            raise ValueError("there is no cache folder to write to. Set EMPHATIC_CACHE_DIR to a folder of your own.")
        compile_for_live()
        compile_for_logs()
    except FAILURES as error:
        raise typer.Exit(report_error(error)) from None
    typer.echo(f"{folder}: all kernels of nexting and serve are there, after {time.monotonic() - began:.1f} s.")
