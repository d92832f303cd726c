"""What ``tools.same_numbers`` observes of one version of the package: ``python observations.py SECTION INPUTS OUT``.

The script runs with each of the two versions, with PYTHONPATH set to its ``src``. It uses public names only: a module
may move and a class may become two without a change here. OUT receives a pickled dictionary from the name of an
observation to arrays, text, or nested lists and dictionaries.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import os
import pickle
import re
import socket
import struct
import subprocess
import sys
import time
import types
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

Observations = dict[str, Any]

#: Rules of every structure: two vectors; weights that scale themselves; two weights and three traces.
STRUCTURES = ("true_online_etd", "tdrc", "true_online_gtd")
COMMAND = (sys.executable, "-W", "ignore", "-c", "import sys; from emphatic.nexting.cli import app; sys.exit(app())")
QUESTIONS: tuple[dict[str, Any], ...] = ({"cumulant": "x", "horizon": 20}, {"cumulant": "y", "horizon": 20})


# ------------------------------------------------------------------------------------------------ learners


def observe_learners(
    inputs: dict[str, Any], engines: tuple[str, ...], rules: tuple[str, ...], learn_steps: int = 20
) -> Observations:
    """θ, every other vector, the memory and the predictions of learners on the streams, by ``run`` and ``learn``."""
    import emphatic

    observed: Observations = {}
    for (rule, K), streams in inputs["streams"].items():
        if rules and rule not in rules:
            continue
        for kind, stream in streams.items():
            for engine in engines:
                for dtype in ("float64", "float32"):
                    for call in ("run", "learn"):
                        name = f"θ: {rule}, {engine}, {dtype}, K = {K}, {kind} stream, {call}"
                        learner = emphatic.Learner(rule, stream["theta"].shape[-1], K, engine=engine, dtype=dtype)
                        learner.theta = stream["theta"]
                        predictions = _run(learner, stream) if call == "run" else _learn(learner, stream, learn_steps)
                        vectors = {vector: np.array(getattr(learner, vector)) for vector in learner.rule.vectors}
                        memory = {scalar: np.array(getattr(learner, scalar)) for scalar in learner.rule.memory}
                        observed[name] = {"predictions": predictions} | vectors | memory
    return observed


def _run(learner: Any, stream: dict[str, Any]) -> Any:
    Phi, Phi_next = (_active(stream[name]) for name in ("Phi", "Phi_next"))
    return np.array(learner.run(Phi, Phi_next=Phi_next, **stream["parameters"]))


def _learn(learner: Any, stream: dict[str, Any], steps: int) -> Any:
    predictions = []
    for t in range(min(steps, len(stream["parameters"]["R"]))):
        step = {name: values[t] for name, values in stream["parameters"].items()}
        phi = _active(stream["Phi"], t)
        phi_next = _active(stream["Phi"], t + 1) if stream["Phi_next"] is None else _active(stream["Phi_next"], t)
        predictions.append(np.array(learner.predict(phi)))
        learner.learn(phi=phi, phi_next=phi_next, **step)
    return np.array(predictions)


def _active(features: Any, t: int | None = None) -> Any:
    """Features as the learner accepts them: an array, or ``Active`` of (indices, values); of all rows, or of row t."""
    import emphatic

    if not isinstance(features, tuple):
        return features if t is None or features is None else features[t]
    indices, values = features
    if t is None:
        return emphatic.Active(indices, values)
    return emphatic.Active(indices[t], None if values is None else values[t])


def plain(inputs: dict[str, Any]) -> Observations:
    """Every rule on every engine, with kernels as the Python that they are."""
    return observe_learners(inputs, ("reference", "dense", "sparse", "chunked"), ())


def compiled(inputs: dict[str, Any]) -> Observations:
    """Compiled kernels, of rules of every structure unless all rules are asked for."""
    rules = () if inputs["all_rules"] else STRUCTURES
    return observe_learners(inputs, ("dense", "sparse", "chunked"), rules)


def cuda(inputs: dict[str, Any]) -> Observations:
    """The cuda engine where Triton interprets, on few steps."""
    streams = {
        (rule, K): {"dense": _shortened(kinds["dense"], 18)}
        for (rule, K), kinds in inputs["streams"].items()
        if rule in STRUCTURES and K in (None, 2)
    }
    return observe_learners({"streams": streams}, ("cuda",), (), learn_steps=3)


def _shortened(stream: dict[str, Any], T: int) -> dict[str, Any]:
    parameters = {name: values[:T] for name, values in stream["parameters"].items()}
    return stream | {"Phi": stream["Phi"][: T + 1], "parameters": parameters}


# ------------------------------------------------------------------------------------------------ hordes


def hordes(inputs: dict[str, Any]) -> Observations:
    """A horde by all of its methods, and one that continues from its file."""
    from emphatic import GVF, Horde
    from emphatic import features as f
    from emphatic.nexting.tables import open_table

    rng = np.random.default_rng(0)
    rows, T = {"x": np.cumsum(rng.normal(size=1500)), "y": np.arange(1500) % 7.0}, 1500
    rows["x"][700:705] = np.nan
    lines = [f"{x:.6f},{y}" for x, y in zip(np.cumsum(rng.normal(size=T)), rows["y"], strict=True)]
    broken = ["1,2,3" if t % 300 == 299 else line for t, line in enumerate(lines)]  # a field too many: dropped
    Path("whole.csv").write_text("x,y\n" + "\n".join(lines) + "\n")
    Path("dropped.csv").write_text("x,y\n" + "\n".join(broken) + "\n")

    def features() -> Any:
        return f.Features([f.Bias(), f.SoftBins("x", bins=10), f.SoftBins(f.Trace("x", steps=4), bins=10)])

    def new(**options: Any) -> Any:
        return Horde([GVF(**question) for question in QUESTIONS], features(), **options)

    observed: Observations = {}
    for engine in ("dense", "sparse"):
        horde = new(engine=engine).warm_up(rows, 200)
        single = [horde.observe({name: column[t] for name, column in rows.items()}) for t in range(800)]
        many = horde.observe_many({name: column[800:] for name, column in rows.items()}, time=np.arange(800.0, T))
        name = f"Horde.observe and observe_many, {engine}"
        observed[name] = {"observe": np.array(single), "observe_many": np.array(many), "theta": horde.learner.theta}
        horde.save("horde.safetensors")
        observed[f"Horde.save, {engine}"] = read_tensors(Path("horde.safetensors"))
        loaded = Horde.load("horde.safetensors")
        many = loaded.observe_many({name: column[:300] for name, column in rows.items()}, time=np.arange(T, T + 300.0))
        observed[f"Horde.load, {engine}"] = {"observe_many": np.array(many), "theta": loaded.learner.theta}
        agent = new(engine=engine, centred=False).prepare(["x", "y"], np.c_[rows["x"], rows["y"]][:200])
        predictions = [agent.begin({"x": 0.0, "y": 1.0})]
        for t in range(400):
            row = {name: column[t] for name, column in rows.items()}
            predictions.append(agent.learn(None, 0.5, row, t % 100 == 99))
            if t % 100 == 99:
                agent.begin(row)
        observed[f"Horde.learn, {engine}"] = np.array(predictions)
        for table in ("whole", "dropped"):
            horde = new(engine=engine).warm_up(open_table(f"{table}.csv"), 200)
            observed[f"Horde.run after warm_up, {table}.csv, {engine}"] = np.array(
                horde.run(open_table(f"{table}.csv"))
            )
    observed["Horde.run without warm_up"] = np.array(new(engine="dense").run(open_table("whole.csv")))
    return observed


def cluster(inputs: dict[str, Any]) -> Observations:
    """``ClusterHorde.run`` of one shard: of a table whose rows all parse, and of one with dropped rows."""
    from emphatic import GVF
    from emphatic import features as f
    from emphatic.nexting.cluster import local
    from emphatic.nexting.tables import open_table

    rng = np.random.default_rng(0)
    lines = [f"{x:.6f},{t % 7}" for t, x in enumerate(np.cumsum(rng.normal(size=1200)))]
    broken = ["1,2,3" if t % 300 == 299 else line for t, line in enumerate(lines)]
    observed: Observations = {}
    for name, text in (("ClusterHorde.run", lines), ("ClusterHorde.run with dropped rows", broken)):
        Path("cluster.csv").write_text("x,y\n" + "\n".join(text) + "\n")
        features = f.Features([f.Bias(), f.SoftBins("x", bins=10)])
        with local([GVF(**question) for question in QUESTIONS], features, shards=1, engine="dense") as horde:
            observed[name] = np.array(horde.run(open_table("cluster.csv")))
    return observed


# ------------------------------------------------------------------------------------------------ commands


def nexting(inputs: dict[str, Any]) -> Observations:
    """The files of ``emphatic nexting`` for the sample log; a pipe and the service with the model that it wrote."""
    log, rows = _sample_log(inputs["rows"])
    _command("nexting", log, "--out", "nexting", "--quiet")
    observed = _files("nexting")
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    model = Path("nexting/model.safetensors")
    Path("model.safetensors").write_bytes(model.read_bytes())
    observed["pipe with a model"] = _command("nexting", "-", "--model", "model.safetensors", text=lines)
    observed["pipe that warms up"] = _command(
        "nexting", "-", "--model", "new.safetensors", "--horizons", "2,9", "--warm-up", "60", text=lines
    )
    Path("model.safetensors").write_bytes(model.read_bytes())
    with _service("--model", "model.safetensors") as ask:
        observed["service with a model"] = ask("/readings", lines)
        observed["service: /signals"] = json.loads(ask("/signals"))
    with _service("--model", "other.safetensors", "--horizons", "2,9", "--warm-up", "60") as ask:
        observed["service that warms up"] = ask("/readings", lines)
    return observed


def _sample_log(count: int | None) -> tuple[str, list[dict[str, Any]]]:
    """A file with the first ``count`` rows of the sample log, and a few hundred readings for the pipe."""
    import pyarrow.parquet as parquet

    import emphatic.nexting.data

    table = parquet.read_table(emphatic.nexting.data.household())
    if count is not None:
        table = table.slice(0, count)
    parquet.write_table(table, "log.parquet")
    readings = table.slice(table.num_rows - 300).to_pylist()
    start = 1_700_000_000
    return "log.parquet", [
        {"time": start + 60 * t} | {name: value for name, value in row.items() if name != "time"}
        for t, row in enumerate(readings)
    ]


def study(inputs: dict[str, Any]) -> Observations:
    """The files of two small sweeps: of a problem, with a rerun, and of a log."""
    grid = ("--alpha", ".1,.05", "--lambda", "0,.9")
    _command("sweep", "chain", *grid, "--runs", "2", "--steps", "200",
             "--rerun", "2", "--seed", "3", "--out", "study")  # fmt: skip
    log, _ = _sample_log(1000)
    column = "Global_active_power"
    _command("sweep", log, *grid, "--predict", column, "--horizon", "15min", "--out", "log_study")
    return _files("study") | _files("log_study")


def _command(*arguments: str, text: str = "") -> str:
    result = subprocess.run([*COMMAND, *arguments], input=text, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"emphatic {' '.join(arguments)} ended with {result.returncode}:\n{result.stderr[-3000:]}")
    return result.stdout


def _files(folder: str) -> Observations:
    """The content of every file that a command wrote, without times; of pages only that they exist."""
    paths = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    observed: Observations = {f"{folder}: files": [path.relative_to(folder).as_posix() for path in paths]}
    for path in paths:
        name = f"{folder}: {path.relative_to(folder).as_posix()}"
        if path.suffix == ".parquet":
            observed[name] = _read_parquet(path)
        elif path.suffix == ".safetensors":
            observed[name] = read_tensors(path)
        elif path.suffix == ".json":
            observed[name] = _without_times(json.loads(path.read_text(encoding="utf-8")))
    return observed


def _read_parquet(path: Path) -> dict[str, Any]:
    """Schema and the bytes of every column."""
    import pyarrow.parquet as parquet

    table = parquet.read_table(path)
    columns: dict[str, Any] = {"schema": str(table.schema)}
    for name in table.column_names:
        if name not in ("seconds", "time_taken"):
            columns[name] = np.asarray(table[name].to_numpy(zero_copy_only=False))
    return columns


def read_tensors(path: Path) -> dict[str, Any]:
    """Metadata and tensors of a safetensors file, read without the package."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    metadata = {name: _parsed(text) for name, text in header.pop("__metadata__", {}).items()}
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        data = np.frombuffer(content[8 + length + begin : 8 + length + end], np.uint8)
        tensors[name] = {"dtype": entry["dtype"], "shape": entry["shape"], "data": data}
    return {"metadata": _without_times(metadata), "tensors": tensors}


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _without_times(value: Any) -> Any:
    """The same without what a clock measured, and without checksums: the numbers themselves are compared."""
    if isinstance(value, dict):
        timed = re.compile(r"(^|_)seconds$|^saved$|^(xxh3|blake2b)$")
        return {key: _without_times(v) for key, v in value.items() if not timed.search(key)}
    return [_without_times(v) for v in value] if isinstance(value, list) else value


