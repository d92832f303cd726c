"""Studies on problems with exact answers: sweeps over settings, and published results reproduced."""

from __future__ import annotations
