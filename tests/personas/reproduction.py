"""A reviewer repeats a published study and compares every number with the printed one, in a checkout."""

import json
import subprocess
import sys
from pathlib import Path

checkout = Path(__file__).parents[2]
out = Path.cwd() / "chain"
command = [sys.executable, "-m", "reproductions", "chain", "--quick", "--out", str(out)]
done = subprocess.run(command, capture_output=True, text=True, timeout=900, cwd=checkout)
assert done.returncode == 0, done.stdout + done.stderr
assert "17 of 17 numbers agree" in done.stdout, done.stdout
results = json.loads(next(out.rglob("results.json")).read_text(encoding="utf-8"))
assert results["agree"] is True
assert results["counts"]["derived"] == {"agree": 14, "judged": 14}
assert next(out.rglob("report.html")).is_file()
