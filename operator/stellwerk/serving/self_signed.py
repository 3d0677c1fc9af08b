"""A certificate made in memory, for a port that is given none.

`serving.certificates` runs this file as a script in that case, so that the cryptography library,
11 MiB, is loaded in a process that ends at once; where no process can be started it is imported.
Invariants: the key is in no file and no argument, it comes by a pipe; nothing here imports
Stellwerk.
"""

import ipaddress
import sys
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_VALID: Final = timedelta(days=365)


def self_signed(host: str, now: datetime) -> bytes:
    """Return a key and a certificate for this host and loopback, in PEM, valid for a year."""
    key = ec.generate_private_key(ec.SECP256R1())
    common_name = f"{host[:40]}@{int(now.timestamp())}"
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    # A machine may have no name, or one that no certificate can hold. No client connects by it.
    names = [
        *([x509.DNSName(host)] if host and host.isascii() else ()),
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        x509.IPAddress(ipaddress.ip_address("::1")),
    ]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(
        encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private + certificate.public_bytes(encoding)


if __name__ == "__main__":
    _host, _now = sys.argv[1:]
    sys.stdout.buffer.write(self_signed(_host, datetime.fromtimestamp(float(_now), UTC)))
