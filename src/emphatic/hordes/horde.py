"""A Horde: many questions of one stream, a feature maker and a learner; one row at a time, or a whole log.

Row t's features φ_t are made when it is read; what it says of the row before (cumulant, γ) is learned; then every
question is answered from φ_t.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic import rules
from emphatic.errors import CheckpointError
from emphatic.features import Features
from emphatic.hordes.blend import Blend
from emphatic.learning import checkpoint, restoring
from emphatic.learning.active import Active, trusted
from emphatic.learning.inputs import refusal
from emphatic.learning.learner import Learner
from emphatic.learning.sequences import UndiscountedWarning
from emphatic.learning.tensors import Part
from emphatic.questions.answers import Asking, Rows
from emphatic.questions.gvf import GVF, Observations, told
from emphatic.tables import Clock, Hold, Table, open_table

__all__ = ["RATES", "Horde", "warm_up_rows"]

Array = NDArray[np.float64]

#: α = rate / mean φ·φ. Which of them is best depends on the signal: all are learned, and blended.
RATES = (0.1, 0.3, 1.0)
#: Rows of a log that are learned from at a time.
BLOCK = 4096
#: How the names of arrays begin that are not the learner's.
_OWN = ("features.", "blend.", "horde.")
#: And of those that a user keeps with a horde.
_MORE = "horde.more."


def warm_up_rows(rows: int) -> int:
    """The rows that ranges, categories and means are found from: a tenth of the log, 500 to 10,000."""
    return min(rows, 10_000, max(500, rows // 10))


class Horde:
    """Many questions of one stream of named signals.

    ``questions`` are ``GVF``s, ``features`` a ``Features`` maker, ``rule`` a name of ``emphatic.rules.names()``.
    α is ``rates`` over the mean of φ·φ in the warm-up; with several rates every question has as many learners, whose
    answers are blended by how well they have done (``emphatic.hordes.blend``; questions with a policy or a γ that
    varies take the middle rate). ``step`` is the time of a step in seconds, where horizons are durations. Predictions
    of a constant γ are scaled by 1 − γ, into the cumulant's own unit, unless ``scaled`` is False.

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
        if not isinstance(scaled, bool):
            raise refusal("scaled", "Horde", "be True or False", repr(scaled))
        self.features, self.rule, self.step, self.scaled = features, rule, step, scaled
        given = (rates,) if isinstance(rates, int | float) else rates if isinstance(rates, Sequence) else ()
        if not given or not all(isinstance(rate, int | float) and 0.0 < rate < np.inf for rate in given):
            raise refusal("rates", "Horde", "be a positive number or a list of them", repr(rates))
        self.rates = tuple(sorted(float(rate) for rate in given))
        if step is not None and not isinstance(step, int | float):
            raise refusal("step", "Horde", "be the seconds of a step", repr(step))
        # Says at once where there is no such rule or engine, or the rule needs or has not such parameters.
        self._kind: dict[str, Any] = {"dtype": dtype, "engine": engine, "threads": threads}
        Learner(rule, 1, 1, **self._kind)
        Learner(rule, 1, engine="reference").learn(0.0, 1.0, 0.0, [1.0], 1.0, 0.0, [1.0], 0.0, **extra)
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
    def base(self) -> Array:
        """The mean of each cumulant in the warm-up, from which its departures are learned; 0 where it is not so."""
        self._require()
        return self._base.copy()

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
            rows = warm_up_rows(sum(len(part) for part in table.blocks()) if table.rows is None else table.rows)
        block = next(table.blocks(rows))
        clock = table.clock()
        step = clock.step if self.step is None and clock is not None else self.step
        asking = Asking(self.questions, table.names, table.categories, step, rules.get(self.rule))
        held, _ = Hold(len(table.names)).fill(block.values)
        self.features.warm_up(held, names=table.names, time=block.time, labels=block.labels)
        self.step = step
        self._begin(asking, Learner(self.rule, self.features.n, len(self.questions) * len(self.rates), **self._kind))
        self._base = asking.mean(Observations(table.names, block.values, block.labels))
        return self

    def _begin(self, asking: Asking, learner: Learner) -> None:
        """Before the first row."""
        Q, E = len(self.questions), len(self.rates)
        self._asking, self._learner = asking, learner
        self._hold = Hold(len(self.features.signals))
        self._base = np.zeros(Q)
        self._alpha = np.repeat(self.rates, Q)[None] / max(self.features.norm, 1e-12)
        self._lambda = np.tile(asking.lambda_, E)[None]
        self._blended = np.flatnonzero(asking.blended if E > 1 else np.zeros(Q, bool))
        self._blend = Blend(asking.gamma[self._blended], E)
        self._rows = 0
        self._phi: Active | None = None  # of the last row; None after a cut
        self._now = np.zeros((2, Q))  # its ρ and interest
        self._fresh = np.ones(Q, bool)  # nothing was learned in the step before

    # ------------------------------------------------------------------ the stream

    def observe(
        self,
        observation: Mapping[str, Any] | Sequence[Any] | Array,
        *,
        action: Any = None,
        mu: Any = None,
        time: Any = None,
        learn: bool = True,
    ) -> Array:
        """Learn from the step that this row completes, and return all predictions at it, (Q,).

        ``observation`` is {name: reading} (absent, None, NaN or infinite is missing), or the readings in the order of
        the signals. ``action`` is the one taken now, and ``mu`` the probability with which the behaviour chose it.
        ``time``, in seconds or datetime64, is for features of time; gaps are for the caller to find, and ``cut`` at.
        With ``learn=False`` it only predicts: no weight changes, and the step across is no step.
        """
        asking = self._require()
        signals = self.features.signals
        labels: dict[str, Any] = {name: [None] for name in asking.categories}
        if isinstance(observation, Mapping):
            read = [_number(name, observation.get(name)) for name in signals]
            labels = {name: [_label(name, observation.get(name))] for name in asking.categories}
        elif isinstance(observation, str) or not hasattr(observation, "__len__") or len(observation) != len(signals):
            raise refusal(
                "observation", "observe", f"be {{name: reading}} or {len(signals)} readings", repr(observation)
            )
        else:
            read = [_number(name, reading) for name, reading in zip(signals, observation, strict=True)]
        if action is not None:
            told(action)
        if mu is not None and not (isinstance(mu, int | float | np.number) and 0.0 < mu <= 1.0):
            raise refusal("mu", "observe", "be a probability above 0", repr(mu))
        values = np.array([read])
        values[~np.isfinite(values)] = np.nan
        when = None if time is None else np.array([time])
        actions, chances = (None if given is None else [given] for given in (action, mu))
        predictions: Array = self._learned(values, when, labels, actions, chances, np.zeros(1, bool), learn)[0]
        return predictions

    def run(self, table: Any) -> Array:
        """Learn from a whole log, warming up on its first rows if that has not been done; predictions (T, Q).

        It goes on from what was seen before; ``cut`` first, where the log is another sequence.
        """
        table = table if isinstance(table, Table) else open_table(table)
        if self._learner is None:
            self.warm_up(table)
        parts = [predictions for _, predictions in self.blocks(table)]
        return np.concatenate(parts) if parts else np.empty((0, len(self.questions)))

    def blocks(self, table: Table, clock: Clock | None = None, start: int = 0) -> Iterator[tuple[Any, Array]]:
        """``run`` in blocks: each block of the table, and the predictions at its rows."""
        asking = self._require()
        if tuple(table.names) != self.features.signals or tuple(table.categories) != asking.categories:
            wanted = f"have the columns {', '.join((*self.features.signals, *asking.categories))}"
            raise refusal("table", "Horde", wanted, ", ".join((*table.names, *table.categories)))
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
        """The next rows: learn, and answer. What can be refused is refused before anything is changed."""
        asking = self._asking
        hold, counts = copy(self._hold), asking.counts
        held, missing = hold.fill(values)
        raw, full = (Observations(self.features.signals, part, labels, actions, mu) for part in (values, held))
        V = np.empty((len(values), len(self.rates) * len(self.questions)))
        follows = ~gap
        follows[:1] &= self._phi is not None and learn
        edges = [0, *(np.flatnonzero(gap[1:]) + 1).tolist(), len(values)]
        try:
            row = asking(raw, full)
            for begin, end in pairwise(edges):
                if gap[begin]:
                    self.cut()
                some = slice(begin, end)
                phi = self.features(
                    held[some], time=None if time is None else time[some],
                    labels={name: column[some] for name, column in labels.items()}, missing=missing[some],
                )  # fmt: skip
                if learn:
                    V[some] = self._piece(phi, row.part(some))
                else:
                    V[some], self._phi = self.learner.predict(phi), None
        except Exception:
            asking.counts = counts
            raise
        self._hold = hold
        self._rows += len(values)
        return self._answers(V, row, follows)

    def _piece(self, phi: Active, row: Rows) -> Array:
        """Rows without a gap: the learners' predictions at each, (B, K)."""
        learner = self.learner
        start = self._phi is None
        Phi, before = phi, self._phi
        if before is not None:
            Phi = trusted(
                np.concatenate([before.indices, phi.indices]), np.concatenate([before.values, phi.values]),
                max(before.top, phi.top),
            )  # fmt: skip
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
                alpha = alpha * _tiled(rest, E)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UndiscountedWarning)  # an episode may be longer than this
                made = learner.run(
                    Phi, _tiled(target, E), _smallest(gamma, E), alpha=alpha, lambda_=self._lambda,
                    I=_smallest(I, E), rho=_smallest(ratio, E), on_divergence="freeze", **self._extra,
                )  # fmt: skip
            self._fresh = ~there[-1]
        last = trusted(phi.indices[-1:].copy(), phi.values[-1:].copy(), phi.top)
        with np.errstate(all="ignore"):
            made = np.vstack([made[0 if start else 1 :], learner.predict(last)])
        self._phi, self._now = last, np.stack([row.rho[-1], row.interest[-1]])
        return made

    def _answers(self, V: Array, row: Rows, follows: NDArray[np.bool_]) -> Array:
        """One answer to each question, in its own unit."""
        B, Q, E = len(V), len(self.questions), len(self.rates)
        each = V.reshape(B, E, Q) + self._base
        out = np.array(each[:, E // 2])
        some = self._blended
        if len(some):
            V = each[:, :, some].transpose(0, 2, 1)
            out[:, some] = self._blend(V, row.x[:, some], follows)
        if not self.scaled:
            out = out / self._asking.scale
        return out

    # ------------------------------------------------------------------ keeping

    def save(self, path: str | os.PathLike[str], **more: Any) -> None:
        """Write one safetensors file with all there is to go on from.

        ``more`` is kept with it, for ``load_with``: arrays as arrays, and in the header whatever JSON can hold.
        """
        checkpoint.write(path, *self._state(more))

    def _state(self, more: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Part]]:
        asking = self._require()
        header, parts = self.learner._state()
        entries, kept = restoring.pack(more, _MORE)
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
            "counts": asking.counts,
            "more": entries,
        }
        own = {f"features.{name}": array for name, array in arrays.items()}
        own |= {f"blend.{name}": array for name, array in self._blend.arrays().items()}
        own |= {"horde.base": self._base, "horde.now": self._now, "horde.fresh": self._fresh.view(np.uint8)}
        if self._phi is not None:
            own |= {"horde.indices": self._phi.indices, "horde.values": self._phi.values}
        return header, parts | kept | {name: Part.of(np.ascontiguousarray(array)) for name, array in own.items()}

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Horde:
        """The horde that ``save`` wrote; goes on with the same bits."""
        return Horde.load_with(path)[0]

    @staticmethod
    def load_with(path: str | os.PathLike[str]) -> tuple[Horde, dict[str, Any]]:
        """The same, and what more was saved with it."""
        with checkpoint.opened(path) as (header, stored):
            if "horde" not in header:
                raise CheckpointError(f"{os.fsdecode(path)!r} holds a learner and no horde: emphatic.load opens it.")
            try:
                told = header["horde"]
                own = {name: part.array() for name, part in stored.items() if name.startswith(_OWN)}
                horde = Horde(
                    [GVF.from_config(table) for table in told["questions"]],
                    Features.load(told["features"], _under("features", own)),
                    told["rule"], rates=told["rates"], step=told["step"], scaled=told["scaled"],
                    **told["kind"], **told["extra"],
                )  # fmt: skip
                horde._restore(told, own, Learner._restored(header, stored))
                return horde, restoring.unpack(told["more"], stored, _MORE)
            except Exception as error:  # whatever a damaged file leads to
                raise CheckpointError(f"{os.fsdecode(path)!r} does not hold a sound horde: {error}") from error

    def _restore(self, told: Mapping[str, Any], arrays: dict[str, NDArray[Any]], learner: Learner) -> None:
        Q, C = len(self.questions), len(self.features.signals)
        if (learner.n, learner.K, learner.rule.name) != (self.features.n, Q * len(self.rates), self.rule):
            raise ValueError(f"its learner is {learner!r}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UndiscountedWarning)  # it was said when the questions were asked
            asking = Asking(self.questions, self.features.signals, told["categories"], self.step, learner.rule)
        self._begin(asking, learner)
        self._hold = Hold.restore(told["hold"])
        if any(len(part) != C for part in (self._hold.last, self._hold.missing, self._hold.longest, self._hold._run)):
            raise ValueError("its last readings are not one a signal")
        asking.counts = told["counts"]
        self._rows = int(told["rows"])
        for name, own in (("base", self._base), ("now", self._now), ("fresh", self._fresh.view(np.uint8))):
            given = arrays[f"horde.{name}"]
            if given.shape != own.shape or given.dtype != own.dtype or not np.isfinite(given).all():
                raise ValueError(f"its {name!r} does not fit")
            own[:] = given
        self._blend.restore(_under("blend", arrays))
        if "horde.indices" in arrays:
            phi = Active(arrays["horde.indices"], arrays["horde.values"])
            if phi.shape != (1, self.features.active) or phi.top >= self.features.n:
                raise ValueError("its last features do not fit")
            self._phi = phi


def _under(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(f"{prefix}."): a for name, a in arrays.items() if name.startswith(f"{prefix}.")}


def _tiled(p: Array, E: int) -> Array:
    """A parameter (T, Q) for E learners a question."""
    return np.concatenate([p] * E, axis=1)


def _smallest(p: Array, E: int) -> Array:
    """The same, as (1, K) where it is the same in every step."""
    return _tiled(p[:1] if len(p) > 1 and (p == p[0]).all() else p, E)


def _number(name: str, reading: Any) -> float:
    try:
        return np.nan if reading is None else float(reading)
    except (TypeError, ValueError, OverflowError):
        raise refusal("observation", "observe", f"have a number for {name!r}", repr(reading)) from None


def _label(name: str, label: Any) -> Any:
    if not isinstance(label, str | int | float | None):
        raise refusal("observation", "observe", f"have text or a number for {name!r}", repr(label))
    return label
