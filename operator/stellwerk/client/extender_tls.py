"""The TLS side of an extender: certificates to trust and to show, from files, data or a Secret.

`client/extender.py` asks for a context whenever it opens a session. Invariant: material is read
when the context is made and not before, so that a new session has the certificates of today.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from stellwerk.client.pem_file import pem_file

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from stellwerk.models.extender_spec import Extender, ExtenderTLSConfig, SecretReference

_CERTIFICATE: Final = "tls.crt"
_KEY: Final = "tls.key"
_ROOTS: Final = "ca.crt"


@dataclass(frozen=True, slots=True)
class TlsMaterial:
    """PEM texts; empty where there is none."""

    certificate: bytes = b""
    key: bytes = b""
    roots: bytes = b""


async def extender_context(
    spec: Extender, get_object: Callable[[str], Awaitable[dict[str, Any]]]
) -> ssl.SSLContext | None:
    """Return the context for connections to an extender; None if they are not encrypted.

    As in kube-scheduler, `enableHTTPS` without root certificates trusts any certificate.

    Raises:
        OSError, ValueError: certificates cannot be read (ssl.SSLError is an OSError).
        ApiError: the Secret cannot be read.
    """
    if not spec.url_prefix.startswith("https"):
        return None
    config = spec.tls_config
    material = TlsMaterial() if config is None else await _material(config, get_object)
    insecure = config is not None and config.insecure
    if spec.enable_https and not material.roots:
        insecure = True
    return await asyncio.to_thread(_context, material, insecure=insecure)


async def _material(
    config: ExtenderTLSConfig, get_object: Callable[[str], Awaitable[dict[str, Any]]]
) -> TlsMaterial:
    if config.secret_ref is not None:
        return _from_secret(await get_object(_secret_path(config.secret_ref)), config.secret_ref)
    return await asyncio.to_thread(
        lambda: TlsMaterial(
            _pem(config.cert_data, config.cert_file),
            _pem(config.key_data, config.key_file),
            _pem(config.ca_data, config.ca_file),
        )
    )


def _secret_path(reference: SecretReference) -> str:
    namespace, name = quote(reference.namespace, safe=""), quote(reference.name, safe="")
    return f"/api/v1/namespaces/{namespace}/secrets/{name}"


def _from_secret(secret: Mapping[str, Any], reference: SecretReference) -> TlsMaterial:
    data = secret.get("data") or {}
    certificate, key, roots = (_decoded(data.get(name)) for name in (_CERTIFICATE, _KEY, _ROOTS))
    if bool(certificate) != bool(key):
        present, missing = (_CERTIFICATE, _KEY) if certificate else (_KEY, _CERTIFICATE)
        name = f"{reference.namespace}/{reference.name}"
        raise ValueError(f"the Secret {name} has {present} but not {missing}")
    return TlsMaterial(certificate, key, roots)


def _pem(data: str, file: str) -> bytes:
    """Data goes before files."""
    if data:
        return _decoded(data)
    if not file:
        return b""
    with open(file, "rb") as stream:  # noqa: PTH123 a path the user wrote, opened once
        return stream.read()


def _decoded(data: str | None) -> bytes:
    try:
        return base64.b64decode(data or "", validate=True)
    except binascii.Error as error:
        raise ValueError(f"not base64: {error}") from error


def _context(material: TlsMaterial, *, insecure: bool) -> ssl.SSLContext:
    roots = material.roots.decode() if material.roots else None
    context = ssl.create_default_context(cadata=roots)
    # Python 3.13 began to ask for extensions that many authorities lack; Go does not.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if material.certificate:
        _load_pair(context, material)
    return context


def _load_pair(context: ssl.SSLContext, material: TlsMaterial) -> None:
    """Load the client certificate; the ssl module takes it from a file only."""
    with pem_file(material.certificate + b"\n" + material.key) as path:
        context.load_cert_chain(path)
