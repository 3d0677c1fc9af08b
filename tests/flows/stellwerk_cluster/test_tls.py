"""The API over TLS: the cluster's own authority, and clients that show a certificate."""

import http.client
import json
import ssl
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from typing_extensions import override

from stellwerk.client.credentials import load_credentials
from stellwerk.client.kubernetes import KubernetesClient
from stellwerk.metrics import Metrics
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.identity.assembly import IdentityOptions
from stellwerk_cluster.identity.certificates import CertificateAuthority, KeyPair
from stellwerk_kube.clock import SystemClock
from tests.support.kubectls import Kubectl, newest, program_of
from tests.support.served_cluster import served

WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


def secured(client_authorities: bytes = b"") -> EmbeddedCluster:
    return EmbeddedCluster(
        1,
        options=ClusterOptions(
            tls=True,
            client_authorities=client_authorities,
            identity=IdentityOptions("rbac"),
        ),
    )


def connected(
    cluster: EmbeddedCluster, directory: Path, shown: KeyPair | None
) -> http.client.HTTPSConnection:
    assert cluster.authority is not None
    context = ssl.create_default_context(cadata=cluster.authority.certificate.decode())
    if shown is not None:
        file = directory / "client.pem"
        file.write_bytes(shown.key + shown.certificate)
        context.load_cert_chain(file)
    address = urlsplit(cluster.url)
    return http.client.HTTPSConnection(
        address.hostname or "", address.port, context=context, timeout=10
    )


def asked(connection: http.client.HTTPSConnection) -> tuple[int, Any]:
    connection.request("POST", WHO, b"{}", {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def whoami(cluster: EmbeddedCluster, directory: Path, shown: KeyPair | None) -> tuple[int, Any]:
    connection = connected(cluster, directory, shown)
    try:
        return asked(connection)
    finally:
        connection.close()


def test_a_certificate_names_a_user_and_its_groups(tmp_path: Path) -> None:
    with served(secured()) as cluster:
        assert cluster.authority is not None
        shown = cluster.authority.issue_client("carol", ["system:masters", "dev"])
        status, answer = whoami(cluster, tmp_path, shown)
        assert status == 201
        assert answer["status"]["userInfo"] == {
            "username": "carol",
            "groups": ["system:masters", "dev", "system:authenticated"],
        }
        assert whoami(cluster, tmp_path, None)[0] == 403, "anonymous"


def test_certificates_of_a_further_authority_are_good_where_it_is_named(tmp_path: Path) -> None:
    other = CertificateAuthority(SystemClock().now())
    shown = other.issue_client("dave")
    with served(secured(other.certificate)) as cluster:
        assert whoami(cluster, tmp_path, shown)[0] == 201
    with (
        served(secured()) as cluster,
        pytest.raises(OSError, match=r"(?i)alert|reset|pipe|closed|EOF"),
    ):
        whoami(cluster, tmp_path, shown)


class AheadClock(SystemClock):
    """The machine's clock, some days on."""

    ahead = timedelta()

    @override
    def now(self) -> datetime:
        return super().now() + self.ahead


def test_an_expired_certificate_is_refused_on_the_connection_that_it_opened(
    tmp_path: Path,
) -> None:
    clock = AheadClock()
    options = ClusterOptions(tls=True, identity=IdentityOptions("rbac"))
    with served(EmbeddedCluster(1, clock=clock, options=options)) as cluster:
        assert cluster.authority is not None
        shown = cluster.authority.issue_client("carol", ["system:masters"])
        connection = connected(cluster, tmp_path, shown)
        assert asked(connection)[0] == 201
        clock.ahead = timedelta(days=366)
        opened = connection.sock
        assert asked(connection)[0] == 401
        assert connection.sock is opened
        connection.close()


async def test_the_scheduler_follows_the_kubeconfig(tmp_path: Path) -> None:
    async with secured() as cluster:
        cluster.write_kubeconfig(tmp_path / "kubeconfig")
        async with KubernetesClient(
            await load_credentials(str(tmp_path / "kubeconfig")),
            clock=SystemClock(),
            metrics=Metrics(),
            jitter=lambda: 0.0,
        ) as client:
            nodes = await client.get("/api/v1/nodes")
    assert [each["metadata"]["name"] for each in nodes["items"]] == ["node-1"]


def test_kubectl_follows_the_kubeconfig(tmp_path: Path) -> None:
    program = program_of(newest())
    with served(secured()) as cluster:
        cluster.write_kubeconfig(tmp_path / "kubeconfig")
        assert (tmp_path / "kubeconfig").stat().st_mode & 0o077 == 0, "for its owner's eyes"
        kubectl = Kubectl(program, tmp_path, tmp_path / "kubeconfig")
        assert "stellwerk-admin" in kubectl("auth", "whoami")
        other = CertificateAuthority(SystemClock().now()).certificate.decode()
        (tmp_path / "other.pem").write_text(other)
        flag = f"--certificate-authority={tmp_path / 'other.pem'}"
        refused = kubectl.run("get", "nodes", flag)
    assert "certificate signed by unknown authority" in refused.text


def test_servers_beside_the_api_read_whom_to_trust() -> None:
    other = CertificateAuthority(SystemClock().now())
    cluster = secured(other.certificate)
    assert cluster.authority is not None
    own = cluster.authority.certificate.decode()
    name = "extension-apiserver-authentication"
    published = cluster.api.find("configmaps", "kube-system", name)
    assert published is not None
    assert published["data"] == {
        "client-ca-file": own + other.certificate.decode(),
        "requestheader-client-ca-file": own,
        "requestheader-allowed-names": '["front-proxy-client"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-uid-headers": '["X-Remote-Uid"]',
        "requestheader-username-headers": '["X-Remote-User"]',
    }
