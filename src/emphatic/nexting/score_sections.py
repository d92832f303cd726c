"""How good the predictions are: a summary for each horizon, and every score beside its baselines."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from emphatic.report.page import Html, paragraphs, section, terms, text
from emphatic.report.tables import Column, amount, known, percent, seconds, share, table

__all__ = ["count", "horizon_label", "horizons", "median", "scores_section", "summary_section"]

#: The four that are compared: where a score keeps each ("" is the score itself), and its name on the page.
RIVALS = {"": "online", "offline": "offline fit", "persistence": "persistence", "mean": "running mean"}

TERMS = {
    "Prediction": "The weighted mean of what the signal does next, in the signal's own unit. A horizon of h steps "
    "gives the reading k steps ahead the weight (1\u202f−\u202f1/h)ᵏ⁻¹/h, so that nearer readings count more.",
    "Actual return": "That same weighted mean, computed afterwards from the readings that followed.",
    "Variance explained": "How much of the actual return was predicted: 1 is perfect, 0 is no better than a constant, "
    "below 0 is worse. It is 1 − (mean squared error) / (variance of the actual return).",
    "Online": "Learned in one pass: every prediction was made before the readings it is about.",
    "Offline fit": "Ridge regression of the returns on the same reading, its trace over the horizon and the same "
    "features, fitted with hindsight on the first half of the log (its strength chosen on the last fifth of that), and "
    "scored on the second, where it learns no more. The features depend on the longest horizon requested, and so does "
    "this column.",
    "Skill": "1 − (mean squared error) / (that of persistence): above 0 is better than persistence.",
    "Interval": "A prediction's interval is to hold its actual return in the share of cases that was wanted; coverage "
    "is the share that it did hold. The interval score is the mean width, and a penalty for each return outside "
    "(Winkler): less is better. An interval is not calibrated yet before the returns of 100 horizons are known, or "
    "while its coverage is off.",
    "Persistence": "Predicts that the signal stays as it is now.",
    "Running mean": "Predicts the mean of all readings so far.",
}


def horizon_label(horizon: Any) -> str:
    """A horizon as text: a number is of steps."""
    return count(horizon, "step") if known(horizon) else str(horizon)


def horizons(scores: Iterable[Mapping[str, Any]]) -> dict[Any, float]:
    """The horizons in their order, each with its shade from 0 (the shortest) to 1 (the longest)."""
    several = list(dict.fromkeys(score["horizon"] for score in scores))
    return {horizon: i / max(1, len(several) - 1) for i, horizon in enumerate(several)}


def median(values: Iterable[Any]) -> float | None:
    """The median of the numbers that are known, None if none is."""
    numbers = [value for value in values if known(value)]
    return statistics.median(numbers) if numbers else None


def _of(score: Mapping[str, Any], rival: str, what: str) -> Any:
    """A number of a score, or of one of its baselines; None if there is none."""
    return ((score.get(rival) or {}) if rival else score).get(what)


def count(number: float, thing: str) -> str:
    """So many of them: "1 signal", "2 signals"."""
    return f"{amount(number)} {thing}" if number == 1 else f"{amount(number)} {thing}s"


def summary_section(
    scores: Sequence[Mapping[str, Any]], rows: int | None, learning: float | None, coverage: float | None = None
) -> Html:
    """A sentence or two, the median over signals for each horizon, and what the words mean."""
    lines = []
    for horizon in horizons(scores):
        of_it = [score for score in scores if score["horizon"] == horizon]
        line: dict[str, Any] = {"horizon": horizon_label(horizon)}
        line |= {
            name: median(_of(score, rival, "variance_explained") for score in of_it) for rival, name in RIVALS.items()
        }
        length = 100 * min(max(line["online"] or 0.0, 0.0), 1.0)
        line["meter"] = Html(f'<span class="meter"><i style="width:{length:.0f}%"></i></span>')
        line["coverage"] = _coverage(of_it)
        lines.append(line)
    columns = [Column("horizon", "horizon")]
    columns += [Column(name, name, share, rival="best") for name in RIVALS.values()]
    columns.insert(2, Column("", "meter"))
    if coverage is not None:
        hint = "share of the actual returns inside the intervals, median over the signals"
        columns.append(Column(f"in the {percent(coverage)} interval", "coverage", str, hint=hint))
    signals = len({score["signal"] for score in scores})
    passed = f" of {amount(rows)} rows" if rows is not None else ""
    took = f", in {seconds(learning)}" if learning is not None else ""
    questions = f"{count(signals, 'signal')} predicted at {count(len(lines), 'horizon')}"
    lead = f"{questions}, learned in one pass over a log{passed}{took}."
    explained = [f"{percent(line['online'])} at {line['horizon']}" for line in lines if line["online"] is not None]
    if explained:
        of = " for the median signal" if signals > 1 else ""
        lead += f" Variance explained{of}: {', '.join(explained)}."
    note = "Variance explained in the second half of the log, median over the signals. The best in each row is marked."
    return section(
        "summary", "Summary", paragraphs(lead, kind="lead"), table(columns, lines), paragraphs(note, *_reasons(scores)),
        terms(TERMS),
    )  # fmt: skip


def _coverage(scores: Sequence[Mapping[str, Any]]) -> str | None:
    """The median coverage of a horizon's intervals, unless those of most signals are not calibrated yet."""
    middle = median(score.get("coverage") for score in scores)
    if middle is None:
        return None
    calibrated = [score.get("calibrated") for score in scores if known(score.get("coverage"))]
    return percent(middle) if 2 * sum(map(bool, calibrated)) > len(calibrated) else "not calibrated yet"


