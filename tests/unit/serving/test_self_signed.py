"""The certificate that the port makes itself, on machines of any name."""

from datetime import UTC, datetime

import pytest
from cryptography import x509

from stellwerk.serving.self_signed import self_signed

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("host", "names"),
    [
        pytest.param("node-1", ["node-1", "localhost"], id="a name"),
        pytest.param("x" * 64, ["x" * 64, "localhost"], id="the longest name"),
        pytest.param("", ["localhost"], id="no name"),
        pytest.param("höst", ["localhost"], id="a name that no certificate can hold"),
    ],
)
def test_it_is_for_the_host_and_for_loopback(host: str, names: list[str]) -> None:
    certificate = x509.load_pem_x509_certificate(self_signed(host, NOW))
    kind = x509.SubjectAlternativeName
    found = certificate.extensions.get_extension_for_class(kind).value
    assert found.get_values_for_type(x509.DNSName) == names
    assert [str(each) for each in found.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]
