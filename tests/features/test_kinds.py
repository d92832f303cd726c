"""Every kind of part and of source is one file and has a public name."""

from __future__ import annotations

from emphatic import features as f
from emphatic.features import parts, sources


def test_every_kind_is_a_file_and_has_a_public_name() -> None:
    names = {kind.kind: kind for kind in parts.KINDS.values()} | {kind.name(): kind for kind in sources.KINDS.values()}
    assert names == parts.KINDS | sources.KINDS
    for kind in names.values():
        assert kind.__name__ in f.__all__
        assert getattr(f, kind.__name__) is getattr(parts, kind.__name__) is kind
