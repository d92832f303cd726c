"""A Horde: many questions of one stream, a feature maker and a learner; one row at a time, or a whole log.

Row t's features φ_t are made when it is read; what it says of the row before (cumulant, γ) is learned; then every
question is answered from φ_t.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic import checkpoint
from emphatic.active import Active
from emphatic.asking import Asking
from emphatic.blend import Blend
from emphatic.errors import CheckpointError
from emphatic.features import Features
from emphatic.inputs import refusal
from emphatic.learner import Learner
from emphatic.loading import restored
from emphatic.questions import GVF, Observations
from emphatic.streams import Clock, Hold, Table, open_table
from emphatic.tensors import Part

__all__ = ["RATES", "Horde"]

Array = NDArray[np.float64]

#: α = rate / mean φ·φ. Which of them is best depends on the signal: all are learned, and blended.
RATES = (0.1, 0.3, 1.0)
#: Rows of a log that are learned from at a time.
BLOCK = 4096


class Horde:
    """Many questions of one stream of named signals.

    ``questions`` are ``GVF``s, ``features`` a ``Features`` maker, ``rule`` a name of ``emphatic.rules.names()``.
    α is ``rates`` over the mean of φ·φ in the warm-up; with several rates every question has as many learners, whose
    answers are blended by how well they have done (``emphatic.blend``; questions with a policy or a γ that varies
    take the middle rate). ``step`` is the time of a step in seconds, where horizons are durations. Predictions of a
    constant γ are scaled by 1 − γ, into the cumulant's own unit, unless ``scaled`` is False.

    >>> import numpy as np
    >>> from emphatic import GVF, features as f
    >>> horde = Horde([GVF("x", horizon=2)], f.Features([f.Bias(), f.SoftBins("x", bins=3)]), rates=0.3)
    >>> log = {"x": np.sin(np.arange(1000.0))}
    >>> horde.run(log).shape
    (1000, 1)
    >>> horde.observe({"x": 0.5}).shape
    (1,)
    """

    def __init__(
        self,
        questions: Sequence[GVF],
        features: Features,
        rule: str = "true_online_etd",
        *,
        rates: float | Sequence[float] = RATES,
        step: float | None = None,
        scaled: bool = True,
        dtype: str = "float64",
        engine: str = "auto",
        threads: int = 1,
        **extra: float,
    ) -> None:
        self.questions = tuple(questions) if isinstance(questions, Sequence) else ()
        if not self.questions or not all(isinstance(question, GVF) for question in self.questions):
            raise refusal("questions", "Horde", "be a list of GVFs", repr(questions))
        names = [question.name for question in self.questions]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise refusal("questions", "Horde", "have different names", f"{twice!r} twice")
        if not isinstance(features, Features):
            raise refusal("features", "Horde", "be emphatic.features.Features", repr(features))
        self.features, self.rule, self.step, self.scaled = features, rule, step, bool(scaled)
        given = (rates,) if isinstance(rates, int | float) else tuple(rates)
        if not given or not all(isinstance(rate, int | float) and 0.0 < rate < np.inf for rate in given):
            raise refusal("rates", "Horde", "be positive", repr(rates))
        self.rates = tuple(float(rate) for rate in given)
        self._kind: dict[str, Any] = {"dtype": dtype, "engine": engine, "threads": threads}
        self._extra: dict[str, Any] = extra
        self._learner: Learner | None = None

    # ------------------------------------------------------------------ what it is

    @property
    def names(self) -> tuple[str, ...]:
        """The questions' names, in the order of the predictions."""
        return tuple(question.name for question in self.questions)

    @property
    def learner(self) -> Learner:
        """The learner: the questions with the first rate, then all with the next, and so on."""
        self._require()
        assert self._learner is not None
        return self._learner

    @property
    def gamma(self) -> Array:
        """γ of each question; NaN where it varies."""
        return self._require().gamma.copy()

    @property
    def rows(self) -> int:
        """The rows seen so far."""
        self._require()
        return self._rows

    @property
    def hold(self) -> Hold:
        """The last readings, and counts of missing ones."""
        self._require()
        return self._hold

    def __repr__(self) -> str:
        return f"Horde({len(self.questions)} questions, {self.features!r}, {self.rule!r}, rates={self.rates})"

    def _require(self) -> Asking:
        if self._learner is None:
            raise RuntimeError("A Horde must be warmed up before use: call warm_up(table), or run(table).")
        return self._asking

    # ------------------------------------------------------------------ warming up

    def warm_up(self, table: Any, rows: int | None = None) -> Horde:
        """Find ranges, categories and means from the first rows of a table, a tenth of it (500 to 10,000) by default.

        Nothing is learned yet: the next row is the first. Returns itself.
        """
        table = table if isinstance(table, Table) else open_table(table)
        if rows is None:
            rows = 10_000 if table.rows is None else min(10_000, max(500, table.rows // 10))
        block = next(table.blocks(rows))
        clock = table.clock()
        if self.step is None and clock is not None:
            self.step = clock.step
        held, missing = Hold(len(table.names)).fill(block.values)
        self.features.warm_up(held, names=table.names, time=block.time, labels=block.labels)
        self._begin(table.categories)
        observed = Observations(dict(zip(table.names, block.values.T, strict=True)), block.labels, len(block))
        with np.errstate(all="ignore"):
            self._base = np.nan_to_num(self._asking.mean(observed))
        return self

    def _begin(self, categories: Sequence[str]) -> None:
        """Before the first row."""
        signals = self.features.signals
        self._asking = Asking(self.questions, signals, categories, self.step)
        Q, E = len(self.questions), len(self.rates)
        self._learner = Learner(self.rule, self.features.n, Q * E, **self._kind)
        self._hold = Hold(len(signals))
        self._base = np.zeros(Q)
        self._alpha = np.repeat(self.rates, Q) / max(self.features.norm, 1e-12)
        self._lambda = np.tile(self._asking.lambda_, E)
        blended = self._asking.blended if E > 1 else np.zeros(Q, bool)
        self._blended = np.flatnonzero(blended)
        self._blend = Blend(self._asking.gamma[self._blended], E)
        self._rows = 0
        self._phi: Active | None = None  # of the last row; None after a cut
        self._now = np.zeros((2, Q))  # its ρ and interest
        self._fresh = np.ones(Q, bool)  # nothing was learned in the step before

    # ------------------------------------------------------------------ the stream

    def observe(
        self, observation: Mapping[str, Any] | Sequence[float], *, action: Any = None, mu: Any = None, time: Any = None,
        learn: bool = True,
    ) -> Array:  # fmt: skip
        """Learn from the step that this row completes, and return all predictions at it, (Q,).

        ``observation`` is {name: reading} (absent, None or NaN is missing), or the readings in the order of the
        signals. ``action`` is the one taken now, and ``mu`` the probability with which the behaviour chose it. With
        ``learn=False`` it only predicts.
        """
        asking = self._require()
        signals = self.features.signals
        if isinstance(observation, Mapping):
            values = np.array([_number(name, observation.get(name)) for name in signals])
            labels = {name: np.array([observation.get(name)], object) for name in asking.categories}
        else:
            values = np.asarray(observation, np.float64)
            labels = {name: np.array([None], object) for name in asking.categories}
            if values.shape != (len(signals),):
                raise refusal("observation", "observe", f"have {len(signals)} readings", f"shape {values.shape}")
        values = np.where(np.isfinite(values), values, np.nan)
        when = None if time is None else np.array([time])
        actions, chances = (None if given is None else [given] for given in (action, mu))
        predictions: Array = self._learned(values[None], when, labels, actions, chances, np.zeros(1, bool), learn)[0]
        return predictions

    def run(self, table: Any) -> Array:
        """Learn from a whole log, warming up on its first rows if that has not been done; predictions (T, Q)."""
        table = table if isinstance(table, Table) else open_table(table)
        if self._learner is None:
            self.warm_up(table)
        parts = [predictions for _, predictions in self.blocks(table)]
        return np.concatenate(parts) if parts else np.empty((0, len(self.questions)))

    def blocks(self, table: Table, clock: Clock | None = None, start: int = 0) -> Iterator[tuple[Any, Array]]:
        """``run`` in blocks: each block of the table, and the predictions at its rows."""
        asking = self._require()
        if tuple(table.names) != self.features.signals or tuple(table.categories) != asking.categories:
            raise refusal("table", "Horde", f"have the signals {', '.join(self.features.signals)}", repr(table))
        clock = clock or table.clock()
        for block in table.blocks(BLOCK, start):
            gap = np.zeros(len(block), bool) if clock is None or block.time is None else clock.follow(block.time)
            yield block, self._learned(block.values, block.time, block.labels, None, None, gap)

    def cut(self) -> None:
        """What follows is another sequence: forget traces, of features too, and learn nothing from the step across."""
        self._require()
        self.features.cut()
        self.learner.cut()
        self._phi = None
        self._fresh[:] = True

    def _learned(
        self, values: Array, time: Any, labels: Mapping[str, Any], actions: Any, mu: Any, gap: NDArray[np.bool_],
        learn: bool = True,
    ) -> Array:  # fmt: skip
        """The next rows: learn, and answer."""
        asking = self._asking
        held, missing = self._hold.fill(values)
        names = self.features.signals
        raw = Observations(dict(zip(names, values.T, strict=True)), labels, len(values), actions, mu)
        full = Observations(dict(zip(names, held.T, strict=True)), labels, len(values), actions, mu)
        row = asking(raw, full)
        V = np.empty((len(values), len(self.rates) * len(self.questions)))
        edges = np.flatnonzero(gap)
        edges = np.concatenate([[0], edges[edges > 0], [len(values)]]) if len(values) else edges[:1]
        for begin, end in pairwise(edges):
            if gap[begin]:
                self.cut()
            some = slice(begin, end)
            phi = self.features(
                held[some], time=None if time is None else time[some],
                labels={name: column[some] for name, column in labels.items()}, missing=missing[some],
            )  # fmt: skip
            V[some] = self._piece(phi, row.part(some)) if learn else self.learner.predict(phi)
        self._rows += len(values)
        return self._answers(V, row, gap if learn else np.ones(len(gap), bool))

    def _piece(self, phi: Active, row: Any) -> Array:
        """Rows without a gap: the learners' predictions at each, (B, K)."""
        learner = self.learner
        start = self._phi is None
        Phi, before = phi, self._phi
        if before is not None:
            Phi = Active(np.vstack([before.indices, phi.indices]), np.vstack([before.values, phi.values]))
        # φ_t's own ρ and interest, and what the next row says.
        rho = row.rho if start else np.vstack([self._now[0], row.rho])
        interest = row.interest if start else np.vstack([self._now[1], row.interest])
        after = slice(1 if start else 0, None)
        R, there, gamma = row.R[after], row.there[after], row.gamma[after]
        steps = len(R)
        made = np.empty((0, learner.K or 1))
        if steps:
            E = len(self.rates)
            ratio = np.where(there, rho[:steps], 0.0)
            fresh = np.vstack([self._fresh, ~there[:-1]])
            target = np.where(there, R - self._base * self._asking.unit, 0.0)
            I, alpha = interest[:steps], self._alpha
            steady = fresh & self._asking.steady
            if steady.any():
                # After a break F would climb again from I = 1 − γ: start it at 1, where it stays, with M α as ever.
                I = np.where(steady, 1.0, I)
                rest = np.where(steady, 1.0 - self._asking.gamma * self._asking.lambda_, 1.0)
                alpha = alpha * np.tile(rest, (1, E))
            made = learner.run(
                Phi, np.tile(target, (1, E)), _smallest(gamma, E), alpha=alpha, lambda_=self._lambda,
                I=_smallest(I, E), rho=_smallest(ratio, E), on_divergence="freeze", **self._extra,
            )  # fmt: skip
            self._fresh = ~there[-1]
        last = Active(phi.indices[-1:], phi.values[-1:])
        with np.errstate(all="ignore"):
            made = np.vstack([made[0 if start else 1 :], learner.predict(last)])
        self._phi, self._now = last, np.stack([row.rho[-1], row.interest[-1]])
        return made

    def _answers(self, V: Array, row: Any, gap: NDArray[np.bool_]) -> Array:
        """One answer to each question, in its own unit."""
        B, Q, E = len(V), len(self.questions), len(self.rates)
        each = V.reshape(B, E, Q) + self._base
        out = np.array(each[:, E // 2])
        some = self._blended
        if len(some):
            x = row.x[:, some]
            out[:, some] = self._blend(each[:, :, some].transpose(0, 2, 1), x, row.there[:, some], ~gap)
        if not self.scaled:
            out = out / self._asking.scale
        return out

    # ------------------------------------------------------------------ keeping

    def save(self, path: str | os.PathLike[str], **more: Any) -> None:
        """Write one safetensors file with all there is to go on from; ``more`` is kept in its header."""
        checkpoint.write(path, *self._state(more))

    def _state(self, more: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Part]]:
        asking = self._require()
        header, parts = self.learner._state()
        made, arrays = self.features.save()
        header["horde"] = {
            "questions": [question.config() for question in self.questions],
            "categories": list(asking.categories),
            "rates": list(self.rates),
            "rule": self.rule,
            "step": self.step if self.step is not None and np.isfinite(self.step) else None,
            "scaled": self.scaled,
            "kind": self._kind,
            "extra": self._extra,
            "rows": self._rows,
            "features": made,
            "hold": self._hold.state(),
            "counts": asking.counts(),
            "more": dict(more),
        }
        own = {f"features.{name}": array for name, array in arrays.items()}
        own |= {f"blend.{name}": array for name, array in self._blend.arrays().items()}
        own |= {"horde.base": self._base, "horde.now": self._now, "horde.fresh": self._fresh.astype(np.uint8)}
        if self._phi is not None:
            own |= {"horde.indices": self._phi.indices, "horde.values": self._phi.values}
        return header, parts | {name: Part.of(np.ascontiguousarray(array)) for name, array in own.items()}

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Horde:
        """The horde that ``save`` wrote; goes on with the same bits."""
        return Horde.load_with(path)[0]

    @staticmethod
    def load_with(path: str | os.PathLike[str]) -> tuple[Horde, dict[str, Any]]:
        """The same, and what more was saved with it."""
        with checkpoint.opened(path) as (header, stored):
            try:
                told = header["horde"]
                arrays = {
                    name: part.array()
                    for name, part in stored.items()
                    if name.split(".")[0] in ("features", "blend", "horde")
                }
                questions = [GVF.from_config(table) for table in told["questions"]]
                features = Features.load(told["features"], _under("features", arrays))
                horde = Horde(
                    questions, features, told["rule"], rates=told["rates"], step=told["step"], scaled=told["scaled"],
                    **told["kind"], **told["extra"],
                )  # fmt: skip
                horde._begin(told["categories"])
                horde._restore(told, arrays, restored(header, stored))
                return horde, told["more"]
            except CheckpointError:
                raise
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError, MemoryError, OSError) as error:
                raise CheckpointError(f"{os.fsdecode(path)!r} does not hold a sound horde: {error}") from error

    def _restore(self, told: Mapping[str, Any], arrays: dict[str, NDArray[Any]], learner: Learner) -> None:
        Q = len(self.questions)
        if (learner.n, learner.K, learner.rule.name) != (self.features.n, Q * len(self.rates), self.rule):
            raise ValueError(f"its learner is {learner!r}")
        self._learner = learner
        self._hold = Hold.restore(told["hold"])
        if len(self._hold.last) != len(self.features.signals):
            raise ValueError("its last readings are not one a signal")
        self._asking.set_counts(told["counts"])
        self._rows = int(told["rows"])
        for name, own in (("base", self._base), ("now", self._now)):
            given = arrays[f"horde.{name}"]
            if given.shape != own.shape or given.dtype != own.dtype or not np.isfinite(given).all():
                raise ValueError(f"its {name!r} does not fit")
            own[:] = given
        self._fresh = arrays["horde.fresh"].reshape(Q).astype(bool)
        self._blend.restore(_under("blend", arrays))
        if "horde.indices" in arrays:
            indices = arrays["horde.indices"]
            if indices.size and int(indices.max()) >= self.features.n:
                raise ValueError("its last features are out of range")
            self._phi = Active(indices, arrays["horde.values"])


def _under(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(f"{prefix}."): a for name, a in arrays.items() if name.startswith(f"{prefix}.")}


def _smallest(p: Array, E: int) -> Any:
    """A parameter (T, Q) for E learners a question, in the smallest of the forms that the learner takes."""
    if (p == p[0]).all():
        return float(p[0, 0]) if (p[0] == p[0, 0]).all() else np.tile(p[:1], (1, E))
    return np.tile(p, (1, E))


def _number(name: str, reading: Any) -> float:
    if reading is None:
        return np.nan
    try:
        return float(reading)
    except (TypeError, ValueError):
        raise refusal("observation", "observe", f"have a number for {name!r}", repr(reading)) from None
