"""``python -m emphatic.cli``."""

from emphatic.cli import app

app(prog_name="emphatic")