def _reasons(scores: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why a column is empty, where it is so for some signals at least."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for score in scores:
        for name, why in (score.get("reasons") or {}).items():
            if name in ("variance_explained", "offline"):
                shown = "Offline fit" if name == "offline" else "Variance explained"
                found.setdefault(f"{shown}: {why}", []).append(score)
    return [f"– {why} ({_which(of, scores)})." for why, of in found.items()]


def _which(some: Sequence[Mapping[str, Any]], scores: Sequence[Mapping[str, Any]]) -> str:
    if len(some) == len(scores):
        return "all"
    names = list(dict.fromkeys(score["signal"] for score in some))
    listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    if len(names) * len(horizons(scores)) == len(some):
        return listed
    return f"{listed} at {', '.join(map(horizon_label, horizons(some)))}"


def scores_section(scores: Sequence[Mapping[str, Any]], plotted: Sequence[str], coverage: float | None = None) -> Html:
    """Every signal and horizon beside its baselines; a signal's name leads to its plot."""
    if not scores:
        return Html()
    places = {name: i for i, name in enumerate(plotted)}
    rows = []
    for score in scores:
        name = score["signal"]
        row = {
            "signal": Html(f'<a href="#signal-{places[name]}">{text(name)}</a>') if name in places else name,
            "horizon": horizon_label(score["horizon"]),
            "gamma": score.get("gamma"),
            "first": _of(score, "first_half", "variance_explained"),
            "ratio": score.get("ratio_to_offline"),
            "skill": score.get("skill"),
            "known": score.get("known"),
            "coverage": score.get("coverage"),
            "interval_score": score.get("interval_score"),
            "calibrated": {None: None, True: "yes", False: "not yet"}[score.get("calibrated")],
        }
        row |= {what + rival: _of(score, rival, what) for what in ("variance_explained", "rmse") for rival in RIVALS}
        rows.append(row)
    explained, error = "variance explained", "RMSE"
    columns = [Column("signal", "signal"), Column("horizon", "horizon", order="gamma")]
    columns += [Column(name, "variance_explained" + r, share, explained, "explained") for r, name in RIVALS.items()]
    columns += [
        Column("÷ offline", "ratio", share, explained, hint="online divided by the offline fit"),
        Column(
            "skill", "skill", share, explained, hint="1 − MSE / MSE(persistence): above 0 is better than persistence"
        ),
        Column("first half", "first", share, explained, hint="online, in the first half of the log"),
    ]
    columns += [Column(name, "rmse" + rival, amount, error, "error", -1) for rival, name in RIVALS.items()]
    if coverage is not None:
        over = f"{percent(coverage)} interval"
        columns += [
            Column("coverage", "coverage", share, over, hint="share of the actual returns inside"),
            Column("interval score", "interval_score", amount, over, hint="width, and a penalty for returns outside"),
            Column("calibrated", "calibrated", str, over),
        ]
    columns.append(Column("rows scored", "known", amount))
    note = (
        "On the second half of the log, where the actual return is known. RMSE is the root mean squared error, in the "
        "signal's own unit. The best of the four in each row is marked; click a heading to sort."
    )
    return section("scores", "Scores", paragraphs(note), table(columns, rows, sort=True, tall=True))