@contextlib.contextmanager
def _service(*arguments: str) -> Iterator[Callable[..., str]]:
    """``emphatic serve`` on a free port, and a function that sends it a request."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with open("serve.log", "w") as log:
        process = subprocess.Popen([*COMMAND, "serve", *arguments, "--port", str(port)], stderr=log, stdout=log)

    def ask(path: str, body: str | None = None) -> str:
        headers = {"content-type": "application/x-ndjson"} if body is not None else {}
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}{path}", None if body is None else body.encode(), headers
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            return str(answer.read().decode())

    try:
        for _ in range(600):  # a minute: the first start compiles
            with contextlib.suppress(OSError):
                ask("/healthz")
                break
            if process.poll() is not None:
                raise RuntimeError(f"emphatic serve ended:\n{Path('serve.log').read_text()[-3000:]}")
            time.sleep(0.1)
        yield ask
    finally:
        process.terminate()
        process.wait(60)


# ------------------------------------------------------------------------------------------------ the interface


def interface(inputs: dict[str, Any]) -> Observations:
    """``__all__`` and signatures of the package and its public modules, and ``--help`` of every command."""
    import emphatic

    observed: Observations = {"__all__": dict.fromkeys(emphatic.__all__, "public")}
    for name in emphatic.__all__:
        with contextlib.suppress(ModuleNotFoundError):  # a module that needs an extra that is not installed
            value = getattr(emphatic, name)
            if isinstance(value, types.ModuleType):
                public = getattr(value, "__all__", [])
                observed[f"signatures: emphatic.{name}"] = {
                    member: describe(getattr(value, member)) for member in sorted(public)
                }
            else:
                observed[f"signatures: {name}"] = describe(value)
    observed["--help"] = _command("--help")
    commands = re.findall(r"^  ([a-z]+) ", observed["--help"].split("Commands:")[1], re.M)
    return observed | {f"{command} --help": _command(command, "--help") for command in commands}


def describe(value: Any) -> Any:
    """A function's parameters; a class's, with those of its public methods, and its properties; a constant's value.

    Annotations are left out: they may become more precise.
    """
    if isinstance(value, type):
        members: dict[str, Any] = {"(call)": _parameters(value)}
        for name, member in inspect.getmembers(value):
            if name.startswith("_") or _is_builtin(value, name):
                continue
            if isinstance(inspect.getattr_static(value, name), property):
                members[name] = "property"
            else:
                members[name] = _parameters(member) if callable(member) else "attribute"
        return members
    if callable(value):
        return _parameters(value)
    if isinstance(value, types.ModuleType):
        return f"module {value.__name__}"
    return repr(value) if isinstance(value, str | int | float | tuple | frozenset) else type(value).__name__


def _is_builtin(cls: type, name: str) -> bool:
    return any(name in vars(base) for base in cls.__mro__ if base.__module__ == "builtins")


def _parameters(value: Any) -> str:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "no signature"
    parameters = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    text = str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))
    return re.sub(r" at 0x[0-9a-f]+", "", text)


SECTIONS: dict[str, Callable[[dict[str, Any]], Observations]] = {
    "interface": interface,
    "plain": plain,
    "hordes": hordes,
    "study": study,
    "nexting": nexting,
    "compiled": compiled,
    "cuda": cuda,
    "cluster": cluster,
}


def main() -> None:
    section, inputs, out = sys.argv[1:]
    warnings.simplefilter("ignore")
    source = str(importlib.import_module("emphatic").__file__)
    with open(inputs, "rb") as file:
        observed = SECTIONS[section](pickle.load(file))
    if Path(source).parents[1] != Path(os.environ["PYTHONPATH"]):
        raise RuntimeError(f"emphatic was imported from {source}, not from {os.environ['PYTHONPATH']}")
    with open(out, "wb") as file:
        pickle.dump(observed, file)


if __name__ == "__main__":
    main()
