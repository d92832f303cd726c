"""``python -m emphatic``: the command line."""

from emphatic.nexting.cli import app

app(prog_name="emphatic")
