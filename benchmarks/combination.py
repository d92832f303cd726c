"""What the combination of candidate predictions loses: to its best candidate, and to a hostile one.

    python -m benchmarks.combination [--log NAME …] [--table FILE …]
    python -m benchmarks.combination --leave-out [--log NAME …] [--table FILE …]

The first table has a line for each number of horizons that a log has: of all questions, how many are more than .05 and
more than .15 below the candidate that is best on the scored half, which is known only in hindsight; and the same of the
candidate that was best on the first half by actual returns, which is what one can know. Logs are cut to that length.
The second has a line for each hostile candidate that is added to the list: how many questions lose more than .02 and
more than .1 of the variance explained, and the worst. Those that get stuck do so at the largest reading, from 60% of
the log on. Logs are the development logs whose packages are installed, and predictions were developed on these.

With ``--leave-out`` there is one table: what all questions lose of the variance explained without each candidate, and
without all of a kind. The present value, its trace and the mean so far always stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

import emphatic
from benchmarks.development_logs import DevelopmentLog, choose_logs, log_options
from benchmarks.forecasting import prepare
from emphatic.hordes.blend import Combination

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: Horizons of the lengths to which logs are cut, and the rows that they have at least.
HORIZONS, FEWEST = (25, 50, 100, 200, 400), 100


@dataclass(frozen=True)
class Recorded:
    """What the combination was given on a log, and the returns G that it should have predicted where ``known``."""

    V: Array
    x: Array
    follows: Flags
    fresh: Flags
    optional: int
    gamma: Array
    G: Array
    known: Flags
    names: tuple[str, ...]

    def combine(self, hostile: Array | None = None, without: Sequence[int] = ()) -> tuple[Array, Array]:
        """The predictions (T, Q) and the candidates (T, Q, …).

        Args:
            hostile: A candidate (T, Q) that is put before the others.
            without: The places of candidates that are left out.
        """
        remain = [i for i in range(len(self.names)) if i not in without]
        V, fresh = self.V[:, :, remain], self.fresh[:, :, remain]
        optional = sum(i < self.optional for i in remain)
        if hostile is not None:
            V = np.concatenate([hostile[:, :, None], V], axis=2)
            fresh = np.concatenate([np.zeros((*self.x.shape, 1), bool), fresh], axis=2)
            optional += 1
        combination = Combination(self.gamma, V.shape[2])
        predictions, candidates = combination(V, self.x, self.follows, fresh if fresh.any() else None, optional)
        read = np.isfinite(self.x)
        mean = np.where(read, self.x, 0.0).cumsum(axis=0) / np.maximum(read.cumsum(axis=0), 1)
        return predictions, np.concatenate([candidates, mean[:, :, None]], axis=2)

    def explain(self, predictions: Array, q: int, rows: slice) -> Array:
        """The variance explained of question q by predictions (T, …) in those of the rows whose return is known."""
        known = np.flatnonzero(self.known[rows, q]) + (rows.start or 0)
        G = self.G[known, q]
        if len(known) < 10 or np.ptp(G) <= 1e-4 * np.nanstd(self.x[:, q]):
            return np.full(predictions.shape[1:], np.nan)
        errors = (predictions[known].T - G) ** 2
        explained: Array = 1.0 - errors.mean(axis=-1) / np.var(G)
        return explained


def record(log: DevelopmentLog) -> Recorded:
    """Run a log, and keep what its combination is given."""
    calls: list[tuple[Any, ...]] = []
    combine = Combination.__call__

    def call(self: Combination, V: Array, x: Array, follows: Flags, fresh: Any, optional: int) -> Any:
        calls.append((V.copy(), x.copy(), follows.copy(), np.zeros(V.shape, bool) if fresh is None else fresh.copy()))
        options.append((optional, self.gamma))
        return combine(self, V, x, follows, fresh, optional)

    options: list[tuple[int, Array]] = []
    source = log.read()
    with mock.patch.object(Combination, "__call__", call):
        result = emphatic.nexting.run(source, horizons=log.horizons, exponential_only=True, offline=False)
    _, G, known = prepare(source, result, log.periods)
    optional, gamma = options[0]
    V, x, follows, fresh = (np.concatenate(arrays) for arrays in zip(*calls, strict=True))
    names = tuple(result.model.answers)[: V.shape[2]]
    return Recorded(V, x, follows, fresh, optional, gamma, G.T, known.T, names)


def compare_with_candidates(recorded: Recorded) -> Iterator[tuple[int, float, float]]:
    """By horizons how far the combination is below the best candidate of the scored half, and that of the first half.

    The horizons are 0 for the whole log.
    """
    predictions, candidates = recorded.combine()
    T = len(predictions)
    for q, gamma in enumerate(recorded.gamma):
        delay = int(np.ceil(np.log(0.01) / np.log(gamma))) if gamma > 0.0 else 1
        for horizons in (0, *HORIZONS):
            end = int(horizons / (1.0 - gamma)) if horizons else T
            if not FEWEST <= end <= T:
                continue
            scored = slice(end // 2, T if end == T else end - delay)
            explained = recorded.explain(candidates[:, q], q, scored)
            best = explained.max()
            first = recorded.explain(candidates[:, q], q, slice(end // 10, max(end // 10, end // 2 - delay)))
            knowable = explained[-1 if np.isnan(first).any() else int(first.argmax())]
            if not np.isnan(best):
                ours = float(recorded.explain(predictions[:, q], q, scored))
                yield horizons, best - ours, best - knowable


def hostile_candidates(recorded: Recorded, predictions: Array) -> Iterator[tuple[str, Array]]:
    """Candidates that harm a combination, by name."""
    rng, x = np.random.default_rng(7), recorded.x
    deviation, T = np.nanstd(x, axis=0), len(x)
    G = np.where(np.isfinite(recorded.G), recorded.G, np.nan_to_num(x))
    error = np.sqrt(np.nanmean(np.where(recorded.known, recorded.G - predictions, np.nan) ** 2, axis=0))
    yield "noise", np.nanmean(x, axis=0) + deviation * rng.normal(size=x.shape)
    spikes = rng.choice([-1.0, 0.0, 1.0], x.shape, p=[0.005, 0.99, 0.005])
    yield "spikes of 100 deviations", predictions + 100.0 * deviation * spikes
    good = {
        "a copy of the prediction": predictions,
        "halfway to the return": 0.5 * (G + predictions),
        "half the squared error": G + np.sqrt(0.5) * error * rng.normal(size=x.shape),
        "the return": G,
    }
    highest = np.nanmax(x[: int(0.6 * T)], axis=0)
    for name, candidate in good.items():
        yield f"{name}, then stuck", np.where(np.arange(T)[:, None] < int(0.6 * T), candidate, highest)


def measure_hostile(recorded: Recorded) -> Iterator[tuple[str, float]]:
    """What each hostile candidate costs each question."""
    alone, _ = recorded.combine()
    half = slice(len(alone) // 2, len(alone))
    for name, candidate in hostile_candidates(recorded, alone):
        beside, _ = recorded.combine(candidate)
        for q in range(len(recorded.gamma)):
            cost = float(recorded.explain(alone[:, q], q, half) - recorded.explain(beside[:, q], q, half))
            if not np.isnan(cost):
                yield name, cost


def measure_without(recorded: Recorded) -> Iterator[tuple[str, Array]]:
    """What each question loses without a candidate, and without all of a kind, NaN where its return does not vary."""
    T, Q = recorded.x.shape
    kinds = list(dict.fromkeys(name.split()[-1 if "season" in name else 0] for name in recorded.names))
    groups = [(name, [i]) for i, name in enumerate(recorded.names)]
    groups += [(f"all of {kind}", [i for i, name in enumerate(recorded.names) if kind in name]) for kind in kinds]
    scores = [
        [recorded.explain(predictions[:, q], q, slice(T // 2, T)) for q in range(Q)]
        for predictions in (recorded.combine(without=places)[0] for _, places in (("", []), *groups))
    ]
    for (name, places), without in zip(groups, scores[1:], strict=True):
        if len(places) > 1 or not name.startswith("all"):
            yield name, np.array(scores[0]) - np.array(without)


def print_without(logs: Sequence[DevelopmentLog]) -> None:
    """The table of what is lost without a candidate; the last column names the log with the largest loss."""
    costs: dict[str, list[tuple[float, str]]] = {}
    for log in logs:
        for name, lost in measure_without(record(log)):
            costs.setdefault(name, []).extend((float(cost), log.name) for cost in lost if not np.isnan(cost))
        print(f"{log.name}: measured", flush=True)
    print("\n| without | questions | mean loss | lose, gain > .005 | lose, gain > .02 | most | least |")
    print("|---|--:|--:|--:|--:|---|---|")
    for name, entries in costs.items():
        lost = np.array([cost for cost, _ in entries])
        counts = " | ".join(f"{np.sum(lost > size)}, {np.sum(lost < -size)}" for size in (0.005, 0.02))
        ends = " | ".join(f"{cost:+.3f} ({of})" for cost, of in (max(entries), min(entries)))
        print(f"| {name} | {len(lost)} | {lost.mean():+.4f} | {counts} | {ends} |")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables."""
    parser = log_options("combination", __doc__)
    parser.add_argument("--leave-out", action="store_true", help="what is lost without each candidate")
    options = parser.parse_args(arguments)
    if options.old:
        parser.error("--old: there is no comparison with an earlier version here")
    if options.leave_out:
        print_without(choose_logs(options))
        return 0
    losses: dict[int, list[tuple[float, float]]] = {}
    costs: dict[str, list[float]] = {}
    for log in choose_logs(options):
        recorded = record(log)
        for horizons, ours, knowable in compare_with_candidates(recorded):
            losses.setdefault(horizons, []).append((ours, knowable))
        for name, cost in measure_hostile(recorded):
            costs.setdefault(name, []).append(cost)
        print(f"{log.name}: {len(recorded.x):,} rows, {len(recorded.gamma)} questions", flush=True)
    print("\n| horizons | questions | combination: > .05, > .15 | best of the first half: > .05, > .15 |")
    print("|---|---|---|---|")
    for horizons, pairs in sorted(losses.items()):
        ours, knowable = np.array(pairs).T
        counts = [f"{np.sum(loss > 0.05)}, {np.sum(loss > 0.15)}" for loss in (ours, knowable)]
        print(f"| {horizons or 'whole logs'} | {len(pairs)} | {counts[0]} | {counts[1]} |")
    print("\n| hostile candidate | questions | > .02 | > .1 | worst |\n|---|---|---|---|---|")
    for name, each in costs.items():
        every = np.array(each)
        print(f"| {name} | {len(every)} | {np.sum(every > 0.02)} | {np.sum(every > 0.1)} | {every.max():.2f} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
