"""Members of a registry: the files of a package, and entry points of other distributions."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from emphatic.common.discovery import Plugins, discover
from tests.support.distributions import write_distribution

GROUP = "emphatic.test_group"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on ``sys.path``, for distributions."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_files_are_found_without_being_imported() -> None:
    plugins = discover("emphatic.rules", GROUP)
    assert plugins is discover("emphatic.rules", GROUP)
    assert "td" in plugins.files
    assert "_rule" not in plugins.files
    assert plugins["td"] is sys.modules["emphatic.rules.td"]
    assert list(plugins) == list(plugins.files)
    assert len(plugins) == len(plugins.files)
    with pytest.raises(KeyError):
        plugins["no_such_rule"]


def test_entry_points_are_objects_or_modules(folder: Path) -> None:
    modules = {"of_ours": "__all__ = ['b', 'a']\na, b = 1, 2\nc = 3\n"}
    write_distribution(folder, "ours", modules, {GROUP: {"number": "of_ours:c", "several": "of_ours"}})
    plugins = Plugins("emphatic.rules", GROUP)
    assert list(plugins)[-2:] == ["number", "several"]
    assert plugins["number"] == 3
    assert plugins.objects("number", lambda value: value == 3, "3") == (3,)
    assert plugins.objects("several", lambda value: isinstance(value, int), "a number") == (2, 1)
    assert plugins.objects("td", lambda value: isinstance(value, int), "a number") == ()
    with pytest.raises(TypeError, match=r"^The entry point 'number = of_ours:c' of ours \(group '.*'\) must be a text"):
        plugins.objects("number", lambda value: isinstance(value, str), "a text")


def test_a_broken_entry_point_is_named_and_harms_no_other(folder: Path) -> None:
    modules = {"of_theirs": "import no_such_module\n", "of_mine": "value = 1\n"}
    write_distribution(folder, "theirs", modules, {GROUP: {"broken": "of_theirs:x", "fine": "of_mine:value"}})
    plugins = Plugins("emphatic.rules", GROUP)
    assert plugins["fine"] == 1
    message = (
        r"^The entry point 'broken = of_theirs:x' of theirs \(group '.*'\) cannot be loaded. ModuleNotFoundError: "
    )
    with pytest.raises(ImportError, match=message + "No module named 'no_such_module'$"):
        plugins["broken"]


def test_two_members_of_one_name_are_refused(folder: Path) -> None:
    write_distribution(folder, "one", {}, {GROUP: {"same": "a:b"}})
    write_distribution(folder, "two", {}, {GROUP: {"same": "c:d"}, GROUP + "s": {"td": "a:b"}})
    with pytest.raises(ValueError, match=r"'same = c:d' of two .* has the name of the entry point 'same = a:b' of one"):
        list(Plugins("emphatic.rules", GROUP))
    plugins = Plugins("emphatic.rules", GROUP + "s")
    assert plugins["td"] is sys.modules["emphatic.rules.td"]
    with pytest.raises(ValueError, match=r"'td = a:b' of two .* has the name of the file emphatic\.rules\.td"):
        list(plugins)
