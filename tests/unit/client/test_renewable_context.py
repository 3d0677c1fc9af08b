"""The key by which a server is known: what is taken of its certificate."""

import hashlib
import ssl
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from stellwerk.client.renewable_context import fingerprint
from stellwerk.serving.self_signed import self_signed

NOW = datetime(2026, 11, 23, tzinfo=UTC)


@pytest.fixture
def certificate() -> x509.Certificate:
    return x509.load_pem_x509_certificate(self_signed("stellwerk-0", NOW))


def test_it_is_the_hash_of_the_public_key(certificate: x509.Certificate) -> None:
    key = certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    der = certificate.public_bytes(serialization.Encoding.DER)
    assert fingerprint(der) == f"sha256:{hashlib.sha256(key).hexdigest()}"


def test_what_is_no_certificate_is_refused(certificate: x509.Certificate) -> None:
    der = certificate.public_bytes(serialization.Encoding.DER)
    for cut in range(0, 200, 7):
        with pytest.raises(ValueError, match=r"not a certificate"):
            fingerprint(der[:cut])
    with pytest.raises(ValueError, match=r"."):
        ssl.PEM_cert_to_DER_cert("no PEM")
