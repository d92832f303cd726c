"""Whether two commits compute the same: ``python -m tools.same_numbers OLD NEW [--quick] [--allow NAME] …``.

Both commits are checked out into a temporary folder, each is imported from there with the dependencies of this
interpreter, and ``tools/observations.py`` runs with each of them. Compared are, on this machine:

- θ, every other vector, the memory and the predictions of every rule on every engine, on the streams of OLD's contract
  test: kernels as plain Python for all rules, compiled for rules of every structure (``--all-rules``: for all), and
  the cuda engine where torch and triton are installed (Triton interprets);
- hordes by all of their methods, from their files, and in one shard of a cluster;
- the files of ``emphatic nexting`` for the sample log and of two studies: every column, tensor and key without times;
- the answers of a pipe and of the service;
- ``emphatic.__all__``, the signatures of all public names, and ``--help`` of every command.

Numbers are compared by their bytes. Pages are not compared: they contain times, and uPlot draws them. Names and
parameters that NEW adds are printed, and are no difference. The exit code is 1 if anything differs that is neither in
``EXPECTED``, ``EXPECTED_PARTS`` or ``REMOVED`` nor passed with ``--allow``.
"""

from __future__ import annotations

import argparse
import difflib
import importlib.util
import io
import os
import pickle
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
OBSERVATIONS = Path(__file__).with_name("observations.py")

#: Observations that may differ between commit 25b36421 and its successors, and why.
EXPECTED = {
    "version": "the release has another number",
    "--help": "commands went",
    "figures --help": "the command went: result.plot() and sweep --figures draw them",
    "reproduce --help": "the command went: python -m reproductions NAME",
    "warm --help": "the command went: the first run compiles",
    "nexting --help": "options of what went",
    "serve --help": "options of what went",
    "sweep --help": "--ray is joblib's backend",
    "signatures: emphatic.nexting.cluster": "ClusterHorde has shards, storage and address; its learner and status went",
    "signatures: emphatic.nexting": "run has neither threads nor parts of a cluster",
    "signatures: emphatic.studies": "sweeps run on joblib's backends, not by tasks that are passed",
    "signatures: emphatic.problems": "Tasks has no name of its own",
    "signatures: Horde": "blocks says itself where a sequence begins",
    "signatures: emphatic.nexting.tables": "a Block and a Table have nothing of formats that went",
    "pipe with a model": "numba optimises a kernel as it is: values at a horizon differ by 1e-11 of themselves",
    "Horde.save, dense": "the file has no reserved places; what is read from it is compared by Horde.load",
    "Horde.save, sparse": "the file has no reserved places; what is read from it is compared by Horde.load",
    "nexting: model.safetensors": "the file has no reserved places; what is read from it is compared by the pipe",
}
#: How a difference between two bounds of intervals reads: the keys and places that lead to it, its name, no key lost.
BOUND = re.compile(r"(?:\w+: |\[\d+\]: )*\w+_(?:low|high): (?!missing)")
#: How a difference between two floats reads; and the key of units beside numbers, which are not read any more.
FLOAT = re.compile(r".*: (-?\d+(\.\d+|e-)[\de-]*, now -?\d+(\.\d+|e-)[\de-]*|units_in_values: missing in NEW)$")
#: Observations in which only such differences are expected, and why: verdicts, names and counts may not differ.
EXPECTED_PARTS = {
    "study: settings.parquet": BOUND,  # intervals have Student's quantiles from scipy: 1e-8 of themselves
    "study: summary.json": BOUND,
    "nexting: summary.json": FLOAT,  # the same, own ones 1e-3 off; and scores of values at a horizon, as of the pipe
}
#: Names that were removed on purpose, and why: in a comparison of signatures they count as expected.
REMOVED = dict.fromkeys(("Agents", "Trainings", "train_vector"), "Agent.train runs whole episodes in one compiled call")
#: Sections in the order in which they run, and the environment that each needs.
SECTIONS: dict[str, dict[str, str]] = {
    "interface": {},
    "plain": {"NUMBA_DISABLE_JIT": "1"},
    "hordes": {},
    "study": {},
    "nexting": {},
    "compiled": {},
    "cuda": {"TRITON_INTERPRET": "1"},
    "cluster": {},
}
#: Modules that a section needs; without them it is left out.
NEEDS = {"cuda": ("torch", "triton"), "nexting": ("starlette", "uvicorn")}
#: Rows of the sample log with ``--quick``.
QUICK_ROWS = 3000


