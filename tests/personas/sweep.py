"""A student sweeps step sizes and λ on the five-state chain, stops in between, and reads the results."""

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq

emphatic = str(Path(sys.executable).with_name("emphatic"))
command = [emphatic, "sweep", "chain", "--alpha", ".1,.01", "--lambda", "0,.9", "--runs", "2", "--steps", "500"]
done = subprocess.run([*command, "--out", "sweep"], capture_output=True, text=True, timeout=900)
assert done.returncode == 0, done.stderr
out = Path("sweep")
results, settings = pq.read_table(out / "results.parquet"), pq.read_table(out / "settings.parquet")
assert settings.num_rows >= 16  # four rules × two step sizes × two values of λ
assert results.num_rows == 2 * settings.num_rows
rows = results.select(["rule", "alpha", "lambda", "run", "mean"]).to_pylist()
first = next(row for row in rows if (row["rule"], row["alpha"], row["lambda"], row["run"]) == ("td", 0.1, 0.0, 0))
assert abs(first["mean"] - 2.1065645020556985) < 1e-9, first  # the same seeds give the same numbers
assert "true_online_etd" in (out / "report.html").read_text(encoding="utf-8")
again = subprocess.run([*command, "--out", "sweep"], capture_output=True, text=True, timeout=900)
assert again.returncode == 0, again.stderr
assert pq.read_table(out / "results.parquet").equals(results)
