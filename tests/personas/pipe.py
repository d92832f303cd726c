"""A roboticist pipes readings into the command, stops it, and continues later with the saved model."""

import json
import math
import subprocess
import sys
from pathlib import Path

emphatic = str(Path(sys.executable).with_name("emphatic"))


def readings(begin: int, end: int) -> str:
    rows = ({"speed": math.sin(t / 7) + 0.1 * math.cos(t * t), "slope": math.cos(t / 11)} for t in range(begin, end))
    return "".join(json.dumps(row) + "\n" for row in rows)


def answers(model: str, text: str) -> list[dict[str, object]]:
    command = [emphatic, "nexting", "-", "--model", model, "--horizons", "2,9", "--warm-up", "60"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


whole = answers("whole.safetensors", readings(0, 400))
parts = answers("parts.safetensors", readings(0, 250)) + answers("parts.safetensors", readings(250, 400))
assert whole[-1]["step"] == 399
assert len(whole) in (398, 400), len(whole)
assert parts == whole, "a stop changes nothing"
assert json.dumps(whole[-1]).count("speed") >= 1