# ------------------------------------------------------------------------------------------------ comparing


def compare(old: Any, new: Any) -> list[str]:
    """Where two observations differ and by how much, one line per place; empty if they are equal bit for bit."""
    if isinstance(old, np.ndarray) and isinstance(new, np.ndarray):
        return _compare_arrays(old, new)
    if isinstance(old, dict) and isinstance(new, dict):
        lines = [f"{key}: missing in NEW" for key in old if key not in new]
        lines += [f"{key}: missing in OLD" for key in new if key not in old]
        return lines + [f"{key}: {line}" for key in old if key in new for line in compare(old[key], new[key])]
    if isinstance(old, list) and isinstance(new, list):
        lines = [f"{len(old)} items, now {len(new)}"] if len(old) != len(new) else []
        pairs = enumerate(zip(old, new, strict=False))
        return lines + [f"[{i}]: {line}" for i, (a, b) in pairs for line in compare(a, b)]
    if isinstance(old, str) and isinstance(new, str) and old != new and "\n" in old:
        return _compare_texts(old, new)
    # repr tells −0.0 from 0.0 and 1 from 1.0, and finds NaN equal to NaN.
    return [] if repr(old) == repr(new) else [f"{old!r}, now {new!r}"]


def _compare_arrays(old: np.ndarray[Any, Any], new: np.ndarray[Any, Any]) -> list[str]:
    if (old.dtype, old.shape) != (new.dtype, new.shape):
        return [f"{old.dtype} {old.shape}, now {new.dtype} {new.shape}"]
    if old.dtype == object:
        return compare(old.tolist(), new.tolist())
    if old.tobytes() == new.tobytes():
        return []
    bits_old, bits_new = (np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in (old, new))
    differs = (bits_old != bits_new).reshape(old.size, -1).any(axis=1)
    place = tuple(int(i) for i in np.unravel_index(int(differs.argmax()), old.shape))
    line = f"{int(differs.sum())} of {old.size} values differ, the first at {place}: {old[place]!r}, now {new[place]!r}"
    if np.issubdtype(old.dtype, np.floating):
        with np.errstate(all="ignore"):
            line += f"; the largest difference is {np.nanmax(np.abs(old - new)):.3g}"
    return [line]


def _compare_texts(old: str, new: str) -> list[str]:
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), "OLD", "NEW", n=0, lineterm="")
    return [line for line in lines if line[0] in "+-" and line[:3] not in ("+++", "---")]


def compare_interface(old: Any, new: Any) -> tuple[list[str], list[str]]:
    """What was lost or changed in names and signatures, and what was added; what is in ``REMOVED`` is neither."""
    lines = [line for line in compare(old, new) if line.removesuffix(": missing in NEW") not in REMOVED]
    added = [line.removesuffix(": missing in OLD") for line in lines if line.endswith(": missing in OLD")]
    return [line for line in lines if not line.endswith(": missing in OLD")], added


@dataclass(frozen=True)
class Comparison:
    """One observation of two versions: where they differ, and what the new one adds."""

    name: str
    differences: list[str]
    added: list[str]

    def is_expected(self, allowed: Collection[str]) -> bool:
        """Whether these differences are no failure."""
        part = EXPECTED_PARTS.get(self.name)
        return self.name in allowed or all(part and part.match(line) for line in self.differences)

    def line(self, allowed: bool) -> str:
        """One line for the report, with the first differences."""
        if not self.differences:
            extra = f" (added: {', '.join(self.added)})" if self.added else ""
            return f"equal    {self.name}{extra}"
        more = f"; and {len(self.differences) - 3} more" if len(self.differences) > 3 else ""
        shown = " | ".join(line if len(line) < 300 else f"{line[:300]} …" for line in self.differences[:3])
        return f"{'expected' if allowed else 'DIFFERS '} {self.name}: {shown}{more}"


