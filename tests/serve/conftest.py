"""A service in this process; and certificates: an authority, and a server and a client that it vouches for."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from emphatic.nexting.serve.service import Service
from tests.support.services import free_port, mosquitto, started


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = started(tmp_path)
    yield service
    service.close()


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """That of a broker."""
    found = free_port()
    (tmp_path / "broker").mkdir()
    with mosquitto(tmp_path / "broker", found):
        yield found


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The PEM files: ``ca``, ``server``, ``client`` and, with ``_key`` behind the name, their keys; ``other`` is of
    another authority."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("certificates")
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")

    def openssl(*arguments: object) -> None:
        subprocess.run(["openssl", *map(str, arguments)], cwd=folder, check=True, capture_output=True)

    def key(name: str) -> tuple[object, ...]:
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{name}_key")

    for name in ("ca", "other"):
        openssl("req", "-x509", *key(name), "-out", name, "-days", 2, "-subj", f"/CN={name}")
    for name in ("server", "client"):
        openssl("req", *key(name), "-out", f"{name}.csr", "-subj", f"/CN={name}")
        openssl(
            "x509", "-req", "-in", f"{name}.csr", "-CA", "ca", "-CAkey", "ca_key", "-CAcreateserial", "-days", 2,
            "-extfile", "names", "-out", name,
        )  # fmt: skip
    names = ("ca", "other", "server", "client")
    return {name: folder / name for name in (*names, *(f"{name}_key" for name in names))}
