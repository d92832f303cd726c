"""The journal: what is synced is there again, in order, and nothing else."""

from __future__ import annotations

import json
import random
import resource
import shutil
import zlib
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from emphatic.nexting.cli import app
from emphatic.nexting.serve.journal import Journal, JournalError, inspect, repair
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
    journal.append({"x": 4}, b'{"x": 4}', origin={"ids": ["#5"]})
    assert journal.pending == 2
    journal.sync()
    found = list(Journal(tmp_path).entries())
    assert [entry.number for entry in found] == [1, 2, 3, 4]
    assert [entry.reading["x"] for entry in found][2:] == [3, 4]
    assert found[1].reading["x"] != found[1].reading["x"]
    assert [entry.origin for entry in found] == [None, None, None, {"ids": ["#5"]}]
    [path] = tmp_path.glob("*.jsonl")
    lines = path.read_text().splitlines()
    assert json.loads(lines[0])[1:] == [1, None, {"x": 1}]
    assert json.loads(lines[3])[1:] == [4, {"ids": ["#5"]}, {"x": 4}]
    for line in lines:
        checksum, body = line[2:10], line[13:]
        assert checksum == f"{zlib.crc32(body.encode()):08x}"


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


@pytest.mark.parametrize("unlinked", [0, 1, 2])
def test_a_crash_while_it_is_cut_leaves_a_whole_journal(
    unlinked: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model has learned from all readings, also from those that were never written."""
    write_journal(tmp_path)
    journal = Journal(tmp_path)
    for x in range(61, 65):
        journal.append({"x": x})
    unlink, calls = Path.unlink, list[Path]()

    def crash(path: Path, missing_ok: bool = False) -> None:
        if path.suffix == ".jsonl" and len(calls) == unlinked:
            raise KeyboardInterrupt
        calls.append(path)
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", crash)
    with pytest.raises(KeyboardInterrupt):
        journal.cut(64)
    monkeypatch.undo()
    again = Journal(tmp_path)
    assert (again.first, again.last) == (1 + 20 * unlinked, 60)
    again.cut(64)
    assert again.append({"x": 65}) == 65
    again.sync()
    assert numbers(tmp_path) == [(65, 65)]


def test_what_a_crash_leaves_of_the_last_line_is_dropped_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The second write was cut off at any byte; the first one had been acknowledged."""
    journal = Journal(tmp_path)
    journal.append({"x": 1})
    journal.sync()
    end = (tmp_path / "end").read_bytes()
    [path] = tmp_path.glob("*.jsonl")
    acknowledged = path.stat().st_size
    journal.append({"x": 2})
    journal.append({"x": 3})
    journal.sync()
    whole = path.read_bytes()
    for cut in range(acknowledged, len(whole)):
        for tail in (b"", b"\0" * 50):
            caplog.clear()
            path.write_bytes(whole[:cut] + tail)
            (tmp_path / "end").write_bytes(end)
            again = Journal(tmp_path)
            held = whole[:cut].count(b"\n")
            assert again.last == held
            is_torn = bool(tail) or not whole[:cut].endswith(b"\n")
            assert ("a crash interrupted" in caplog.text) == is_torn
            again.append({"x": "next"})
            again.sync()
            again.close()
            assert numbers(tmp_path) == [*[(1, 1), (2, 2)][:held], (held + 1, "next")]
            for each in tmp_path.glob("*.jsonl"):
                each.unlink()


def test_readings_that_were_acknowledged_and_are_gone_are_never_a_torn_tail(tmp_path: Path) -> None:
    """A cut between two lines, too, and a file that is gone."""
    journal = Journal(tmp_path / "journal")
    for x in range(1, 5):
        journal.append({"x": x})
    journal.sync()
    journal.close()
    [path] = (tmp_path / "journal").glob("*.jsonl")
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        with pytest.raises(JournalError, match="emphatic journal check"):
            Journal(tmp_path / "journal")
    path.write_bytes(whole[: whole.index(b"\n") + 1])
    with pytest.raises(JournalError, match="readings 2 to 4 are missing at the end"):
        Journal(tmp_path / "journal")


# ---------------------------------------------------------------------- damage

KINDS = ("bit flip", "cut", "hole", "zeros at the end", "line removed", "line doubled", "lines swapped", "file removed")


def write_journal(folder: Path, count: int = 60) -> None:
    """Three segments, in groups of some readings, some with an origin."""
    for start in range(0, count, count // 3):
        journal = Journal(folder)
        for x in range(start + 1, start + count // 3 + 1):
            journal.append({"x": x, "text": "é" * (x % 3)}, origin={"id": f"#{x}"} if x % 2 else None)
            if x % 7 == 0:
                journal.sync()
        journal.sync()
        journal.mark("owner")
        journal.close()


def damage(path: Path, kind: str, rng: random.Random) -> None:
    whole = bytearray(path.read_bytes())
    at, lines = rng.randrange(len(whole)), bytes(whole).splitlines(keepends=True)
    i = rng.randrange(len(lines))
    if kind == "bit flip":
        whole[at] ^= 1 << rng.randrange(8)
    elif kind == "cut":
        del whole[at:]
    elif kind == "hole":
        hole = range(at, min(len(whole), at + rng.randrange(1, 200)))
        whole[hole.start : hole.stop] = b"\xff" * len(hole) if rng.random() < 0.5 else bytes(len(hole))
    elif kind == "zeros at the end":
        whole[at:] = bytes(len(whole) - at)
    elif kind == "line removed":
        whole = bytearray(b"".join(lines[:i] + lines[i + 1 :]))
    elif kind == "line doubled":
        whole = bytearray(b"".join(lines[: i + 1] + lines[i:]))
    elif kind == "lines swapped":
        j = rng.choice([j for j in range(len(lines)) if j != i])
        lines[i], lines[j] = lines[j], lines[i]
        whole = bytearray(b"".join(lines))
    else:
        path.unlink()
        return
    path.write_bytes(whole)


@pytest.mark.parametrize("kind", KINDS)
def test_no_damage_is_silent_and_a_repair_saves_the_others(kind: str, tmp_path: Path) -> None:
    """125 damages of each kind, 1,000 in all: each is refused; a repair loses what the check said, and nothing else."""
    write_journal(tmp_path / "whole")
    expected = dict(numbers(tmp_path / "whole"))
    rng = random.Random(kind)
    names = sorted(path.name for path in (tmp_path / "whole").glob("*.jsonl"))
    if kind == "file removed":
        names = names[1:]  # the model knows where the journal begins
    folder = shutil.copytree(tmp_path / "whole", tmp_path / "damaged")
    for case in range(125):
        name = rng.choice([*names, "end"] if kind in ("bit flip", "cut", "hole", "file removed") else names)
        whole = (folder / name).read_bytes()
        damage(folder / name, kind, rng)
        with pytest.raises(JournalError, match="emphatic journal repair"):
            Journal(folder)
        if case % 25:
            (folder / name).write_bytes(whole)
            continue
        found = inspect(folder)
        copy = repair(folder)
        assert copy is not None
        saved = dict(numbers(folder))
        lost = {number for first, last in found.lost for number in range(first, last + 1)}
        assert saved == {number: x for number, x in expected.items() if number not in lost}
        assert len(saved) == found.readings
        if kind in ("line doubled", "lines swapped") or name == "end":
            assert lost == set()
        assert repair(folder) is None
        shutil.rmtree(copy)
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "whole", folder)


def test_a_damaged_id_of_a_journal_is_not_the_owners(tmp_path: Path) -> None:
    write_journal(tmp_path)
    (tmp_path / "id").write_text("ownez\n")
    assert Journal(tmp_path).id != "owner"


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_check_and_repair_on_the_command_line(tmp_path: Path) -> None:
    folder = tmp_path / "model.journal"
    write_journal(folder)
    whole = call("journal", "check", tmp_path / "model")
    assert (whole.exit_code, whole.stdout.splitlines()[-1]) == (0, "Every line is intact.")
    path = sorted(folder.glob("*.jsonl"))[1]
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:4], *lines[6:9], b"nonsense\n", *lines[10:]]))
    before = path.read_bytes()
    checked = call("journal", "check", folder)
    assert checked.exit_code == 1
    text = checked.stdout
    assert "A repair saves 57 readings and loses 3 readings:\n  25 to 26\n  30\n" in text
    assert "line 5: it holds reading 27, where reading 25 belongs" in text
    assert path.read_bytes() == before
    repaired = call("journal", "repair", path)
    assert repaired.exit_code == 0
    copy = Path(repaired.stdout.splitlines()[-1].removeprefix("The original journal is in ").rstrip("."))
    assert (copy / path.name).read_bytes() == before
    assert len(numbers(folder)) == 57
    again = call("journal", "repair", folder)
    assert again.stdout.splitlines()[-1] == "Nothing to repair."
    assert "An earlier repair lost 3 readings." in again.stdout
    for wrong in (tmp_path, tmp_path / "nothing"):
        refused = call("journal", "repair", wrong)
        assert (refused.exit_code, "is not a" in refused.stderr) == (2, True)


def test_a_full_disk_leaves_nothing_of_a_group(tmp_path: Path) -> None:
    """The limit on the size of a file is the system's own; the journal goes on once there is room again."""
    code = (
        "import resource, signal, sys; from pathlib import Path; from emphatic.nexting.serve.journal import Journal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); journal = Journal(Path(sys.argv[1]))\n"
        "journal.append({'x': 1}); journal.sync(); hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (80, hard))\n"
        "for x in range(2, 12): journal.append({'x': x})\n"
        "try: journal.sync()\n"
        "except OSError: print('full', journal.pending, (Path(sys.argv[1]) / f'{1:020d}.jsonl').stat().st_size)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard)); journal.sync(); print(journal.pending)\n"
    )
    done = run(code, tmp_path)
    assert done.stdout.decode().split("\n")[:2] == ["full 10 32", "0"], done.stderr.decode()
    assert numbers(tmp_path) == [(x, x) for x in range(1, 12)]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
