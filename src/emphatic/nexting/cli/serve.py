"""``emphatic serve``."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from emphatic.nexting.cli.nexting import check_live_options, read_settings
from emphatic.nexting.cli.terminal import FAILURES, JsonFormatter, LogFormat, report_error, with_settings
from emphatic.nexting.runs.settings import Settings

__all__ = ["serve"]

_BROKERS, _DELIVERY, _ACCESS, _LOGS = "Brokers", "Delivery", "Access", "Log messages"


@with_settings(Settings, "serve", warm_up=("predict", "horizons"))
def serve(
    source: Annotated[
        str | None,
        typer.Argument(
            help="Where readings come from besides POST /readings: mqtt://HOST:1883/TOPIC (mqtts:// is encrypted), or "
            "- for a pipe."
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(help="The model to load, if it exists, and save; default: nexting/live/model.safetensors."),
    ] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on. An address that other machines can reach needs --token-file.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on; 0 for any free port.")] = 8765,
    warm_up: Annotated[
        int | None,
        typer.Option(
            help="Without a model: readings to warm up on.",
            show_default="four times the longest horizon, 500 to 10,000",
        ),
    ] = None,
    save_every: Annotated[str, typer.Option(help="How often to save the model.")] = "30s",
    journal: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=_DELIVERY,
            help="Folder of the journal (readings since the last save); default: MODEL.journal.",
        ),
    ] = None,
    no_learn: Annotated[bool, typer.Option("--no-learn", help="Predict without learning.")] = False,
    config: Annotated[Path | None, typer.Option(help="Configuration file (TOML); flags override it.")] = None,
    publish: Annotated[
        str | None,
        typer.Option(rich_help_panel=_BROKERS, help="Also send predictions to mqtt://HOST:1883/TOPIC."),
    ] = None,
    topic_names: Annotated[
        list[str] | None,
        typer.Option(
            rich_help_panel=_BROKERS,
            help="Names for the signals of an MQTT topic: TOPIC=NAME (home/+=+, plant/readings=); may be repeated.",
            show_default="TOPIC.FIELD",
        ),
    ] = None,
    home_assistant: Annotated[
        bool,
        typer.Option(
            "--home-assistant",
            rich_help_panel=_BROKERS,
            help="Announce the predictions of --publish mqtt://… to Home Assistant, as entities.",
        ),
    ] = False,
    units: Annotated[
        list[str] | None,
        typer.Option(
            rich_help_panel=_BROKERS,
            help="The unit of a signal or of a field, for Home Assistant: temperature=°C; may be repeated.",
            show_default="as other devices announce it",
        ),
    ] = None,
    id_field: Annotated[
        str,
        typer.Option(
            rich_help_panel=_DELIVERY,
            help="The field of a reading with its id; '' for none. A known id is not learned again.",
        ),
    ] = "reading_id",
    token_file: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=_ACCESS,
            help="A file with the token that clients must send, as Authorization: Bearer TOKEN; or set EMPHATIC_TOKEN.",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            rich_help_panel=_ACCESS,
            help="A further name that clients may use for this service in the Host header; may be repeated.",
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(rich_help_panel=_ACCESS, help="Serve HTTPS: the PEM file of the certificate.")
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=_ACCESS, help="The PEM file of the certificate's key.", show_default="in --tls-cert"
        ),
    ] = None,
    password_file: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=_BROKERS,
            help="A file with the password for the user in SOURCE and in --publish; or set EMPHATIC_PASSWORD.",
        ),
    ] = None,
    ca_file: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=_BROKERS,
            help="The PEM file of the certificate authorities of the brokers.",
            show_default="those of the system",
        ),
    ] = None,
    client_cert: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=_BROKERS, help="The PEM file of the client certificate, for brokers that require one."
        ),
    ] = None,
    client_key: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=_BROKERS, help="The PEM file of the key of --client-cert.", show_default="in --client-cert"
        ),
    ] = None,
    log_format: Annotated[
        LogFormat,
        typer.Option(
            rich_help_panel=_LOGS, help="Write log messages as text, or each as a line of JSON.", case_sensitive=False
        ),
    ] = LogFormat.text,
    **flags: Any,
) -> None:
    """Serve a model as a web service: send it readings by HTTP or MQTT; a live page shows predictions.

    It learns from every reading, and after a stop or a crash it continues from where it was.

    Exit codes: 0 stopped; 1 learning failed; 2 wrong options; 65 the journal or the model is damaged (emphatic journal
    check shows how); 75 the port, the folder or the disk cannot be used now.
    """
    if log_format is LogFormat.json:
        for handler in logging.getLogger("emphatic").handlers:
            handler.setFormatter(JsonFormatter())

    def command() -> int:
        from emphatic.gvfs import durations

        path = model or Path("nexting") / "live" / "model.safetensors"
        check_live_options(path, no_learn, warm_up)  # before anything else is looked at
        try:
            seconds = durations.seconds(save_every)
        except ValueError as error:
            raise ValueError(f"--save-every: {error}.") from None
        if any(find_spec(name) is None for name in ("starlette", "uvicorn", "itsdangerous")):
            raise ValueError("emphatic serve needs starlette, uvicorn and itsdangerous: pip install 'emphatic[serve]'")
        from emphatic.nexting.serve import credentials
        from emphatic.nexting.serve.app import create_app
        from emphatic.nexting.serve.payloads import TopicNames
        from emphatic.nexting.serve.server import allowed_hosts, is_loopback, open_socket, run
        from emphatic.nexting.serve.service import Service
        from emphatic.nexting.serve.sources import Address, MessageOptions, check_loop, make_publisher, make_source

        token = credentials.find_token(token_file)
        if token is None and not is_loopback(host):
            raise ValueError(
                f"--host {host} can be reached by others: a token is required. Write one to a file, and give it as "
                "--token-file FILE."
            )
        credentials.check_server_files(tls_cert, tls_key)
        hosts = allowed_hosts(host, allow_host or ())
        for address, name in ((source, "SOURCE"), (publish, "--publish")):
            credentials.refuse_password(address, name)
        check_loop(source, publish)
        if home_assistant and (publish is None or Address.parse(publish).kind != "mqtt"):
            raise ValueError("--home-assistant needs --publish mqtt://HOST:1883/TOPIC, where the predictions go.")
        messages = MessageOptions(TopicNames.parse(topic_names or ()), home_assistant, _read_units(units or ()))
        service = Service(
            path,
            read_settings(config, flags),
            learn=not no_learn,
            warm_up=warm_up,
            save_every=seconds,
            journal=journal,
            id_field=id_field,
        )
        password = credentials.find_password(password_file)
        tls = credentials.TLSFiles(ca_file, client_cert, client_key)
        publisher = make_publisher(publish, path, password, tls, messages)
        service.publish_to(publisher)
        reader = make_source(source, service, password, tls, messages)
        connections = [connection for connection in (publisher, reader) if connection is not None]
        with open_socket(host, port) as listening:
            service.open(wait=False)
            try:
                app = create_app(service, token=token, hosts=hosts, https=tls_cert is not None)
                return run(service, connections, listening, app, tls_cert, tls_key)
            finally:
                service.close()

    try:
        code = command()
    except (*FAILURES, ImportError) as error:
        report_error(error)
        code = _exit_code(error)
    raise typer.Exit(code)


def _read_units(texts: Sequence[str]) -> dict[str, str]:
    """The units that options give, NAME=UNIT, several with commas between them."""
    units = {}
    for pair in (pair for text in texts for pair in text.split(",") if pair.strip()):
        name, separator, unit = pair.partition("=")
        if not separator or not name.strip():
            raise ValueError(f"--units {pair!r} must be NAME=UNIT, such as temperature=°C.")
        units[name.strip()] = unit.strip()
    return units


def _exit_code(error: BaseException) -> int:
    """The exit code of a service that cannot start, by the names that systemd knows.

    DATAERR asks for a repair, and TEMPFAIL for another attempt; wrong options are 2, as for every command.
    """
    from emphatic.common.locks import InUseError
    from emphatic.errors import CheckpointError
    from emphatic.nexting.serve.journal import JournalError

    if isinstance(error, JournalError | CheckpointError):
        return os.EX_DATAERR
    return os.EX_TEMPFAIL if isinstance(error, InUseError | OSError | MemoryError) else 2
