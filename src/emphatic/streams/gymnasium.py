"""Learning while an agent acts: ``emphatic.hordes.gymnasium``, under its public name."""

from emphatic.hordes.gymnasium import LearnGVFs, LearnGVFsVector, component_names, tiles

__all__ = ["LearnGVFs", "LearnGVFsVector", "component_names", "tiles"]
