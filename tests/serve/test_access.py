"""Who may ask, and where secrets may stand: tokens, wrong tokens, passwords, certificates."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emphatic.serve import app
from emphatic.serve.app import Attempts
from emphatic.serve.credentials import TLSFiles, find_password, find_token, hide_user, refuse_password
from emphatic.serve.listener import server_context
from emphatic.serve.sources import Address, make_publisher
from tests.support.processes import COMMAND, run
from tests.support.services import FLAGS, Served, free_port, mosquitto, readings, redis_server, wait_for

ROOT = Path(__file__).parents[2]


def scope(host: str, port: int = 1) -> dict[str, Any]:
    return {"type": "http", "client": (host, port)}


def test_wrong_tokens_of_an_address_are_answered_ever_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, however many are tried at a time; other addresses do not wait."""
    monkeypatch.setattr(app, "_DELAY", 0.01)
    monkeypatch.setattr(app, "_LONGEST_DELAY", 0.05)

    async def seconds(attempts: Attempts, host: str, count: int) -> float:
        began = time.monotonic()
        await asyncio.gather(*(attempts.delay(scope(host)) for _ in range(count)))
        return time.monotonic() - began

    async def attack() -> None:
        attempts = Attempts()
        assert await seconds(attempts, "192.0.2.1", 3) < 0.01
        assert 0.009 < await seconds(attempts, "192.0.2.1", 1) < 0.1
        assert await seconds(attempts, "192.0.2.1", 5) > 0.02 + 0.04 + 3 * 0.05 - 0.01
        assert await seconds(attempts, "192.0.2.2", 3) < 0.01
        assert attempts.wrong == 12
        many = [asyncio.create_task(attempts.delay(scope("192.0.2.1", port))) for port in range(8)]
        await asyncio.sleep(0)
        refused = attempts.refuse(scope("192.0.2.1"))
        assert refused is not None
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "10")
        assert attempts.refuse(scope("192.0.2.3")) is None
        attempts.trust(scope("192.0.2.1", 99))
        assert attempts.refuse(scope("192.0.2.1", 99)) is None  # it has shown the right one before
        await asyncio.gather(*many)
        assert attempts.refuse(scope("192.0.2.1")) is None

    asyncio.run(attack())


def test_addresses_of_one_subscriber_count_as_one_and_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_REMEMBERED", 10)
    assert app._network(scope("2001:db8::1")) == app._network(scope("2001:db8::ffff:2")) == "2001:db8::/64"
    assert app._network(scope("::ffff:192.0.2.7")) == app._network(scope("192.0.2.7")) == "192.0.2.7"
    assert app._network({"type": "http", "client": None}) == "unknown"

    async def attack() -> Attempts:
        attempts = Attempts()
        for i in range(50):
            await attempts.delay(scope(f"192.0.2.{i}", i))
            attempts.trust(scope(f"192.0.2.{i}", i))
        return attempts

    attempts = asyncio.run(attack())
    assert (len(attempts._addresses), len(attempts._trusted), attempts.wrong) == (10, 10, 50)


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
    assert find_password(None, "--password-file", "EMPHATIC_PASSWORD") == "p w"
    with pytest.raises(ValueError, match=r"--password-file .*none cannot be read: No such file"):
        find_password(tmp_path / "none", "--password-file", "EMPHATIC_PASSWORD")


@pytest.mark.parametrize(
    "address",
    ["mqtt://u:hunter2@h/t", "mqtts://:hunter2@h:1/t", "redis://u:hun@hunter2@h/s", "nats://u:hunter2@h"],
)
def test_a_password_on_the_command_line_is_refused_and_never_shown(address: str, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"SOURCE has a password in it.* --password-file FILE.* EMPHATIC_PASSWORD"
    ) as e:
        refuse_password(address, "SOURCE", "--password-file", "EMPHATIC_PASSWORD")
    assert "hunter2" not in str(e.value)
    done = run(COMMAND, "serve", "--publish", address, "--port", 0, "--model", tmp_path / "m")
    assert (done.returncode, b"hunter2" in done.stderr + done.stdout) == (2, False)
    assert b"--publish-password-file" in done.stderr


def test_what_is_not_an_address_is_shown_without_its_user(tmp_path: Path) -> None:
    for address in ("mqtt://u:hunter2@h", "mqtt://u:hunt/hunter2@h/t", "http://u:hunter2@h/t"):
        with pytest.raises(ValueError, match="is not an address") as error:
            make_publisher(address, tmp_path)
        assert "hunter2" not in str(error.value)


