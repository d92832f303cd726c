"""``emphatic figures``: the plots of a report as SVG files."""

from __future__ import annotations

from pathlib import Path

from emphatic.cli.common import carry_out, report_error

__all__ = ["figures"]


def figures(folder: Path, out: Path | None, whole: bool) -> int:
    """The command; its exit code."""
    from emphatic.report.plots import check_formats, draw_file, file_names, read_plots

    def command() -> int:
        page = folder / "report.html" if folder.is_dir() else folder
        if not page.is_file():
            raise ValueError(f"{folder}: there is no report here. Name the output folder of a finished run.")
        try:
            plots = read_plots(page.read_text("utf-8"))
        except ValueError:
            raise ValueError(f"{page}: this is not a report of emphatic nexting, or it is damaged.") from None
        if not plots:
            raise ValueError(f"{page}: this report has no plots.")
        try:
            check_formats("svg")
        except ImportError as error:
            return report_error(error)
        into = out or page.parent / "figures"
        into.mkdir(parents=True, exist_ok=True)
        for name, (_, plot) in zip(file_names(label for label, _ in plots), plots, strict=True):
            draw_file(plot, into / f"{name}.svg", "whole" if whole and "whole" in plot.views else "")
        print(f"{len(plots)} figures: {into}")
        return 0

    return carry_out(command, lambda: "Stopped.")
