"""Atomic files, locks, hints for unknown names, versions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from emphatic.common import versions
from emphatic.common.files import atomic_file
from emphatic.common.locks import hold_lock
from emphatic.common.names import check_names, suggestion


def _fail(path: Path) -> None:
    with atomic_file(path) as file:
        file.write(b"half")
        raise OSError("the disk is full")


def test_a_file_takes_its_place_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match="full"):
        _fail(path)
    assert path.read_bytes() == b"old"
    with atomic_file(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file"]
    with (
        pytest.raises(FileNotFoundError, match=r"no such folder to write to.*none'$"),
        atomic_file(tmp_path / "none" / "f"),
    ):
        pass


def test_a_lock_where_no_file_can_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "none" / "lock")
    with pytest.raises(FileNotFoundError), hold_lock(tmp_path / "lock", tmp_path):
        pass


def test_unknown_names_get_a_hint_and_a_list() -> None:
    check_names(["predict"], ["predict", "horizons"], "f.toml")
    with pytest.raises(ValueError, match=r"^f.toml: there is no setting 'horizon'. Did you mean 'horizons'\? Kn"):
        check_names(["predict", "horizon"], ["predict", "horizons"], "f.toml")
    with pytest.raises(ValueError, match=r"^f.toml: there is no field 'xyz'. Known: predict\.$"):
        check_names(["xyz"], ["predict"], "f.toml", "field")
    assert suggestion("xyz", ["predict"]) == ""


def test_versions_name_what_took_part() -> None:
    assert list(versions("pyarrow")) == ["python", "emphatic", "numpy", "numba", "pyarrow"]
