"""``emphatic serve``."""

from __future__ import annotations

import logging
import os
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from emphatic.cli.nexting import check_live_options, read_settings
from emphatic.cli.terminal import FAILURES, JsonFormatter, LogFormat, LogLevel, report_error, with_settings
from emphatic.nexting.settings import Settings

__all__ = ["PublishAs", "serve"]

_BROKERS, _DELIVERY, _ACCESS, _LOGS = "Brokers", "Delivery", "Access", "Log messages"


class PublishAs(StrEnum):
    """How predictions are cut into messages."""

    message = "message"
    signals = "signals"


@with_settings(Settings, "serve", warm_up=("predict", "horizons"))
def serve(
    source: Annotated[
        str | None,
        typer.Argument(
            help="Where readings come from besides POST /readings: mqtt://HOST:1883/TOPIC, redis://HOST:6379/STREAM, "
            "nats://HOST:4222/STREAM, or - for a pipe. mqtts://, rediss:// and tls:// are encrypted."
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(help="The model to load, if it exists, and save; default: nexting/live/model.safetensors."),
    ] = None,
    models: Annotated[
        Path | None,
        typer.Option(
            help="A folder of further models, served at /models/NAME: each has its own folder there, with a model.toml."
        ),
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
        typer.Option(
            rich_help_panel=_BROKERS,
            help="Also send predictions to mqtt://HOST:1883/TOPIC, redis://HOST:6379/STREAM or nats://HOST:4222/SUBJECT.",
        ),
    ] = None,
    publish_as: Annotated[
        PublishAs,
        typer.Option(
            rich_help_panel=_BROKERS,
            help="By MQTT: all predictions in one message, or a message for each signal, to TOPIC/SIGNAL.",
            case_sensitive=False,
        ),
    ] = PublishAs.message,
    topic_names: Annotated[
        list[str] | None,
        typer.Option(
            rich_help_panel=_BROKERS,
            help="Names for the signals of an MQTT topic: TOPIC=NAME (home/+=+, plant/readings=), or a file of "
            "JSON or TOML; may be repeated.",
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
    discovery_prefix: Annotated[
        str,
        typer.Option(
            rich_help_panel=_BROKERS, help="The first level of the topics where Home Assistant looks for entities."
        ),
    ] = "homeassistant",
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
    id_window: Annotated[
        int, typer.Option(rich_help_panel=_DELIVERY, help="The number of ids that are remembered.", min=0)
    ] = 100_000,
    source_timeout: Annotated[
        str,
        typer.Option(
            rich_help_panel=_DELIVERY, help="After this time without a connection to the source, /readyz returns 503."
        ),
    ] = "30s",
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
            rich_help_panel=_BROKERS, help="A file with the password for the user in SOURCE; or set EMPHATIC_PASSWORD."
        ),
    ] = None,
    publish_password_file: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=_BROKERS,
            help="A file with the password for the user in --publish; or set EMPHATIC_PUBLISH_PASSWORD.",
            show_default="that of SOURCE, for the same user of the same server",
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
    log_level: Annotated[
        LogLevel,
        typer.Option(rich_help_panel=_LOGS, help="Log messages of this level and above.", case_sensitive=False),
    ] = LogLevel.info,
    log_format: Annotated[
        LogFormat,
        typer.Option(
            rich_help_panel=_LOGS, help="Write log messages as text, or each as a line of JSON.", case_sensitive=False
        ),
    ] = LogFormat.text,
    **flags: Any,
) -> None:
    """Serve a model as a web service: send it readings by HTTP, MQTT, Redis or NATS; a live page shows predictions.

    It learns from every reading, and after a stop or a crash it continues from where it was.

    Exit codes: 0 stopped; 1 learning failed; 2 wrong options; 65 the journal or the model is damaged (emphatic journal
    check shows how); 75 the port, the folder or the disk cannot be used now.
    """
    log = logging.getLogger("emphatic")
    log.setLevel(log_level.value.upper())
    if log_format is LogFormat.json:
        for handler in log.handlers:
            handler.setFormatter(JsonFormatter())

    def command() -> int:
        from emphatic.questions import durations

        path = model or Path("nexting") / "live" / "model.safetensors"
        check_live_options(path, no_learn, warm_up)  # before anything else is looked at
        seconds = {}
        for flag, text in (("--save-every", save_every), ("--source-timeout", source_timeout)):
            try:
                seconds[flag] = durations.seconds(text)
            except ValueError as error:
                raise ValueError(f"{flag}: {error}.") from None
        if any(find_spec(name) is None for name in ("starlette", "uvicorn")):
            raise ValueError("emphatic serve needs starlette and uvicorn: pip install 'emphatic[serve]'")
        from emphatic.serve import credentials
        from emphatic.serve.app import create_app
        from emphatic.serve.listener import allowed_hosts, is_loopback, open_socket, server_context
        from emphatic.serve.models import ModelOptions, NamedModels, connect
        from emphatic.serve.service import Service, run

        token = credentials.find_token(token_file)
        if token is None and not is_loopback(host):
            raise ValueError(
                f"--host {host} can be reached by others: a token is required. Write one to a file, and give it as "
                "--token-file FILE."
            )
        options = ModelOptions(
            source=source,
            publish=publish,
            password_file=str(password_file) if password_file else None,
            publish_password_file=str(publish_password_file) if publish_password_file else None,
            topic_names=tuple(topic_names or ()),
            publish_as=publish_as.value,
            home_assistant=home_assistant,
            discovery_prefix=discovery_prefix,
            units=tuple(units or ()),
            warm_up=warm_up,
        )
        tls = credentials.TLSFiles(ca_file, client_cert, client_key)
        https = server_context(tls_cert, tls_key)

        def make(path: Path, settings: Settings, options: ModelOptions, journal: Path | None = None) -> Service:
            check_live_options(path, no_learn, options.warm_up)
            return Service(
                path,
                settings,
                learn=not no_learn,
                warm_up=options.warm_up,
                save_every=seconds["--save-every"],
                journal=journal,
                id_field=id_field,
                id_window=id_window,
                source_timeout=seconds["--source-timeout"],
            )

        service = make(path, read_settings(config, flags), options, journal)
        connected = connect(service, options, tls)
        others = None if models is None else NamedModels(models, make, tls)
        with open_socket(host, port) as listening:
            service.open(wait=False)
            try:
                hosts = (*allowed_hosts(host), *(allow_host or ()))
                app = create_app(service, token=token, hosts=hosts, models=others)
                return run(connected, listening, app, https, others)
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
