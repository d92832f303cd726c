"""A newcomer runs the first command of the README, without arguments, and opens the report that it names."""

import re
import subprocess
import sys
from pathlib import Path

emphatic = str(Path(sys.executable).with_name("emphatic"))
done = subprocess.run([emphatic, "nexting"], capture_output=True, text=True, timeout=900)
assert done.returncode == 0, done.stderr
report = re.search(r"Report: (.*\.html)", done.stdout.replace("\n", ""))
assert report is not None, done.stdout
page = Path(report[1].strip()).read_text(encoding="utf-8")
assert "Global_active_power" in page
assert " better " in done.stdout
