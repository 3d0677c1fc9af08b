"""What is read from kubeconfigs and from a pod's service account."""

import base64
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from stellwerk.client.access import Access, InCluster, Kubeconfig, destinations_from
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.destinations import EVERYWHERE, Destinations, UrlPrefix
from stellwerk_kube.errors import ConfigurationError
from tests.support.fake_api import kubeconfig
from tests.support.repository import ROOT

URL = "https://cluster.example:6443"
ENVIRON = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


async def load(*documents: dict[str, Any], directory: Path) -> Access:
    paths = []
    for number, document in enumerate(documents):
        path = directory / f"config-{number}"
        path.write_bytes(orjson.dumps(document))
        paths.append(str(path))
    return await Kubeconfig(os.pathsep.join(paths), None, VirtualClock()).load()


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("user", "authorization"),
    [
        pytest.param({}, None, id="nothing"),
        pytest.param({"token": "t", "username": "u", "password": "p"}, "Bearer t", id="token"),
        pytest.param({"token": "t", "tokenFile": "none"}, "Bearer t", id="token before its file"),
        pytest.param({"username": "u", "password": "p"}, "Basic dTpw", id="password"),
        pytest.param({"username": "u"}, None, id="a name alone"),
    ],
)
async def test_who_we_are(user: dict[str, Any], authorization: str | None, tmp_path: Path) -> None:
    access = await load(kubeconfig(URL, user), directory=tmp_path)
    assert access == Access(
        URL, authorization, stale_after_seconds=60.0 if "tokenFile" in user else None
    )


async def test_where_the_cluster_is_and_whom_to_trust(tmp_path: Path) -> None:
    cluster = {
        "certificate-authority": "ca.crt",
        "insecure-skip-tls-verify": True,
        "tls-server-name": "name",
        "proxy-url": "http://proxy:3128",
    }
    access = await load(kubeconfig(f"{URL}/", {"token": "t"}, **cluster), directory=tmp_path)
    assert access == Access(
        URL,
        "Bearer t",
        tmp_path / "ca.crt",
        verify=False,
        tls_server_name="name",
        proxy="http://proxy:3128",
        stale_after_seconds=60.0,
    )


async def test_a_user_may_act_for_another_one(tmp_path: Path) -> None:
    user = {
        "token": "t",
        "as": "jane",
        "as-uid": "7",
        "as-groups": ["readers", "writers"],
        "as-user-extra": {"a/b": ["1", "2"]},
    }
    access = await load(kubeconfig(URL, user), directory=tmp_path)
    assert access.impersonation == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "readers"),
        ("Impersonate-Group", "writers"),
        ("Impersonate-Extra-a%2Fb", "1"),
        ("Impersonate-Extra-a%2Fb", "2"),
    )


async def test_certificates_are_files_beside_the_kubeconfig_or_data_in_it(tmp_path: Path) -> None:
    user = {
        "client-certificate": "pki/client.crt",
        "client-key": "ignored",
        "client-key-data": encoded("the key"),
    }
    cluster = {"certificate-authority-data": encoded("the authority")}
    access = await load(kubeconfig(URL, user, **cluster), directory=tmp_path)
    assert access.authority == b"the authority"
    assert access.certificate == tmp_path / "pki" / "client.crt"
    assert access.key == b"the key"
    assert access.stale_after_seconds == 60


async def test_paths_begin_at_the_file_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "token").write_text("from there\n")
    first = kubeconfig(URL)
    del first["users"]
    second = tmp_path / "other" / "config"
    second.write_bytes(orjson.dumps(kubeconfig("http://x", {"tokenFile": "token"})))
    (tmp_path / "config").write_bytes(orjson.dumps(first))
    paths = os.pathsep.join((str(tmp_path / "config"), str(second)))
    access = await Kubeconfig(paths, None, VirtualClock()).load()
    assert (access.server, access.authorization) == (URL, "Bearer from there")


