"""Fingerprints of pods are those that exporters write."""

import pytest

from stellwerk_plugins.numa.fingerprint import fingerprint, xxh64


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(b"", 0xEF46DB3751D8E999, id="nothing"),
        pytest.param(b"a", 0xD24EC4F1A98C6E5B, id="a byte"),
        pytest.param(b"abc", 0x44BC2CF5AD770999, id="three bytes"),
        pytest.param(
            b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1, id="more than a stripe"
        ),
    ],
)
def test_known_hashes(data: bytes, expected: int) -> None:
    assert xxh64(data) == expected


def test_the_order_of_pods_does_not_matter() -> None:
    pods = [("default", "a"), ("default", "b"), ("web", "a")]
    assert fingerprint(pods) == fingerprint(pods[::-1])
    assert fingerprint(pods) != fingerprint(pods[:2])
    assert fingerprint(pods).startswith("pfp0v001")
    assert len(fingerprint(pods)) == 24