def test_addresses_without_a_password_are_in_order() -> None:
    for address in (None, "-", "mqtt://u@h/t", "mqtt://h:1883/a:b@c", "redis://h/s"):
        refuse_password(address, "SOURCE", "--password-file", "EMPHATIC_PASSWORD")
    assert hide_user("-") == "-"
    there = Address.parse("mqtt://u@h/t").with_access("secret", TLSFiles())
    assert (there.password, "secret" in repr(there)) == ("secret", False)
    assert there.server == Address.parse("mqtt://u@h:1883/other").server != Address.parse("mqtt://v@h/t").server


def test_files_of_certificates_that_are_not_right_are_named(tmp_path: Path, certificates: dict[str, Path]) -> None:
    bad = tmp_path / "bad"
    bad.write_text("no certificate")
    there, none = certificates, tmp_path / "none"
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: server_context(None, bad), "--tls-key needs --tls-cert"),
        (lambda: server_context(none, None), "--tls-cert .*none cannot be read: No such file"),
        (lambda: server_context(bad, None), "--tls-cert .*bad and --tls-key .*bad must be a certificate and its key"),
        (lambda: server_context(there["server"], there["client_key"]), "must be a certificate and its key"),
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
    assert server_context(None, None) is None
    assert isinstance(server_context(there["server"], there["server_key"]), ssl.SSLContext)
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
@pytest.mark.parametrize("kind", ["mqtts", "rediss"])
def test_brokers_by_tls_with_a_password_and_certificates(
    tmp_path: Path, certificates: dict[str, Path], kind: str
) -> None:
    """A client without the right certificate, authority or password gets nothing."""
    port, there = free_port(), certificates
    (tmp_path / "password").write_text("hunter2\n")
    options: tuple[object, ...] = ("--password-file", tmp_path / "password", "--ca-file", there["ca"])
    options += ("--client-cert", there["client"], "--client-key", there["client_key"])
    address = f"{kind}://user@localhost:{port}/readings"
    rows = readings(80)
    if kind == "mqtts":
        subprocess.run(["mosquitto_passwd", "-b", "-c", tmp_path / "users", "user", "hunter2"], check=True)
        lines = f"cafile {there['ca']}\ncertfile {there['server']}\nkeyfile {there['server_key']}\n"
        lines += "require_certificate true\n"
        broker = mosquitto(tmp_path, port, access=f"{lines}password_file {tmp_path / 'users'}\nallow_anonymous false\n")
    else:
        if shutil.which("redis-cli") is None:
            pytest.skip("redis-cli is not installed")
        names = {"ca-cert-file": "ca", "cert-file": "server", "key-file": "server_key"}
        tls = [text for name, file in names.items() for text in (f"--tls-{name}", str(there[file]))]
        users = ["--user", "user", "on", ">hunter2", "~*", "+@all"]
        broker = redis_server(tmp_path, 0, "--tls-port", str(port), "--tls-auth-clients", "yes", *tls, *users)
    with broker, Served(tmp_path / "model", address, *options, *FLAGS) as service:
        wait_for(lambda: any("connected" in line for line in service.log) or kind == "rediss")
        _send(kind, port, there, rows)
        wait_for(lambda: service.metric("step") == 80, 60)
        with open(f"/proc/{service.process.pid}/cmdline") as cmdline:
            assert "hunter2" not in cmdline.read()
        assert not any("hunter2" in line for line in service.log)
        service.stop()


def _send(kind: str, port: int, there: dict[str, Path], rows: list[dict[str, Any]]) -> None:
    import json

    if kind == "rediss":
        import redis

        with redis.Redis(
            port=port, username="user", password="hunter2", ssl=True, ssl_ca_certs=str(there["ca"]),
            ssl_certfile=str(there["client"]), ssl_keyfile=str(there["client_key"]),
        ) as client:  # fmt: skip
            for row in rows:
                client.xadd("readings", {"json": json.dumps(row)})
        return
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


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_the_unit_is_exposed_little(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "serve.md").read_text("utf-8")
    (unit,) = re.findall(r"^```ini\n(.*?)^```", page, re.S | re.M)
    (tmp_path / "emphatic.service").write_text(unit.replace("/opt/emphatic/bin/emphatic", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(tmp_path / "emphatic.service")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    (exposure,) = re.findall(r"Overall exposure level for emphatic.service: (\S+)", done.stdout + done.stderr)
    assert float(exposure) <= 3.0
