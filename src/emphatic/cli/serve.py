"""``emphatic serve``."""

from __future__ import annotations

import logging
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from emphatic.cli.nexting import check_live_options, read_settings
from emphatic.cli.terminal import FAILURES, LogLevel, report_error, with_settings
from emphatic.nexting.settings import Settings

__all__ = ["serve"]


@with_settings(Settings, "serve", warm_up=("predict", "horizons"))
def serve(
    source: Annotated[
        str | None,
        typer.Argument(
            help="Where readings come from besides POST /readings: mqtt://HOST:1883/TOPIC, redis://HOST:6379/STREAM, "
            "or - for a pipe."
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(help="The model to load, if it exists, and save; default: nexting/live/model.safetensors."),
    ] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen at; any that other machines can reach needs --token-file.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen at; 0 for any that is free.")] = 8765,
    warm_up: Annotated[
        int | None,
        typer.Option(
            help="Without a model: readings to warm up on.", show_default="four of the longest horizon, 500 to 10,000"
        ),
    ] = None,
    save_every: Annotated[str, typer.Option(help="How often to save the model.")] = "30s",
    journal: Annotated[
        Path | None, typer.Option(help="The folder for readings since the last save; default: MODEL.journal.")
    ] = None,
    no_learn: Annotated[bool, typer.Option("--no-learn", help="Predict without learning.")] = False,
    config: Annotated[Path | None, typer.Option(help="TOML file of settings; flags override it.")] = None,
    publish: Annotated[
        str | None, typer.Option(help="Send predictions there too: mqtt://HOST:1883/TOPIC or redis://HOST:6379/STREAM.")
    ] = None,
    id_field: Annotated[
        str, typer.Option(help="The field of a reading that has its id; '' for none. A known id is not learned again.")
    ] = "reading_id",
    id_window: Annotated[int, typer.Option(help="How many ids of readings are remembered.", min=0)] = 100_000,
    source_timeout: Annotated[
        str, typer.Option(help="Without a connection to the source for so long, /readyz says that it is not ready.")
    ] = "30s",
    token_file: Annotated[
        Path | None, typer.Option(help="A file with the token that clients must give, as Authorization: Bearer TOKEN.")
    ] = None,
    log_level: Annotated[
        LogLevel, typer.Option(help="Log messages of this level and above.", case_sensitive=False)
    ] = LogLevel.info,
    **flags: Any,
) -> None:
    """Serve a model: readings come in by HTTP, MQTT or Redis, predictions go out, and a page shows them.

    It learns from every reading, and after a stop or a crash it continues from where it was.

    Exit codes: 0 stopped; 1 learning failed; 2 wrong options; 65 the journal or the model is damaged (emphatic journal
    check shows how); 75 the port, the folder or the disk cannot be used now.
    """
    logging.getLogger("emphatic").setLevel(log_level.value.upper())

    def command() -> int:
        from emphatic.questions import durations

        path = model or Path("nexting") / "live" / "model.safetensors"
        check_live_options(path, no_learn, warm_up)
        seconds = {}
        for flag, text in (("--save-every", save_every), ("--source-timeout", source_timeout)):
            try:
                seconds[flag] = durations.seconds(text)
            except ValueError as error:
                raise ValueError(f"{flag}: {error}.") from None
        if any(find_spec(name) is None for name in ("starlette", "uvicorn")):
            raise ValueError("emphatic serve needs starlette and uvicorn: pip install 'emphatic[serve]'")
        from emphatic.serve import service as running
        from emphatic.serve.app import create_app
        from emphatic.serve.service import Service
        from emphatic.serve.sources import check_loop, make_publisher, make_source

        token = None if token_file is None else running.read_token(token_file)
        if token is None and not running.is_loopback(host):
            raise ValueError(
                f"--host {host} can be reached by others: a token is required. Write one to a file, and give it as "
                "--token-file FILE."
            )
        check_loop(source, publish)
        settings = read_settings(config, flags)
        service = Service(
            path,
            settings,
            learn=not no_learn,
            warm_up=warm_up,
            save_every=seconds["--save-every"],
            journal=journal,
            id_field=id_field,
            id_window=id_window,
            source_timeout=seconds["--source-timeout"],
        )
        with running.open_socket(host, port) as listening:
            publisher = make_publisher(publish, path)
            service.publish_to(publisher)
            readings = make_source(source, service)
            service.open()
            try:
                app = create_app(service, token=token, hosts=running.allowed_hosts(host))
                return running.run(service, readings, publisher, listening, app)
            finally:
                service.close()

    try:
        code = command()
    except (*FAILURES, ImportError) as error:
        report_error(error)
        code = _exit_code(error)
    raise typer.Exit(code)


def _exit_code(error: BaseException) -> int:
    """The exit code of a service that cannot start, by the names that systemd knows.

    DATAERR asks for a repair, and TEMPFAIL for another attempt; wrong options are 2, as for every command.
    """
    from emphatic.common.locks import InUseError
    from emphatic.errors import CheckpointError
    from emphatic.serve.journal import JournalError

    if isinstance(error, JournalError | CheckpointError):
        return os.EX_DATAERR
    return os.EX_TEMPFAIL if isinstance(error, InUseError | OSError | MemoryError) else 2
