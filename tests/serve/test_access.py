"""Who may ask, and where secrets may stand: tokens, wrong tokens, passwords, certificates."""

from __future__ import annotations

import os
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import HTTPConnection

from emphatic.nexting.serve.app import Access, create_app
from emphatic.nexting.serve.credentials import (
    TLSFiles,
    check_server_files,
    find_password,
    find_token,
    hide_user,
    refuse_password,
)
from emphatic.nexting.serve.sources import Address, make_publisher
from tests.support.processes import COMMAND, run
from tests.support.services import FLAGS, Served, free_port, mosquitto, opened, readings, send, wait_for

TOKEN = "correct-horse-battery-staple"


def test_wrong_tokens_are_counted_and_some_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    access = Access("correct-horse-battery-staple")
    client = HTTPConnection({"type": "http", "client": ("192.0.2.1", 1), "headers": []})
    for given in ["", "correct", "correct-horse-battery-staplf", "é", *map(str, range(7))]:
        assert not access.is_token(given, client)
    assert access.is_token("correct-horse-battery-staple", client)
    assert access.wrong == 11
    assert [record.getMessage() for record in caplog.records] == [
        "a wrong token from 192.0.2.1, 1 so far.",
        "a wrong token from 192.0.2.1, 10 so far.",
    ]


