"""Where learners that go side by side keep their scalars: in one flat array, one lane per learner.

At constant distances from each other in one array is a form of which LLVM makes vectors.
"""

from __future__ import annotations

from emphatic.engines.unrolled import Functions, tuple_of

__all__ = ["Slots"]


class Slots:
    """Groups of scalars, each scalar with a place in every lane.

    Adds the constants LANES, SLOTS (places in a lane) and, for each group, AT_GROUP: where in S the first lane has it.
    """

    def __init__(self, functions: Functions, lanes: int, **counts: int) -> None:
        functions.constant("LANES", lanes)
        self.places: dict[str, list[str]] = {}
        taken = 0
        for group, count in counts.items():
            functions.constant(f"AT_{group.upper()}", taken * lanes)
            self.places[group] = [f"S[{slot * lanes} + k]" for slot in range(taken, taken + count)]
            taken += count
        functions.constant("SLOTS", taken)

    def get(self, *groups: str) -> str:
        """The text that returns these groups of lane k."""
        return "return " + ", ".join(tuple_of(self.places[group]) for group in groups)

    def put(self, *groups: str) -> list[str]:
        """The lines that put tuples of these names into lane k."""
        return [f"{place} = {group}[{i}]" for group in groups for i, place in enumerate(self.places[group])]
