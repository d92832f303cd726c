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
    ) + f"On a stationary signal a false alarm is to begin once in {1.0 / rate:,.0f} rows at most."
    if not alarms:
        return section("alarms", "Alarms", paragraphs(lead))
    if len(alarms) < total:
        lead += f" Those with the {len(alarms)} highest scores:"
    columns = [
        Column("when", "when"), Column("signal", "signal"), Column("rows in alarm", "rows", amount),
        Column("score", "anomaly", amount, hint="4: as surprising as one row in 10,000; 16 is the highest"),
    ]  # fmt: skip
    rows = [{**alarm, "signal": signal_link(alarm["signal"], plotted)} for alarm in alarms]
    return section("alarms", "Alarms", paragraphs(lead), table(columns, rows, sort=True, tall=True))
