"""A data engineer has the readings of three machines in one file, and learns each by itself."""

import csv
import math
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

emphatic = str(Path(sys.executable).with_name("emphatic"))
begin = datetime(2026, 1, 5)
with open("fleet.csv", "w", newline="", encoding="utf-8") as file:
    table = csv.writer(file)
    table.writerow(("time", "machine", "load", "heat"))
    for i in range(400):
        for machine, period in (("press", 24), ("pump", 16), ("fan", 9)):
            load = math.sin(2 * math.pi * i / period) + 0.05 * math.sin(i * i)
            heat = 20 + 3 * math.cos(2 * math.pi * i / period) + 0.05 * math.cos(i * i)
            table.writerow(((begin + timedelta(hours=i)).isoformat(), machine, f"{load:.4f}", f"{heat:.4f}"))

command = [emphatic, "nexting", "fleet.csv", "--by", "machine", "--horizons", "2h,6h", "--out", "run"]
done = subprocess.run(command, capture_output=True, text=True, timeout=900)
assert done.returncode == 0, done.stderr
page = (Path("run") / "report.html").read_text(encoding="utf-8")
summary = (Path("run") / "summary.json").read_text(encoding="utf-8")
for machine in ("press", "pump", "fan"):
    assert machine in page, machine
    assert machine in summary, machine
