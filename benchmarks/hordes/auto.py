"""Whether ``engine="auto"`` chooses well: every engine that can do the work, over a grid of sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.cases import Effort, loop
from benchmarks.hordes.check import against_reference, by_learn, by_run, first, learn_calls, new_learner
from benchmarks.hordes.runs import running
from benchmarks.hordes.streams import Horde
from benchmarks.measure import Gate, Side, fastest
from benchmarks.report import Row

CALLS = 20  # of ``learn`` where T = 1


@dataclass(frozen=True)
class Cell:
    """One point of the grid; T = 1 is ``learn``, a call a step."""

    n: int
    K: int
    T: int
    active: int | None

    @property
    def stream(self) -> Horde:
        return Horde(self.n, self.K, CALLS if self.T == 1 else self.T, active=self.active)

    @property
    def name(self) -> str:
        T = "learn" if self.T == 1 else f"T = {self.T:,}"
        return f"n = {self.n:,}, K = {self.K:,}, {T}, {'dense φ' if self.active is None else f'{self.active} active'}"

    @property
    def engines(self) -> list[str]:
        """All but the reference; sparse where φ is given by index, for otherwise it does dense's work and more."""
        return ["dense", "chunked"] + ["sparse"] * (self.active is not None)

    def side(self, learner: Any) -> Side:
        stream = self.stream
        return loop(learner.learn, learn_calls(stream)) if self.T == 1 else running(stream, learner)

    def chosen(self) -> str:
        """The engine that a first call of this kind gets."""
        learner, start = new_learner(self.stream), self.stream
        if self.T == 1:
            learner.learn(*learn_calls(start)[0])
        else:
            learner.run(start.Phi, **start.arguments)
        engine: str = learner.engine
        return engine


@dataclass(frozen=True)
class Auto:
    """The chosen engine's time over the best one's, everywhere; the target is held against the worst of each kind."""

    cells: Sequence[Cell]
    at_most: float

    def gates(self) -> Iterator[Gate]:
        for cell in self.cells:
            for engine in cell.engines:
                learn = by_learn(engine) if cell.T == 1 else by_run(engine)
                gates = against_reference(f"auto, {cell.name}: {engine}", first(cell.stream, 150), learn)
                yield next(gates)

    def rows(self, effort: Effort) -> Iterator[Row]:
        section = f"auto: the engine it chooses beside the best, over {len(self.cells)} sizes; a step of all learners"
        found = [self._row(cell, section, effort) for cell in self.cells]
        for kind in (True, False):
            rows = [row for cell, row in zip(self.cells, found, strict=True) if (cell.active is None) is kind]
            worst = max(rows, key=lambda row: row.ratio or 0.0)
            gates = tuple(name for row in rows for name in row.gates)
            yield replace(worst, what=f"worst: {worst.what}", gates=gates, at_most=self.at_most)
        yield from found

    def _row(self, cell: Cell, section: str, effort: Effort) -> Row:
        sides = {engine: cell.side(new_learner(cell.stream, engine)) for engine in cell.engines}
        µs = fastest(sides, effort.rounds, effort.seconds / 3)  # there are many
        chosen, best = cell.chosen(), min(µs, key=lambda engine: µs[engine])
        others = ", ".join(f"{engine} {time / µs[chosen]:.2f}" for engine, time in µs.items() if engine != chosen)
        return Row(
            section,
            cell.name,
            gates=tuple(f"auto, {cell.name}: {engine}" for engine in cell.engines),
            ours=µs[chosen],
            alternative=µs[best],
            versus=best,
            ratio=µs[chosen] / µs[best],
            note=f"{chosen}; {others}",
        )
