"""Saving a horde to a file, and restoring it.

The learner of the first group is the file's own, so that ``emphatic.load`` opens it; what further groups have is under
names that begin with their number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emphatic.features import Features
from emphatic.hordes.reading import REWARD
from emphatic.learning import checkpoint
from emphatic.learning.inputs import Active
from emphatic.learning.learner import Learner
from emphatic.learning.tensors import Stored, TensorPart
from emphatic.questions.gvf import GVF, Observations
from emphatic.rules import AnyRule
from emphatic.tables import Hold

if TYPE_CHECKING:
    from emphatic.hordes.group import Group
    from emphatic.hordes.horde_state import HordeState

__all__ = ["arguments", "restore", "state"]

#: Prefix of the names of arrays that are not the learner's.
_OWN = ("features.", "blend.", "ridges.", "horde.")
#: Prefix of those that a user saves with a horde.
_MORE = "horde.more."
#: Placeholder for what no file can hold.
_FUNCTION = "function"


def state(horde: HordeState, more: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, TensorPart]]:
    """Header and arrays: the complete state."""
    evaluator, setup = horde._evaluator, horde._setup
    questions = [question.config() for question in horde.questions]
    entries, parts = checkpoint.pack(more, _MORE)
    (first, header, arrays), *others = [_group_state(group) for group in horde._groups]
    parts |= arrays
    saved = {
        "questions": questions,
        "signals": list(evaluator.signals),
        "categories": list(evaluator.categories),
        "rates": list(setup.rates),
        "alpha": None if setup.alpha is None else np.asarray(setup.alpha, np.float64).tolist(),
        "rule": setup.rule.name,
        "step": horde.step if horde.step is not None and np.isfinite(horde.step) else None,
        "mu": _FUNCTION if callable(horde._mu) else horde._mu,
        "scaled": setup.scaled,
        "centred": setup.centred,
        "kind": {key: value for key, value in setup.kind.items() if key != "stepsize"},
        "extra": {name: np.asarray(p, np.float64).tolist() for name, p in setup.extra.items()},
        "rows": horde._rows,
        "hold": horde._hold.state(),
        "counts": evaluator.counts,
        "more": entries,
        **first,
    }
    if setup.least_squares:
        saved["least_squares"] = True
    if "stepsize" in setup.kind:
        saved["stepsize"] = setup.kind["stepsize"].config()
    if others:
        saved["of"] = [group.questions.tolist() for group in horde._groups]
        saved["groups"] = [{**own, "learner": learner} for own, learner, _ in others]
        for g, (_, _, arrays) in enumerate(others, 1):
            parts |= {f"{_prefix(g)}{name}": part for name, part in arrays.items()}
    parts["horde.now"] = TensorPart.of(np.ascontiguousarray(evaluator.departure))
    if horde._episode is not None:
        raw, held = horde._episode
        saved["episode"] = {name: labels[0] for name, labels in raw.labels.items()}
        parts |= {"horde.raw": TensorPart.of(raw.values), "horde.held": TensorPart.of(held.values)}
    return {**header, "horde": saved}, parts


def arguments(
    header: Mapping[str, Any], stored: Mapping[str, Stored], mu: Any, rule: AnyRule | None, engine: str | None
) -> dict[str, Any]:
    """The arguments of ``Horde``; ``mu`` must be passed again if it was a function, and so must an own ``rule``."""
    saved = header["horde"]
    if rule is None:
        checkpoint.check_own_rule(header)
    mu = saved.get("mu") if mu is None else mu
    if isinstance(mu, str):
        raise ValueError("its 'mu' was a function, which no file holds: give it again, as mu=…")
    questions = [GVF.from_config(table) for table in saved["questions"]]
    features: Any = _maker(saved, _arrays(stored, ""))
    if "groups" in saved:
        makers = [features, *(_maker(own, _arrays(stored, _prefix(g))) for g, own in enumerate(saved["groups"], 1))]
        features = {questions[q].name: maker for maker, of in zip(makers, saved["of"], strict=True) for q in of}
    kind = saved["kind"] if engine is None else saved["kind"] | {"engine": engine}
    return {
        "questions": questions, "features": features, "rule": rule or saved["rule"], "rates": saved["rates"],
        "alpha": saved.get("alpha"), "step": saved["step"], "mu": mu, "scaled": saved["scaled"],
        "centred": saved.get("centred", True), "stepsize": saved.get("stepsize"),
        "least_squares": saved.get("least_squares", False), **kind, **saved["extra"],
    }  # fmt: skip


def restore(
    horde: HordeState, header: Mapping[str, Any], stored: Mapping[str, Stored], engine: str | None
) -> dict[str, Any]:
    """Restore the state of a new horde; returns the ``more`` saved with it. ValueError and others if it is invalid."""
    saved = header["horde"]
    signals = tuple(saved.get("signals", horde._makers[0].signals))
    if signals not in (horde._makers[0].signals, (*horde._makers[0].signals, REWARD)):
        raise ValueError("its signals are not those of its features")
    others = list(enumerate(saved.get("groups", []), 1))
    rule = horde._setup.rule
    learners = [Learner._restored(dict(header), dict(stored), engine, rule)]
    learners += [Learner._restored(own["learner"], _under(stored, _prefix(g)), engine, rule) for g, own in others]
    evaluator = horde._evaluator_of(signals, saved["categories"], horde.step)
    horde._start(evaluator, np.zeros(len(horde.questions)), learners)
    for g, (group, own) in enumerate(zip(horde._groups, [saved, *(own for _, own in others)], strict=True)):
        _restore_group(group, own, _arrays(stored, _prefix(g) if g else ""))
    C, hold = len(signals), Hold.restore(saved["hold"])
    if any(len(part) != C for part in (hold.last, hold.missing, hold.longest, hold._run)):
        raise ValueError("its last readings are not one per signal")
    horde._hold, horde._rows = hold, int(saved["rows"])
    evaluator.counts = saved["counts"]
    arrays = _arrays(stored, "")
    _fill_in("now", evaluator.departure, arrays["horde.now"])
    if "episode" in saved:
        labels = {name: [saved["episode"][name]] for name in evaluator.categories}
        rows = np.empty((2, 1, C))
        for name, own in zip(("raw", "held"), rows, strict=True):
            _fill_in(name, own, arrays[f"horde.{name}"], finite=False)
        if any(group.phi is None for group in horde._groups):
            raise ValueError("its episode has no features")
        raw, held = (Observations(signals, row, labels) for row in rows)
        horde._episode = raw, held
    return checkpoint.unpack(saved["more"], stored, _MORE)


def _group_state(group: Group) -> tuple[dict[str, Any], dict[str, Any], dict[str, TensorPart]]:
    """The state of a group: its header, the learner's header, and arrays by name."""
    if group.others is not None:
        raise ValueError("a horde that shares its weights with others cannot be saved by itself")
    group.catch_up()
    header, parts = group.learner._state()
    maker, arrays = group.features.save()
    own = {f"features.{name}": array for name, array in arrays.items()}
    own |= {f"blend.{name}": array for name, array in group.blend.arrays().items()}
    if group.ridges is not None:
        own |= {f"ridges.{name}": array for name, array in group.ridges.arrays().items()}
    own |= {"horde.base": group.base, "horde.fresh": group.fresh.view(np.uint8)}
    if group.phi is not None:
        own |= {"horde.indices": group.phi.indices, "horde.values": group.phi.values}
    parts |= {name: TensorPart.of(np.ascontiguousarray(array)) for name, array in own.items()}
    return {"features": maker, "open": group.open}, header, parts


