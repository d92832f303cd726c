"""Write ``tests/data/<version>/``: checkpoints of the version that is installed, and what it makes of them.

    python -m tools.make_checkpoints

They are for later versions to load (``tests/learning/test_old_checkpoints.py``): run it once, in a checkout of a
release, and never again for that release. The same code on the same machine writes the same bytes.
See ``tests/support/checkpoints.py``.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
import warnings
from pathlib import Path
from unittest import mock

os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported: the cuda engine, without a GPU

import numpy as np

import emphatic
from tests.support import checkpoints


def main() -> None:
    """All of the folder, anew."""
    warnings.simplefilter("ignore")
    folder = checkpoints.DATA / emphatic.__version__
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    streams = {K: checkpoints.stream(K) for _, K in checkpoints.FORMS.values()}
    named = {f"{K}/{name}": array for K, given in streams.items() for name, array in given.items()}
    checkpoints.write(folder / "streams.safetensors", named)
    for form, (_, K) in checkpoints.FORMS.items():
        (folder / form).mkdir()
        for rule, dtype in checkpoints.cases():
            learner = checkpoints.begun(form, rule, dtype, streams[K])
            learner.save(folder / form / f"{rule}-{dtype}.safetensors")
        made = checkpoints.outcome(folder, form)
        assert all(np.isfinite(array).all() and np.abs(array).max() < 100.0 for array in made.values()), form
        checkpoints.write(folder / form / "outcome.safetensors", made, machine=checkpoints.machine())
        print(form)
    (folder / "frozen").mkdir()
    for engine in ("reference", "dense", "sparse", "chunked"):
        checkpoints.some_frozen(engine, streams[3]).save(folder / "frozen" / f"td-{engine}.safetensors")
    made = checkpoints.outcome_of_frozen(folder)
    checkpoints.write(folder / "frozen" / "outcome.safetensors", made, machine=checkpoints.machine())
    hordes(folder / "horde")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{folder.relative_to(Path.cwd())}: {sum(1 for _ in folder.rglob('*.safetensors'))} files, {size:,} bytes")


def hordes(folder: Path) -> None:
    """A horde that was saved by itself, and the model of ``emphatic nexting``."""
    from emphatic import cli

    folder.mkdir()
    learned = checkpoints.horde()
    learned.warm_up({name: np.array(column) for name, column in checkpoints.table().items()})
    checkpoints.observed(learned, 0, checkpoints.ROWS_SAVED)
    learned.save(folder / "horde.safetensors", note={"rows": checkpoints.ROWS_SAVED})
    with tempfile.TemporaryDirectory() as there:
        rows = checkpoints.table()
        lines = [",".join(rows), *(f"{x},{'' if y != y else y}" for x, y in zip(*rows.values(), strict=True))]
        (Path(there) / "table.csv").write_text("\n".join(lines[: checkpoints.ROWS_SAVED + 1]) + "\n")
        # The seconds that learning took are in the file: let them be 0.
        with mock.patch("time.perf_counter", return_value=0.0), contextlib.redirect_stdout(io.StringIO()):
            command = ["nexting", f"{there}/table.csv", "--out", f"{there}/out", "--horizons", "2,10"]
            cli.app(command, standalone_mode=False)
        shutil.copyfile(Path(there) / "out" / "model.safetensors", folder / "nexting.safetensors")
    made = {
        f"{name}/{part}": array
        for name in ("horde", "nexting")
        for part, array in checkpoints.outcome_of_horde(folder / f"{name}.safetensors").items()
    }
    checkpoints.write(folder / "outcome.safetensors", made, machine=checkpoints.machine())


if __name__ == "__main__":
    main()
