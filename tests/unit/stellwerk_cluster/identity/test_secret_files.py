import stat
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.identity.certificates import CertificateAuthority
from stellwerk_cluster.identity.secret_files import SecretFiles
from stellwerk_cluster.identity.service_tokens import TokenError, TokenSpec
from stellwerk_cluster.registry.data_directory import DataDirectory
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.errors import ConfigurationError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ISSUER = ("https://kubernetes.default.svc",)


@contextmanager
def kept_cluster(directory: Path) -> Iterator[EmbeddedCluster]:
    data = DataDirectory(directory)
    try:
        options = ClusterOptions(data_directory=data, tls=True)
        yield EmbeddedCluster(0, clock=VirtualClock(), options=options)
    finally:
        data.close()


def account(cluster: EmbeddedCluster) -> TokenSpec:
    kind = cluster.api.kinds.resource("serviceaccounts")
    found = cluster.api.ensure(kind, "default", {"metadata": {"name": "robot"}})
    return TokenSpec(found.obj, ISSUER, 3600)


def test_credentials_are_good_after_a_restart(tmp_path: Path) -> None:
    with kept_cluster(tmp_path / "data") as first:
        token = first.identity.authenticator.tokens.issue(account(first))[0]
    with kept_cluster(tmp_path / "data") as second:
        checked = second.identity.authenticator.tokens.check(token)
    assert checked.user.name == "system:serviceaccount:default:robot"
    assert second.identity.admin_token == first.identity.admin_token
    assert second.authority is not None
    assert first.authority is not None
    assert second.authority.certificate == first.authority.certificate


def test_without_a_directory_nothing_is_kept() -> None:
    first, second = (EmbeddedCluster(0, clock=VirtualClock()) for _ in range(2))
    token = first.identity.authenticator.tokens.issue(account(first))[0]
    account(second)
    with pytest.raises(TokenError):
        second.identity.authenticator.tokens.check(token)
    assert first.identity.admin_token != second.identity.admin_token


def test_only_its_user_reads_a_secret(tmp_path: Path) -> None:
    directory = tmp_path / "secrets"
    SecretFiles(directory).keep("name", b"secret")
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / "name").stat().st_mode) == 0o600
    assert [each.name for each in directory.iterdir()] == ["name"]


def test_an_authority_is_made_anew_before_it_ends(tmp_path: Path) -> None:
    kept = SecretFiles(tmp_path)
    first = CertificateAuthority(NOW, kept).certificate
    assert CertificateAuthority(NOW + timedelta(days=330), kept).certificate == first
    second = CertificateAuthority(NOW + timedelta(days=340), kept).certificate
    assert second != first
    assert CertificateAuthority(NOW + timedelta(days=340), kept).certificate == second


@pytest.mark.parametrize("name", ["service-account-key.pem", "authority.pem", "admin-token"])
@pytest.mark.parametrize("content", [b"", b"\xff", b"x" * 100_000])
def test_a_file_that_holds_no_secret_is_refused_in_one_line(
    tmp_path: Path, name: str, content: bytes
) -> None:
    with kept_cluster(tmp_path / "data"):
        pass
    (tmp_path / "data" / "secrets" / name).write_bytes(content)
    with (
        pytest.raises(ConfigurationError, match=f"{name} is damaged") as caught,
        kept_cluster(tmp_path / "data"),
    ):
        pass
    assert "\n" not in str(caught.value)