def _restore_group(group: Group, saved: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Restore what ``_group_state`` returned, except the learner, which is there; ValueError if it does not fit."""
    learner, setup = group.learner, group.setup
    due = group.features.n, len(group.questions) * group._E, setup.rule.name
    if (learner.n, learner.K, learner.rule.base.name) != due:
        raise ValueError(f"its learner is {learner!r}")
    _fill_in("base", group.base, arrays["horde.base"])
    _fill_in("fresh", group.fresh.view(np.uint8), arrays["horde.fresh"])
    group.blend.restore({name: arrays[f"blend.{name}"] for name in group.blend.arrays()})
    if group.ridges is not None:
        group.ridges.base[:] = group.base[group._blended]
        group.ridges.restore({name: arrays[f"ridges.{name}"] for name in group.ridges.arrays()})
    group.open = bool(saved.get("open", "horde.indices" in arrays))
    if "horde.indices" in arrays:
        phi = Active(arrays["horde.indices"], arrays["horde.values"])
        if phi.shape != (1, group.features.active) or phi.top >= group.features.n:
            raise ValueError("its last features do not fit")
        group.phi = phi


def _prefix(g: int) -> str:
    return f"group {g}."


def _under(stored: Mapping[str, Stored], prefix: str) -> dict[str, Stored]:
    return {name.removeprefix(prefix): part for name, part in stored.items() if name.startswith(prefix)}


def _arrays(stored: Mapping[str, Stored], prefix: str) -> dict[str, NDArray[Any]]:
    """The arrays of a group that are not its learner's."""
    return {name: part.array() for name, part in _under(stored, prefix).items() if name.startswith(_OWN)}


def _maker(saved: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Features:
    own = {name.removeprefix("features."): array for name, array in arrays.items() if name.startswith("features.")}
    return Features.load(saved["features"], own)


def _fill_in(name: str, own: NDArray[Any], stored: NDArray[Any], finite: bool = True) -> None:
    """Overwrite an array with the one in the file; ValueError if it does not fit."""
    if stored.shape != own.shape or stored.dtype != own.dtype or (finite and not np.isfinite(stored).all()):
        raise ValueError(f"its {name!r} does not fit")
    own[:] = stored
