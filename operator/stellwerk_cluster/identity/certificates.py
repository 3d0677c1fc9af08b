"""The cluster's own certificate authority, and the TLS certificates that it signs.

Made by every cluster that serves TLS, unless its directory keeps one. Invariant: private keys are
on disk only while they are loaded, except those in that directory.
"""

from __future__ import annotations

import ipaddress
import ssl
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from stellwerk_cluster.identity.secret_files import SecretFiles

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

_VALID_DAYS: Final = 365
"""Days for which a certificate is valid: a year, as kubeadm has it."""
_EARLY: Final = timedelta(days=30)
"""An authority that is good for less is made anew."""
_FILE: Final = "authority.pem"
_EARLIER: Final = timedelta(minutes=5)
"""Clients whose clock is a little late accept the certificate, too."""
_NAMES: Final = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, both as PEM."""

    certificate: bytes
    key: bytes


class CertificateAuthority:
    """Signs the certificates of one cluster."""

    def __init__(self, now: datetime, kept: SecretFiles | None = None) -> None:
        """The authority that is kept, or a new one whose certificate is good for a year.

        Raises:
            ConfigurationError: the one that is kept cannot be used.
        """
        self._now = now
        self._name = _name("stellwerk-embedded-cluster")
        kept = kept or SecretFiles()
        if not self._load(kept):
            self._make()
            kept.keep(_FILE, _private_pem(self._key) + self.certificate)

    def _load(self, kept: SecretFiles) -> bool:
        """Take the authority that is kept; False: none is, or it will soon be good no more."""
        content = kept.find(_FILE)
        if content is None:
            return False
        try:
            key = serialization.load_pem_private_key(content, None)
            certificate = x509.load_pem_x509_certificate(content)
        except (ValueError, TypeError):
            raise kept.damaged(_FILE) from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise kept.damaged(_FILE)
        if self._now + _EARLY > certificate.not_valid_after_utc:
            return False
        self._key, self._certificate = key, certificate
        return True

    def _make(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        usage = x509.BasicConstraints(ca=True, path_length=0)
        built = self._builder(self._name, self._key.public_key())
        self._certificate = (
            built.add_extension(usage, critical=True)
            .add_extension(_key_usage(signs=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def certificate(self) -> bytes:
        """The certificate that clients check the server by, as PEM."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def issue_client(self, user_name: str, groups: Sequence[str] = ()) -> KeyPair:
        """A certificate by which a client is that user, in those groups."""
        return self._issue(_name(user_name, groups), ExtendedKeyUsageOID.CLIENT_AUTH)

    def serving_context(self, host: str, client_authorities: bytes = b"") -> ssl.SSLContext:
        """TLS for a server on a host, which asks clients for a certificate and takes none, too."""
        addresses = {"127.0.0.1", "::1", "10.0.0.1", *([host] if _is_address(host) else [])}
        names = {*_NAMES, *([] if _is_address(host) else [host])}
        alternatives = x509.SubjectAlternativeName(
            [
                *(x509.DNSName(each) for each in sorted(names)),
                *(x509.IPAddress(ipaddress.ip_address(each)) for each in sorted(addresses)),
            ]
        )
        pair = self._issue(_name("kube-apiserver"), ExtendedKeyUsageOID.SERVER_AUTH, alternatives)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory(prefix="stellwerk-") as directory:
            file = Path(directory) / "serving.pem"
            file.touch(mode=0o600)
            file.write_bytes(pair.key + pair.certificate)
            context.load_cert_chain(file)
        trusted = self.certificate + client_authorities
        context.load_verify_locations(cadata=trusted.decode("ascii"))
        context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def _issue(
        self,
        name: x509.Name,
        usage: x509.ObjectIdentifier,
        alternatives: x509.SubjectAlternativeName | None = None,
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        built = (
            self._builder(name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        )
        if alternatives is not None:
            built = built.add_extension(alternatives, critical=False)
        certificate = built.sign(self._key, hashes.SHA256())
        return KeyPair(
            certificate.public_bytes(serialization.Encoding.PEM),
            _private_pem(key),
        )

    def _builder(
        self, name: x509.Name, public_key: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - _EARLIER)
            .not_valid_after(self._now + timedelta(days=_VALID_DAYS))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(authority, critical=False)
        )


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _name(common: str, organizations: Sequence[str] = ()) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not signs,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
