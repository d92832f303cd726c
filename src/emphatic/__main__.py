"""``python -m emphatic``: the command line."""

from emphatic.cli import app

app(prog_name="emphatic")
