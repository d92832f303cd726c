"""The section about alarms: when each was, of which signal, and how surprising."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from emphatic.nexting.overview import signal_link
from emphatic.nexting.score_sections import count
from emphatic.report.page import Html, paragraphs, section
from emphatic.report.tables import Column, amount, table

__all__ = ["alarms_section"]


def alarms_section(
    alarms: Sequence[Mapping[str, Any]], scores: Sequence[Mapping[str, Any]], rate: float | None, plotted: Sequence[str]
) -> Html:
    """A row for each alarm, in the order of time; ``rate`` is the number of false ones per row to be put up with."""
    if rate is None:
        return Html()
    total = sum({score["signal"]: score.get("alarms", 0) for score in scores}.values())
    lead = (
        f"{count(total, 'alarm')} in all. " if total else "No alarm was raised. "
    ) + f"While a signal behaves as before, at most one false alarm in {1.0 / rate:,.0f} rows is expected."
    if not alarms:
        return section("alarms", "Alarms", paragraphs(lead))
    if len(alarms) < total:
        lead += f" Those with the {len(alarms)} highest scores are shown."
    lead += " A score of 4 is as surprising as what happens once in 10,000 rows; the highest is 16."
    columns = [
        Column("signal", "signal"), Column("when", "when"), Column("rows", "rows", amount, hint="how long it lasted"),
        Column("score", "anomaly", amount),
    ]  # fmt: skip
    rows = [{**alarm, "signal": signal_link(alarm["signal"], plotted)} for alarm in alarms]
    return section("alarms", "Alarms", paragraphs(lead), table(columns, rows, sort=True, tall=True))
