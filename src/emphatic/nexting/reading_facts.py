"""How a table was read, in facts for ``summary.json`` and the page and in lines for the terminal; and
whether its rows are enough to be scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from emphatic.nexting.settings import WORDS
from emphatic.questions.durations import format_duration
from emphatic.scores.returns import rows_to_score

__all__ = ["check_rows", "reading_facts", "reading_lines", "unused_columns"]

#: Names that a line lists at most.
_LISTED = 6


def check_rows(name: str, rows: int, horizons: Sequence[Any], gammas: Sequence[float]) -> None:
    """ValueError if the log is so short that no horizon can be scored."""
    shortest, gamma = min(zip(horizons, gammas, strict=True), key=lambda pair: pair[1])
    needed = rows_to_score(gamma)
    if rows < needed:
        raise ValueError(
            f"{name}: {rows} rows are too few to learn from and to score: {needed:,} would do for the shortest "
            f"horizon, {shortest}. Use a longer log{'' if gamma <= 0.0 else ', or shorter horizons'}."
        )


def reading_facts(run: Any) -> dict[str, Any]:
    """How the table of a finished ``emphatic.nexting.runner.Nexting`` was read.

    That is ``Table.facts``, with the number of rows, the usual step (in seconds where times are dates), the gaps and
    the times that go back; whether the rows were ``sorted``, and the columns that were ``pivoted``; ``unscored`` are
    signals and horizons without a score, and why.
    """
    clock, table = run.clock, run.table
    step = None if clock is None or not np.isfinite(clock.step) else clock.step
    facts: dict[str, Any] = table.facts() | {
        "rows": run.rows,
        "step": step,
        "step_text": None if step is None else format_duration(step) if table.dated else f"{step:g}",
        "gaps": run.counts.gaps,
        "backwards": 0 if clock is None else clock.backwards,
        "sorted": bool(run.settings.sort),
        "pivoted": list(run.settings.pivot or ()),
        "unscored": _unscored(run),
    }
    facts["columns_left_out"] += [{"name": name, "why": why} for name, why in unused_columns(run).items()]
    return facts


def unused_columns(run: Any) -> dict[str, str]:
    """Columns of text that neither features nor questions use."""
    used = {part["of"] for part in run.settings.features or () if part["kind"] == "one_hot"}
    used |= {question.policy.column for question in run.horde.questions if question.policy is not None}
    why = f"text without 2 to {WORDS} different words in the first rows"
    return {name: why for name in run.table.categories if name not in used}


def _unscored(run: Any) -> list[dict[str, Any]]:
    found = []
    for name in run.settings.predict or ():
        if run.counts.first[run.table.names.index(name)] < 0:
            found.append({"signal": name, "why": "it has no reading in the whole log"})
        elif name in run.constant:
            found.append({"signal": name, "why": "it never changes"})
    for horizon, gamma in zip(run.settings.horizons or (), run.horde.gamma, strict=False):
        needed = rows_to_score(float(gamma))
        if run.rows < needed:
            found.append({"horizon": horizon, "why": f"the log is too short: {needed:,} rows would do", "rows": needed})
    return found


def reading_lines(facts: Mapping[str, Any]) -> list[str]:
    """The facts, as the last lines of a run."""
    time = facts["time"]
    if "why" in time:
        lines = [f"No time column: {time['why']}. {_many(facts['gaps'], 'gap')}."]
    else:
        zone = f", zone {time['zone']}" if time["zone"] else ""
        step = f"usual step {facts['step_text']}" if facts["step_text"] else "no step"
        back = f", {facts['backwards']:,} of them where time goes back" if facts["backwards"] else ""
        columns = " and ".join(map(repr, time["columns"]))
        lines = [f"Time: {columns} ({time['format']}{zone}); {step}; {_many(facts['gaps'], 'gap')}{back}."]
    if facts["pivoted"]:
        sensor, *values = map(repr, facts["pivoted"])
        lines.append(f"Pivoted: a column of {' and '.join(values)} for each {sensor}.")
    if facts["sorted"]:
        lines.append("Rows sorted by time.")
    if facts["rows_dropped"]:
        why = "; ".join(f"{one['count']:,} × {one['why']} (first: {one['first']:,})" for one in facts["rows_dropped"])
        lines.append(f"Rows dropped: {why}.")
    if facts["rows_short"]:
        lines.append(f"Short rows: {facts['rows_short']:,}; the fields that are not there count as missing.")
    if facts.get("percent"):
        lines.append(f"Percent signs left out (50% is 50): {_list(list(map(repr, facts['percent'])))}.")
    if facts["columns_left_out"]:
        left = [f"{one['name']!r} ({one['why']})" for one in facts["columns_left_out"]]
        lines.append(f"Columns left out: {_list(left)}.")
    if facts["unscored"]:
        without = [f"{one.get('signal', one.get('horizon'))!s} ({one['why']})" for one in facts["unscored"]]
        lines.append(f"Not scored: {_list(without)}.")
    return lines


def _many(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def _list(words: Sequence[str]) -> str:
    more = f" and {len(words) - _LISTED} more" if len(words) > _LISTED else ""
    return ", ".join(words[:_LISTED]) + more
