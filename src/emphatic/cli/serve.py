"""``emphatic serve``."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from emphatic.cli.common import FAILURES, report_error

__all__ = ["serve"]


def serve(
    source: str | None, model: Path | None, host: str, port: int, settings: Any, warm_up: int, save_every: str,
    journal: Path | None, no_learn: bool, publish: str | None, token_file: Path | None, log_level: str,
) -> int:  # fmt: skip
    """The command; its exit code."""
    logging.getLogger("emphatic").setLevel(log_level.upper())
    try:
        from emphatic.questions import durations

        path = model or Path("nexting") / "live" / "model.safetensors"
        if no_learn and not path.exists():
            raise ValueError(f"--no-learn needs a model, and there is none at {path}.")
        if warm_up < 3:
            raise ValueError(f"--warm-up must be 3 readings or more. Got {warm_up}.")
        try:
            seconds = durations.seconds(save_every)
        except ValueError as error:
            raise ValueError(f"--save-every: {error}.") from None
        if any(find_spec(name) is None for name in ("starlette", "uvicorn")):
            raise ValueError("emphatic serve needs starlette and uvicorn: pip install 'emphatic[serve]'")
        from emphatic.serve import service as running
        from emphatic.serve.app import create_app
        from emphatic.serve.service import Service
        from emphatic.serve.sources import make_publisher, make_source

        token = None if token_file is None else running.read_token(token_file)
        if token is None and not running.is_loopback(host):
            raise ValueError(
                f"--host {host} can be reached by others: a token is required. Write one to a file, and give it as "
                "--token-file FILE."
            )
        if publish is not None and publish == source:
            raise ValueError(f"--publish {publish} is where the readings come from: predictions must go elsewhere.")
        service = Service(path, settings(), learn=not no_learn, warm_up=warm_up, save_every=seconds, journal=journal)
        with running.open_socket(host, port) as listening:
            publisher, readings = make_publisher(publish, path), make_source(source, service)
            service.open()
            try:
                app = create_app(service, token=token, hosts=running.allowed_hosts(host))
                return running.run(service, readings, publisher, listening, app)
            finally:
                service.close()
    except (*FAILURES, ImportError) as error:
        return report_error(error)