def compare_all(old: dict[str, Any], new: dict[str, Any]) -> Iterator[Comparison]:
    """Every observation of both versions."""
    for name in [*old, *(name for name in new if name not in old)]:
        if name not in new or name not in old:
            yield Comparison(name, [f"missing in {'NEW' if name in old else 'OLD'}"], [])
        elif name == "__all__" or name.startswith("signatures: "):
            yield Comparison(name, *compare_interface(old[name], new[name]))
        else:
            yield Comparison(name, compare(old[name], new[name]), [])


# ------------------------------------------------------------------------------------------------ observing


class Version:
    """A commit, checked out into ``folder``, with a kernel cache of its own."""

    def __init__(self, commit: str, folder: Path, cache: Path | None) -> None:
        find = ["git", "rev-parse", "--verify", f"{commit}^{{commit}}"]
        self.sha = subprocess.run(find, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
        self.root = folder / "checkout"
        self.work = folder / "work"
        self.work.mkdir(parents=True)
        self.cache = cache / self.sha[:12] if cache else folder / "cache"
        self.cache.mkdir(mode=0o755, parents=True, exist_ok=True)
        content = subprocess.run(["git", "archive", self.sha], cwd=ROOT, check=True, capture_output=True).stdout
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            archive.extractall(self.root, filter="data")
        self.number = self._write_metadata()

    def _write_metadata(self) -> str:
        """Installed metadata beside the sources: the version and the entry points are those of this commit."""
        project = tomllib.loads((self.root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        folder = self.root / "src" / f"emphatic-{project['version']}.dist-info"
        folder.mkdir()
        metadata = f"Metadata-Version: 2.1\nName: emphatic\nVersion: {project['version']}\n"
        (folder / "METADATA").write_text(metadata, encoding="utf-8")
        groups = {"console_scripts": project.get("scripts", {}), **project.get("entry-points", {})}
        entries = "".join(
            f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in members.items())
            for group, members in groups.items()
        )
        (folder / "entry_points.txt").write_text(entries, encoding="utf-8")
        return str(project["version"])

    def start(self, section: str, inputs: Path) -> subprocess.Popen[str]:
        """A process that makes the observations of one section."""
        (self.work / section).mkdir()
        environment = self.environment() | SECTIONS[section]
        script = inputs.with_name("observations.py")
        command = [sys.executable, str(script), section, str(inputs), str(self.work / f"{section}.pickle")]
        folder, pipe = self.work / section, subprocess.PIPE
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=pipe, stderr=subprocess.STDOUT, text=True)

    def environment(self) -> dict[str, str]:
        paths = {"PYTHONPATH": str(self.root / "src"), "EMPHATIC_CACHE_DIR": str(self.cache)}
        # The width of help texts and one thread: neither may depend on the terminal or on the load.
        return dict(os.environ) | paths | {"COLUMNS": "100", "TERMINAL_WIDTH": "100", "OMP_NUM_THREADS": "1"}

    def observations(self, section: str) -> dict[str, Any]:
        """What the section's process has written, without the version's number in texts."""
        with (self.work / f"{section}.pickle").open("rb") as file:
            observed: dict[str, Any] = pickle.load(file)
        return {name: _without_number(value, self.number) for name, value in observed.items()}


def _without_number(value: Any, number: str) -> Any:
    if isinstance(value, dict):
        return {key: _without_number(v, number) for key, v in value.items()}
    if isinstance(value, list):
        return [_without_number(v, number) for v in value]
    return value.replace(number, "VERSION") if isinstance(value, str) else value


#: Draws the streams with OLD's ``tests.support``, and writes plain arrays that need no class of either version.
DRAW = """
import pickle, sys
import numpy as np
import emphatic
from tests.support.streams import make
KINDS = {
    "dense": {"n": 6}, "separate": {"n": 6, "separate": True, "given": "eta"},
    "binary": {"n": 23, "active": 4, "given": ""}, "signed": {"n": 19, "active": 3, "binary": False, "separate": True},
}
drawn, T = {}, int(sys.argv[2])
rng = np.random.default_rng(7)
for rule in emphatic.rules.names():
    for K in (None, 2):
        drawn[rule, K] = {}
        for seed, (kind, options) in enumerate(KINDS.items()):
            s = make(seed, T, K=K, rule=rule, **options)
            sparse = s.indices is not None
            Phi_next = None if s.Phi_next is None else (s.indices_next, s.values_next) if sparse else s.Phi_next
            theta = rng.normal(size=(s.n,) if K is None else (K, s.n)).astype(np.float32)
            parameters = {name: np.array(value) for name, value in s.parameters().items()}
            Phi = (s.indices, s.values) if sparse else s.Phi
            drawn[rule, K][kind] = {"Phi": Phi, "Phi_next": Phi_next, "parameters": parameters, "theta": theta}
pickle.dump(drawn, open(sys.argv[1], "wb"))
"""


def draw_streams(version: Version, T: int) -> dict[Any, Any]:
    """The streams of the contract for every rule of this version, in which α, I, λ, ρ, γ and R all vary."""
    path = version.work / "streams.pickle"
    command = [sys.executable, "-W", "ignore", "-c", DRAW, str(path), str(T)]
    paths = os.pathsep.join([str(version.root / "src"), str(version.root)])
    subprocess.run(command, cwd=version.root, env=version.environment() | {"PYTHONPATH": paths}, check=True)
    with path.open("rb") as file:
        streams: dict[Any, Any] = pickle.load(file)
    return streams


def observe(versions: list[Version], section: str, inputs: Path, jobs: int) -> list[dict[str, Any]]:
    """One section of both versions; with two jobs at the same time."""
    processes = []
    for version in versions:
        processes.append(version.start(section, inputs))
        if jobs == 1:
            _finish(processes[-1], section)
    for process in processes:
        _finish(process, section)
    return [version.observations(section) for version in versions]


def _finish(process: subprocess.Popen[str], section: str) -> None:
    if process.returncode is None:
        output, _ = process.communicate()
        if process.returncode:
            raise SystemExit(f"The section '{section}' failed:\n{output[-5000:]}")


def missing(section: str) -> str | None:
    """The module that a section needs and that is not installed."""
    return next((name for name in NEEDS.get(section, ()) if importlib.util.find_spec(name) is None), None)


def run(arguments: argparse.Namespace) -> int:
    failures = 0
    allowed = {*EXPECTED, *arguments.allow}
    with tempfile.TemporaryDirectory() as name:
        commits = {"old": arguments.old, "new": arguments.new}
        versions = [Version(commit, Path(name) / label, arguments.cache) for label, commit in commits.items()]
        number = Comparison("version", compare(*(version.number for version in versions)), [])
        print(number.line(allowed=True), flush=True)
        inputs = Path(name) / "inputs.pickle"
        shutil.copy(OBSERVATIONS, inputs.parent)  # both versions run the same text, whoever edits it meanwhile
        needs_streams = {"plain", "compiled", "cuda"} & set(arguments.sections)
        streams = draw_streams(versions[0], 41 if arguments.quick else 141) if needs_streams else {}
        rows = QUICK_ROWS if arguments.quick else None
        with inputs.open("wb") as file:
            pickle.dump({"streams": streams, "all_rules": arguments.all_rules, "rows": rows}, file)
        for section in arguments.sections:
            if module := missing(section):
                print(f"left out {section}: {module} is not installed", flush=True)
                continue
            for comparison in compare_all(*observe(versions, section, inputs, arguments.jobs)):
                failures += not comparison.is_expected(allowed)
                print(comparison.line(comparison.is_expected(allowed)), flush=True)
    print(f"{failures} unexpected differences" if failures else "No unexpected difference.")
    return 1 if failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.same_numbers", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("old", metavar="OLD", help="a commit, or a name for one")
    parser.add_argument("new", metavar="NEW", help="the commit to compare with it")
    parser.add_argument("--quick", action="store_true", help="short streams, and the beginning of the sample log")
    parser.add_argument("--all-rules", action="store_true", help="compile the kernels of all rules (half an hour)")
    parser.add_argument("--allow", action="append", default=[], metavar="NAME", help="an observation that may differ")
    parser.add_argument("--jobs", type=int, choices=(1, 2), default=1, help="2: both versions at the same time")
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="FOLDER",
        help="keep compiled kernels there for the next run",
    )
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=list(SECTIONS), metavar="SECTION",
                        help=f"some of {', '.join(SECTIONS)}")  # fmt: skip
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
