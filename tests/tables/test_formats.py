"""Formats of tables that other distributions add by entry points."""

from __future__ import annotations

from pathlib import Path

import pytest

from emphatic.nexting.tables.files import formats
from tests.support.distributions import run_with, write_distribution

#: A binary format with a signature, a folder, and a text that would otherwise be CSV.
FORMATS = """
import numpy as np
from emphatic.nexting.tables.files import Format
from emphatic.nexting.tables.frames import Frame

ARRAYS = Format(
    "arrays",
    lambda file: file.start.startswith(b"\\x93NUMPY"),
    lambda file, options: Frame(np.load(file.path), ["x", "y"]),
)
FOLDER = Format(
    "folder",
    lambda file: (file.path / "x.npy").is_file(),
    lambda file, options: Frame({p.stem: np.load(p) for p in sorted(file.path.glob("*.npy"))}),
)
PAIRS = Format(
    "pairs",
    lambda file: file.path.suffix == ".pairs",
    lambda file, options: Frame({"x": [float(line.split(b"=")[1]) for line in file.head.split()]}),
    text=True,
)
"""

USE = """
from pathlib import Path
import numpy as np
from emphatic.nexting.tables import open_table

def values(path, **options):
    return np.concatenate([block.values for block in open_table(path, **options).blocks(rows=7)])

grid = np.arange(20.0).reshape(10, 2)
np.save("grid.npy", grid)
assert (values("grid.npy") == grid).all()
Path("folder").mkdir()
np.save("folder/x.npy", grid[:, 0])
np.save("folder/y.npy", grid[:, 1])
assert (values("folder", time=False) == grid).all()
Path("log.pairs").write_text("x=1\\nx=2\\nx=5\\n")
assert values("log.pairs").ravel().tolist() == [1.0, 2.0, 5.0]
Path("log.csv").write_text("x,y\\n1,2\\n3,4\\n5,5\\n")
assert values("log.csv").tolist() == [[1.0, 2.0], [3.0, 4.0], [5.0, 5.0]]
print("read")
"""


@pytest.mark.parametrize(
    "points", [{"numpy": "of_another"}, {name: f"of_another:{name}" for name in ("ARRAYS", "FOLDER", "PAIRS")}]
)
def test_formats_of_another_distribution_are_read(points: dict[str, str], tmp_path: Path) -> None:
    text = FORMATS + '\n__all__ = ["ARRAYS", "FOLDER", "PAIRS"]\n'
    write_distribution(tmp_path, "another", {"of_another": text}, {"emphatic.formats": points})
    assert run_with(tmp_path, USE) == "read\n"


BROKEN = """
import logging
logging.basicConfig(format="%(message)s", stream=__import__("sys").stdout)
from pathlib import Path
from emphatic.nexting.tables import open_table
Path("log.csv").write_text("x,y\\n1,2\\n3,4\\n5,5\\n")
for _ in range(2):
    assert open_table("log.csv").names == ("x", "y")
"""


def test_an_entry_point_that_is_no_format_is_named_and_harms_no_file(tmp_path: Path) -> None:
    points = {"broken": "of_nobody:FORMAT", "other": "collections:OrderedDict"}
    write_distribution(tmp_path, "another", {}, {"emphatic.formats": points})
    broken, other = run_with(tmp_path, BROKEN).splitlines()
    assert broken.startswith("The entry point 'broken = of_nobody:FORMAT' of another (group 'emphatic.formats') cannot")
    assert "must be an emphatic.nexting.tables.files.Format. Got <class" in other


def test_every_format_of_the_library_is_found() -> None:
    names = {format.name for format in formats()}
    files = {"Arrow", "CSV", "JSON document", "JSON lines", "MCAP", "Parquet", "ROS 2 bag", "spreadsheet"}
    assert names == files | {"DuckDB", "SQLite"}
