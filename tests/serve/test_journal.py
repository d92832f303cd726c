"""The journal: what is synced is there again, in order, and nothing else."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest

from emphatic.serve.journal import Journal
from tests.support.processes import run


def numbers(folder: Path, after: int = 0) -> list[tuple[int, object]]:
    return [(entry.number, entry.reading["x"]) for entry in Journal(folder).entries(after)]


def test_readings_come_back_as_they_were_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append({"x": 1}, b'{"x": 1}')
    journal.append({"x": float("nan"), "y": "\ud800"})
    assert numbers(tmp_path) == []
    journal.sync()
    journal.append({"x": 3}, b'{"x":\n3}', origin=None)
    journal.append({"x": 4}, b'{"x": 4}', origin={"redis": "5-0"})
    assert journal.pending == 2
    journal.sync()
    found = list(Journal(tmp_path).entries())
    assert [entry.number for entry in found] == [1, 2, 3, 4]
    assert [entry.reading["x"] for entry in found][2:] == [3, 4]
    assert found[1].reading["x"] != found[1].reading["x"]
    assert [entry.origin for entry in found] == [None, None, None, {"redis": "5-0"}]
    [path] = tmp_path.glob("*.jsonl")
    lines = path.read_text().splitlines()
    assert lines[0] == '{"x": 1}'
    assert json.loads(lines[3]) == [{"redis": "5-0"}, {"x": 4}]


def test_it_is_cut_after_a_save_and_goes_on(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for x in range(1, 6):
        journal.append({"x": x})
    journal.sync()
    journal.append({"x": 6})
    journal.cut(6)
    assert list(tmp_path.glob("*.jsonl")) == []
    assert journal.append({"x": 7}) == 7
    journal.sync()
    journal.append({"x": 8})
    journal.sync()
    assert numbers(tmp_path) == [(7, 7), (8, 8)]
    assert numbers(tmp_path, after=7) == [(8, 8)]
    again = Journal(tmp_path)
    assert (again.first, again.last) == (7, 8)
    again.append({"x": 9})
    again.sync()
    assert numbers(tmp_path) == [(7, 7), (8, 8), (9, 9)]
    again.cut(8)  # a segment of which something is needed stays whole
    assert numbers(tmp_path, 8) == [(9, 9)]
    assert len(list(tmp_path.glob("*.jsonl"))) == 1


def test_what_a_crash_leaves_of_the_last_line_is_forgotten(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for x in (1, 2):
        journal.append({"x": x})
    journal.sync()
    [path] = tmp_path.glob("*.jsonl")
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        again = Journal(tmp_path)
        kept = whole[:cut].count(b"\n")
        assert again.last == kept
        again.append({"x": "next"})
        again.sync()
        again.close()
        assert numbers(tmp_path) == [*[(1, 1), (2, 2)][:kept], (kept + 1, "next")]
        for each in tmp_path.glob("*.jsonl"):
            each.unlink()


def test_a_journal_with_a_hole_or_with_damage_is_refused(tmp_path: Path) -> None:
    (tmp_path / f"{1:020d}.jsonl").write_text('{"x": 1}\n')
    (tmp_path / f"{5:020d}.jsonl").write_text('{"x": 5}\n')
    with pytest.raises(ValueError, match="readings 2 to 4 are missing"):
        Journal(tmp_path)
    (tmp_path / f"{5:020d}.jsonl").rename(tmp_path / f"{2:020d}.jsonl")
    assert len(numbers(tmp_path)) == 2
    (tmp_path / f"{2:020d}.jsonl").write_text("nonsense\n")
    with pytest.raises(ValueError, match="the journal is damaged at reading 2: not JSON"):
        numbers(tmp_path)


def test_a_full_disk_leaves_nothing_of_a_group(tmp_path: Path) -> None:
    """The limit on the size of a file is the system's own; the journal goes on once there is room again."""
    code = (
        "import resource, signal, sys; from pathlib import Path; from emphatic.serve.journal import Journal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); journal = Journal(Path(sys.argv[1]))\n"
        "journal.append({'x': 1}); journal.sync(); hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (40, hard))\n"
        "for x in range(2, 12): journal.append({'x': x})\n"
        "try: journal.sync()\n"
        "except OSError: print('full', journal.pending, (Path(sys.argv[1]) / f'{1:020d}.jsonl').stat().st_size)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard)); journal.sync(); print(journal.pending)\n"
    )
    done = run(code, tmp_path)
    assert done.stdout.decode().split("\n")[:2] == ["full 10 9", "0"], done.stderr.decode()
    assert numbers(tmp_path) == [(x, x) for x in range(1, 12)]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