def test_a_session_is_the_services_own_and_ends_with_its_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cookie that was changed, is too old, or of another process opens nothing."""
    service = opened(tmp_path)

    def statuses() -> Iterator[int]:
        def ask(app: Starlette, cookie: str) -> int:
            return send(app, "GET", "/signals", headers={"cookie": cookie}).status_code

        one, other = (create_app(service, token=TOKEN) for _ in range(2))
        cookie = send(one, "POST", "/login", data={"token": TOKEN}).headers["set-cookie"].partition(";")[0]
        yield ask(one, cookie)
        yield ask(other, cookie)
        changed = "A" if cookie[-2] != "A" else "B"  # all of its bits belong to the signature
        yield ask(one, cookie[:-2] + changed + cookie[-1])
        later = time.time() + 8 * 86400
        with monkeypatch.context() as week:
            week.setattr(time, "time", lambda: later)
            yield ask(one, cookie)

    assert list(statuses()) == [200, 401, 401, 401]
    service.close()


def test_secrets_come_from_files_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "secret"
    file.write_text("correct-horse-battery\n")
    monkeypatch.delenv("EMPHATIC_TOKEN", raising=False)
    assert find_token(None) is None
    assert find_token(file) == "correct-horse-battery"
    monkeypatch.setenv("EMPHATIC_TOKEN", " by-environment-by-environment \n")
    assert find_token(None) == "by-environment-by-environment"
    assert find_token(file) == "correct-horse-battery"
    monkeypatch.setenv("EMPHATIC_TOKEN", "")
    with pytest.raises(ValueError, match="EMPHATIC_TOKEN must hold a token"):
        find_token(None)
    monkeypatch.setenv("EMPHATIC_PASSWORD", "p w")
    assert find_password(None) == "p w"
    with pytest.raises(ValueError, match=r"--password-file .*none cannot be read: No such file"):
        find_password(tmp_path / "none")


@pytest.mark.parametrize(
    "address",
    ["mqtt://u:hunter2@h/t", "mqtts://:hunter2@h:1/t", "mqtt://u:hun@hunter2@h/s", "mqtt://u:hunter2@h"],
)
def test_a_password_on_the_command_line_is_refused_and_never_shown(address: str, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"SOURCE has a password in it.* --password-file FILE.* EMPHATIC_PASSWORD"
    ) as e:
        refuse_password(address, "SOURCE")
    assert "hunter2" not in str(e.value)
    done = run(COMMAND, "serve", "--publish", address, "--port", 0, "--model", tmp_path / "m")
    assert (done.returncode, b"hunter2" in done.stderr + done.stdout) == (2, False)
    assert b"--publish has a password in it" in done.stderr


def test_what_is_not_an_address_is_shown_without_its_user(tmp_path: Path) -> None:
    for address in ("mqtt://u:hunter2@h", "mqtt://u:hunt/hunter2@h/t", "http://u:hunter2@h/t"):
        with pytest.raises(ValueError, match="is not an address") as error:
            make_publisher(address, tmp_path)
        assert "hunter2" not in str(error.value)


def test_addresses_without_a_password_are_in_order() -> None:
    for address in (None, "-", "mqtt://u@h/t", "mqtt://h:1883/a:b@c"):
        refuse_password(address, "SOURCE")
    assert hide_user("-") == "-"
    there = Address.parse("mqtt://u@h/t").with_access("secret", TLSFiles())
    assert (there.password, "secret" in repr(there)) == ("secret", False)


def test_files_of_certificates_that_are_not_right_are_named(tmp_path: Path, certificates: dict[str, Path]) -> None:
    bad = tmp_path / "bad"
    bad.write_text("no certificate")
    there, none = certificates, tmp_path / "none"
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: check_server_files(None, bad), "--tls-key needs --tls-cert"),
        (lambda: check_server_files(none, None), "--tls-cert .*none cannot be read: No such file"),
        (
            lambda: check_server_files(bad, None),
            "--tls-cert .*bad and --tls-key .*bad must be a certificate and its key",
        ),
        (lambda: check_server_files(there["server"], there["client_key"]), "must be a certificate and its key"),
        (lambda: TLSFiles(none).context(), "--ca-file .*none cannot be read: No such file"),
        (lambda: TLSFiles(bad).context(), "--ca-file .*bad must hold certificates"),
        (lambda: TLSFiles(None, None, bad).context(), "--client-key needs --client-cert"),
        (
            lambda: TLSFiles(None, there["client"], there["server_key"]).context(),
            "--client-cert .* must be a certificate",
        ),
    ]
    for call, said in cases:
        with pytest.raises(ValueError, match=said):
            call()
    check_server_files(None, None)
    check_server_files(there["server"], there["server_key"])
    assert TLSFiles(there["ca"], there["client"], there["client_key"]).context().verify_mode == ssl.CERT_REQUIRED
    with pytest.raises(ValueError, match="--ca-file"):
        Address.parse("mqtts://h/t").with_access(None, TLSFiles(bad))


def test_https_with_a_token_from_the_environment(tmp_path: Path, certificates: dict[str, Path]) -> None:
    options = ("--tls-cert", certificates["server"], "--tls-key", certificates["server_key"])
    env = {**os.environ, "EMPHATIC_TOKEN": "correct-horse-battery-staple"}
    with Served(tmp_path / "m", *FLAGS, *options, verify=str(certificates["ca"]), env=env) as service:
        assert (service.url or "").startswith("https://")
        assert service.client.get("/signals").status_code == 401
        assert service.client.get("/healthz").status_code == 200
        assert service.client.get("/signals", headers={"host": "evil.example"}).status_code == 400
        opened = service.client.post("/login", data={"token": "correct-horse-battery-staple"})
        assert "; secure" in opened.headers["set-cookie"].lower()
        assert service.client.get("/signals").status_code == 200
        service.stop()


@pytest.mark.serve
def test_a_broker_by_tls_with_a_password_and_certificates(tmp_path: Path, certificates: dict[str, Path]) -> None:
    """A client without the right certificate, authority or password gets nothing; readings and predictions do."""
    port, there = free_port(), certificates
    (tmp_path / "password").write_text("hunter2\n")
    options: tuple[object, ...] = ("--password-file", tmp_path / "password", "--ca-file", there["ca"])
    options += ("--client-cert", there["client"], "--client-key", there["client_key"])
    server = f"mqtts://user@localhost:{port}"
    subprocess.run(["mosquitto_passwd", "-b", "-c", tmp_path / "users", "user", "hunter2"], check=True)
    lines = f"cafile {there['ca']}\ncertfile {there['server']}\nkeyfile {there['server_key']}\n"
    lines += "require_certificate true\n"
    broker = mosquitto(tmp_path, port, access=f"{lines}password_file {tmp_path / 'users'}\nallow_anonymous false\n")
    publish = ("--publish", f"{server}/predictions")
    with broker, Served(tmp_path / "model", f"{server}/readings", *publish, *options, *FLAGS) as service:
        wait_for(lambda: any("connected" in line for line in service.log))
        _send(port, there, readings(80))
        wait_for(lambda: service.metric("step") == 80, 60)
        wait_for(lambda: service.client.get("/readyz").json()["publishers"][0]["messages"] == 21)
        with open(f"/proc/{service.process.pid}/cmdline") as cmdline:
            assert "hunter2" not in cmdline.read()
        assert not any("hunter2" in line for line in service.log)
        service.stop()


def _send(port: int, there: dict[str, Path], rows: list[dict[str, Any]]) -> None:
    import json

    import paho.mqtt.publish as publish

    messages: list[Any] = [("readings", json.dumps(row), 1, False) for row in rows]
    files = {"ca_certs": str(there["ca"]), "certfile": str(there["client"]), "keyfile": str(there["client_key"])}
    publish.multiple(
        messages,
        "localhost",
        port,
        auth={"username": "user", "password": "hunter2"},
        tls=files,  # type: ignore[arg-type]
    )
