"""``python -m emphatic.nexting.cli``."""

from emphatic.nexting.cli import app

app(prog_name="emphatic")
