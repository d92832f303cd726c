"""Secrets and certificates: read from files or the environment, never from the command line or an address.

Every user of a machine can read the command lines of its processes, and addresses are shown in messages and logs.
"""

from __future__ import annotations

import logging
import os
import ssl
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "SYSTEM_TLS",
    "TLSFiles",
    "check_server_files",
    "find_password",
    "find_token",
    "hide_user",
    "refuse_password",
]

logger = logging.getLogger("emphatic.serve")

#: The environment variables that stand for the files of secrets.
_TOKEN, _PASSWORD = "EMPHATIC_TOKEN", "EMPHATIC_PASSWORD"


class TLSFiles(NamedTuple):
    """The files of encrypted connections to brokers.

    Args:
        ca: Whom to trust instead of the authorities that the system trusts.
        certificate: The certificate that this client shows, if the broker asks for one.
        key: Its key; None if that is in the file of the certificate.
    """

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def context(self) -> ssl.SSLContext:
        """The context of a connection: the broker must have a certificate for its name. ValueError in one sentence."""
        if self.key is not None and self.certificate is None:
            raise ValueError("--client-key needs --client-cert, the file of its certificate.")
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except ssl.SSLError:
            raise ValueError(f"--ca-file {self.ca} must hold certificates in PEM.") from None
        except OSError as error:
            raise ValueError(f"--ca-file {self.ca} cannot be read: {error.strerror}.") from None
        if self.certificate is not None:
            _load_certificate(context, self.certificate, self.key, "--client-cert", "--client-key")
        return context


#: Encrypted connections to brokers that the system's authorities vouch for, without a certificate of this client.
SYSTEM_TLS = TLSFiles()


def find_token(path: Path | None) -> str | None:
    """The token that clients must give, from a file or the environment; None if there is none.

    Args:
        path: The file; None to look in the environment variable EMPHATIC_TOKEN.
    """
    token, place = _find(path, "--token-file", _TOKEN)
    if token is None:
        return None
    if not token or not token.isprintable() or not token.isascii() or " " in token:
        raise ValueError(f"{place} must hold a token: one line of letters, digits and signs, without spaces.")
    if len(token) < 16:
        logger.warning("%s: the token has only %d characters; 16 or more cannot be guessed.", place, len(token))
    return token


def find_password(path: Path | None) -> str | None:
    """The password of the users in the addresses of brokers, from a file or the environment; None if there is none.

    Args:
        path: The file; None to look in the environment variable EMPHATIC_PASSWORD.
    """
    password, place = _find(path, "--password-file", _PASSWORD)
    if password == "":
        raise ValueError(f"{place} must hold a password, in one line.")
    return password


def refuse_password(address: str | None, name: str) -> None:
    """ValueError if there is a password in an address on the command line.

    Args:
        address: The address; None is in order.
        name: What messages call it.
    """
    user, separator, _ = (address or "").partition("://")[2].partition("/")[0].rpartition("@")
    if separator and ":" in user:
        raise ValueError(
            f"{name} has a password in it, which every user of this machine can read in the list of processes. Write "
            f"it to a file, and give --password-file FILE, or set the environment variable {_PASSWORD}."
        )


def check_server_files(certificate: Path | None, key: Path | None) -> None:
    """ValueError in one sentence if HTTPS cannot be served with these files.

    Args:
        certificate: The file of the certificate and those that it is signed by; None for HTTP.
        key: The file of its key; None if that is in the file of the certificate.
    """
    if certificate is not None:
        _load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), certificate, key, "--tls-cert", "--tls-key")
    elif key is not None:
        raise ValueError("--tls-key needs --tls-cert, the file of its certificate.")


def hide_user(address: str) -> str:
    """An address as messages show it: without anything that may be a user or a password.

    >>> hide_user("mqtt://user:secret@broker/plant")
    'mqtt://broker/plant'
    """
    scheme, separator, location = address.partition("://")
    return scheme + separator + (location.rpartition("@")[2] if separator else "")


def _find(path: Path | None, option: str, variable: str) -> tuple[str | None, str]:
    """A secret without the white space around it, and where it was found, for messages."""
    if path is None:
        secret = os.environ.get(variable)
        return None if secret is None else secret.strip(), variable
    try:
        return path.read_text("utf-8", "replace").strip(), f"{option} {path}"
    except OSError as error:
        raise ValueError(f"{option} {path} cannot be read: {error.strerror}.") from None


def _load_certificate(
    context: ssl.SSLContext, certificate: Path, key: Path | None, option: str, key_option: str
) -> None:
    """Load a certificate and its key, or raise a ValueError that names the option that is wrong."""
    for path, name in ((certificate, option), (key, key_option)):
        if path is not None:
            try:
                path.read_bytes()
            except OSError as error:
                raise ValueError(f"{name} {path} cannot be read: {error.strerror}.") from None
    try:
        context.load_cert_chain(certificate, key, password=lambda: "")  # OpenSSL would ask for one on the terminal
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        raise ValueError(
            f"{option} {certificate} and {key_option} {key or certificate} must be a certificate and its key, both in "
            f"PEM and without a passphrase: {reason}."
        ) from None
