"""A data engineer has a CSV file in a dialect of her country, and wants predictions, scores and a page."""

import json
import math
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq

emphatic = str(Path(sys.executable).with_name("emphatic"))
ROWS = 1500
begin = datetime(2026, 1, 5)
lines = ["Zeit;Leistung;Temperatur"]
for i in range(ROWS):
    power = 3 + 2 * math.sin(2 * math.pi * i / 24) + 0.1 * math.sin(i * i)
    temperature = 10 + 5 * math.cos(i / 50) + 0.1 * math.cos(i * i)
    when = begin + timedelta(hours=i)
    lines.append(f"{when:%d.%m.%Y %H:%M};{power:.3f};{temperature:.3f}".replace(".", ",").replace(",", ".", 2))
Path("werte.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")

command = [emphatic, "nexting", "werte.csv", "--horizons", "3h,12h", "--out", "run"]
done = subprocess.run(command, capture_output=True, text=True, timeout=900)
assert done.returncode == 0, done.stderr
out = Path("run")
files = {path.name for path in out.iterdir()}
assert files >= {"model.safetensors", "predictions.parquet", "report.html", "summary.json"}, files

before = (out / "predictions.parquet").read_bytes()
predictions = pq.read_table(out / "predictions.parquet")
assert predictions.num_rows == ROWS
forecast = predictions["Leistung at +3h"].to_pylist()
truth = [3 + 2 * math.sin(2 * math.pi * (i + 3) / 24) + 0.1 * math.sin((i + 3) ** 2) for i in range(ROWS)]
errors = [abs(a - b) for a, b in zip(forecast[-200:], truth[-200:], strict=True)]
assert sum(errors) / len(errors) < 0.2, sum(errors) / len(errors)
assert isinstance(json.loads((out / "summary.json").read_text(encoding="utf-8")), list)
assert "Leistung" in (out / "report.html").read_text(encoding="utf-8")

again = subprocess.run(command, capture_output=True, text=True, timeout=900)
assert again.returncode == 2, "a folder with results is not overwritten unasked"
assert (out / "predictions.parquet").read_bytes() == before
