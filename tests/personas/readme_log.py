"""A data engineer asks two questions of a log, in Python, as the README shows."""

import numpy as np

import emphatic

t = np.arange(2000)
when = np.datetime64("2026-01-05T00:00:00") + t * np.timedelta64(1, "h")
power = 3 + 2 * np.sin(2 * np.pi * t / 24) + np.random.default_rng(0).normal(0, 0.3, 2000)
log = {"when": when, "power": power}
result = emphatic.nexting.run(log, ask=["power at +12h", "P(power > 5 within 3h)"], horizons=["3h"])
assert round(result.predictions["power at +12h"][-1].as_py()) == 1
chance = result.predictions["P(power > 5 within 3h)"][-1].as_py()
assert 0 <= chance <= 1, chance
result.report("report.html")
with open("report.html", encoding="utf-8") as page:
    assert "power" in page.read()
