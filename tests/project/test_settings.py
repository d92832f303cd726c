"""A setting is declared once: flags, keywords, TOML keys, checks and the page follow from the declaration."""

from __future__ import annotations

import inspect
import re

import pytest
from typer.testing import CliRunner

from emphatic import nexting
from emphatic.common.settings import declared_settings
from emphatic.nexting.cli import app
from emphatic.nexting.runs.settings import Settings
from tools.list_settings import PAGE, with_settings

DECLARED = declared_settings(Settings)


def test_every_field_is_declared() -> None:
    assert list(DECLARED) == list(inspect.signature(Settings).parameters)


def test_every_setting_with_a_flag_is_a_keyword_of_run() -> None:
    keywords = set(inspect.signature(nexting.run).parameters)
    assert {name for name, (_, declaration) in DECLARED.items() if declaration.commands} <= keywords


def test_flags_are_those_declared() -> None:
    for command in ("nexting", "serve"):
        text = CliRunner().invoke(app, [command, "--help"], terminal_width=200).output
        flags = set(re.findall(r"^ +(--[a-z-]+)", text, re.M))
        for name, (_, declaration) in DECLARED.items():
            assert (f"--{name.replace('_', '-')}" in flags) == (command in declaration.commands), (command, name)


def test_the_page_is_written_from_the_declarations() -> None:
    text = PAGE.read_text("utf-8")
    assert with_settings(text) == text, "python -m tools.list_settings writes the page"


@pytest.mark.parametrize("name", [name for name, (_, declaration) in DECLARED.items() if declaration.must])
def test_a_bad_value_names_the_setting_and_what_it_must_be(name: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"file.toml: {name!r} must be {DECLARED[name][1].must}. Got ")):
        Settings.of({name: object()}, "file.toml")
