"""``emphatic figures``: the plots of a report as SVG files."""

from __future__ import annotations

from pathlib import Path

from emphatic.cli.common import carry_out

__all__ = ["figures"]


def figures(folder: Path, out: Path | None, whole: bool) -> int:
    """The command; its exit code."""
    from emphatic.common.files import atomic_file
    from emphatic.report.svg import names, plots_of, svg

    def command() -> int:
        page = folder / "report.html" if folder.is_dir() else folder
        if not page.is_file():
            raise ValueError(f"{folder}: there is no report here. Name the output folder of a finished run.")
        try:
            plots = plots_of(page.read_text("utf-8"))
        except ValueError:
            raise ValueError(f"{page}: this is not a report of emphatic nexting, or it is damaged.") from None
        if not plots:
            raise ValueError(f"{page}: this report has no plots of a log; save those of a study from its page.")
        into = out or page.parent / "figures"
        into.mkdir(parents=True, exist_ok=True)
        for name, (_, plot, arrays) in zip(names(plots), plots, strict=True):
            view = "whole" if whole and "whole" in plot["views"] else ""
            with atomic_file(into / f"{name}.svg") as file:
                file.write(svg(plot, arrays, view).encode())
        print(f"{len(plots)} figures: {into}")
        return 0

    return carry_out(command, lambda: "Stopped.")