@pytest.mark.parametrize(
    ("user", "complaint"),
    [
        pytest.param({"tokenFile": "none"}, "No such file.*none", id="no token file"),
        pytest.param(
            {"as-groups": ["readers"]},
            "names no user",
            id="a group of nobody",
        ),
        pytest.param(
            {"client-certificate-data": "?"},
            "client-certificate-data is not base64",
            id="not base64",
        ),
        pytest.param(
            {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./nobody"}},
            "credential plugin ./nobody: .*No such file",
            id="no plugin",
        ),
    ],
)
async def test_what_cannot_be_used_is_one_clear_line(
    user: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=f"cannot use kubeconfig .*{complaint}") as caught:
        await load(kubeconfig(URL, user), directory=tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("files", "namespace"),
    [({"namespace": "stellwerk\n"}, "stellwerk"), ({"namespace": ""}, None), ({}, None)],
    ids=["named", "empty", "no file"],
)
async def test_a_pod_knows_its_namespace_and_can_do_without(
    files: dict[str, str], namespace: str | None, tmp_path: Path
) -> None:
    environ = {**ENVIRON, "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    access = await InCluster(environ, service_account(tmp_path, files)).load()
    assert access.namespace == namespace


def service_account(directory: Path, contents: dict[str, str] | None = None) -> Path:
    for name, content in ({"token": "t\n", "ca.crt": "ca"} | (contents or {})).items():
        (directory / name).write_text(content)
    return directory


@pytest.mark.parametrize(
    ("host", "server"),
    [("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")],
)
async def test_a_pod_uses_its_service_account(host: str, server: str, tmp_path: Path) -> None:
    environ = {**ENVIRON, "KUBERNETES_SERVICE_HOST": host}
    access = await InCluster(environ, service_account(tmp_path)).load()
    assert access == Access(server, "Bearer t", tmp_path / "ca.crt", stale_after_seconds=60.0)


@pytest.mark.parametrize(
    ("environ", "files"),
    [
        pytest.param(ENVIRON, {"token": "\n"}, id="empty token"),
        pytest.param(ENVIRON, {"ca.crt": ""}, id="empty authority"),
        pytest.param({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, {}, id="no port"),
    ],
)
async def test_half_a_service_account_is_refused(
    environ: dict[str, str], files: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match="cannot use this pod's service account"):
        await InCluster(environ, service_account(tmp_path, files)).load()


def test_the_operator_does_not_load_what_only_plugins_need() -> None:
    program = (
        "import sys, stellwerk.app\n"
        "print('kopf' in sys.modules, 'kubernetes_asyncio' in sys.modules)\n"
        "import kubernetes_asyncio.config"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "True False\n"


def test_a_pod_calls_services_by_name_and_what_is_granted(tmp_path: Path) -> None:
    access = Access("https://10.96.0.1:443")
    (tmp_path / "token").write_text("t")
    (tmp_path / "namespace").write_text("stellwerk\n")
    (tmp_path / "resolv.conf").write_text("search stellwerk.svc.k8s.corp svc.k8s.corp k8s.corp\n")
    granted = (UrlPrefix.parse("http://127.0.0.1:8888"),)
    found = destinations_from(access, granted, tmp_path, tmp_path / "resolv.conf")
    assert found == Destinations(
        granted=granted, namespace="stellwerk", domain="k8s.corp", server=("10.96.0.1", 443)
    )


def test_outside_a_cluster_everything_is_called_or_what_is_granted(tmp_path: Path) -> None:
    access = Access("http://localhost:8001")
    assert destinations_from(access, (), tmp_path) is EVERYWHERE
    granted = (UrlPrefix.parse("http://127.0.0.1:8888"),)
    found = destinations_from(access, granted, tmp_path)
    assert found == Destinations(granted=granted, domain="", server=("localhost", 8001))


def test_in_a_static_pod_nothing_is_called_that_is_not_granted(tmp_path: Path) -> None:
    """It has no service account, and the network of a node of the control plane."""
    access = Access("https://10.0.0.2:6443")
    found = destinations_from(access, (), tmp_path, in_pod=True)
    assert found == Destinations(domain="", server=("10.0.0.2", 6443))
    for url in ("http://127.0.0.1:2381/metrics", "https://extender.example", "http://svc.team.svc"):
        assert "--extender-allow" in found.refusal(url)


async def test_a_section_that_is_no_list_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="contexts is not a list"):
        await load({"current-context": "c", "contexts": True}, directory=tmp_path)


def test_an_auth_provider_needs_no_home(tmp_path: Path) -> None:
    """In a process of its own: kubernetes_asyncio asks for the home when it is imported."""
    file = tmp_path / "config"
    user = {"auth-provider": {"name": "oidc", "config": {"id-token": "a.b.c"}}}
    file.write_bytes(orjson.dumps(kubeconfig(URL, user)))
    script = f"""
import asyncio, os
from tests.support.nameless_user import install
install()
from stellwerk.client.access import Kubeconfig
from stellwerk_kube.clock import VirtualClock
try:
    asyncio.run(Kubeconfig({str(file)!r}, None, VirtualClock()).load())
except Exception as error:
    print(type(error).__name__, error)
print("HOME" in os.environ)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert "home" not in done.stdout.replace("HOME", ""), done.stdout
    assert done.stdout.splitlines()[-1] == "False", "credential plugins inherit the environment"
