"""The way to the operator's port: over a URL, or forwarded by kubectl to the lease's holder."""

import argparse
import asyncio
import os
import signal
import ssl
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from stellwerk.answers.profile_history import ProfileHistory
from stellwerk.client.lease import HOLDER_ANNOTATION, POD_ANNOTATION, PUBLIC_KEY_ANNOTATION
from stellwerk.client.operator_port import NoAnswer, OperatorPort, PortRefusal
from stellwerk.client.renewable_context import fingerprint
from stellwerk.serving.self_signed import self_signed
from stellwerk_cli.commands import operator_port
from stellwerk_cli.commands.operator_port import LeaderPort, open_port
from stellwerk_cli.commands.port_arguments import PortAddress, add_port_arguments, port_address
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.identity.rbac import RBAC_GROUP
from stellwerk_kube.clock import SystemClock
from stellwerk_kube.errors import ConfigurationError, SchedulerError, UnreachableError
from tests.support.findings import hold
from tests.support.rights import ENFORCED, operator_token, token_of, with_token


async def operator(answer: web.Response) -> tuple[web.AppRunner, str, list[web.Request]]:
    """A port that gives one answer, its URL, and what was asked."""
    asked: list[web.Request] = []

    async def handle(request: web.Request) -> web.Response:
        asked.append(request)
        return answer

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}", asked


async def test_no_token_is_sent_over_plain_http() -> None:
    runner, url, asked = await operator(web.json_response({"a": 1}))
    try:
        async with open_port(PortAddress(url=url)) as port:
            assert await port.ask_json("/queue") == {"a": 1}
        assert "Authorization" not in asked[0].headers
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        pytest.param(
            {"status": 503, "text": '{"error": "e", "leader": "other_1"}'}, "other_1", id="standby"
        ),
        pytest.param(
            {"status": 404, "text": "there is no pod"}, "^there is no pod$", id="not found"
        ),
        pytest.param({"status": 200, "text": "no JSON"}, "no answer", id="something else"),
    ],
)
async def test_what_is_no_result_is_one_line(answer: dict[str, object], text: str) -> None:
    response = web.Response(status=int(str(answer["status"])), text=str(answer["text"]))
    runner, url, _ = await operator(response)
    try:
        async with open_port(PortAddress(url=url)) as port:
            with pytest.raises(SchedulerError, match=text) as raised:
                await port.ask_json("/queue")
        assert "\n" not in str(raised.value)
    finally:
        await runner.cleanup()


def fake_kubectl(directory: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kubectl that writes its arguments down and then runs a script."""
    path, log = directory / "kubectl", directory / "arguments"
    path.write_text(f'#!/bin/sh\necho "$@" > {log}\n{script}\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")
    return log


@asynccontextmanager
async def cluster_at(kubeconfig: Path) -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(1) as cluster:
        cluster.write_kubeconfig(kubeconfig)
        yield cluster


def lease(holder: str, public_key: str = "sha256:0") -> dict[str, object]:
    annotations = {PUBLIC_KEY_ANNOTATION: public_key} if public_key else {}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "stellwerk", "namespace": "default", "annotations": annotations},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15},
    }


async def test_a_port_is_forwarded_to_the_pod_that_holds_the_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = 'echo "Forwarding from 127.0.0.1:1 -> 10259"\nexec sleep 60'
    log = fake_kubectl(tmp_path, script, monkeypatch)
    async with cluster_at(tmp_path / "kubeconfig") as cluster:
        leases = cluster.api.kinds.resource("leases", "coordination.k8s.io")
        cluster.api.create(leases, "default", lease("stellwerk-7d-x2_4f0c"))
        config = tmp_path / "kubeconfig"
        address = PortAddress(kubeconfig=str(config), lease_namespace="default")
        async with open_port(address) as port:
            # No operator is behind it: what counts is where the way leads.
            with pytest.raises(SchedulerError, match="no answer"):
                await port.ask_json("/queue")
    assert log.read_text().split() == [
        f"--kubeconfig={config}",
        "--namespace=default",
        "port-forward",
        "pod/stellwerk-7d-x2",
        ":10259",
        "--address=127.0.0.1",
    ]


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ('echo "Forwarding from 127.0.0.1:1 -> 10259"\nexec sleep 60', "no answer"),
        ('echo "no such pod" >&2\nexit 1', "no such pod"),
        ('echo "something else"\nexec sleep 60', "cannot forward"),
    ],
    ids=["it forwards", "it fails", "it prints something else"],
)
async def test_what_kubectl_leaves_in_the_background_is_not_waited_for(
    script: str, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a credential plugin does that starts an agent, which has kubectl's standard error."""
    agent = tmp_path / "agent.pid"
    fake_kubectl(tmp_path, f"sleep 60 >/dev/null &\necho $! > {agent}\n{script}", monkeypatch)
    async with cluster_at(tmp_path / "kubeconfig") as cluster:
        leases = cluster.api.kinds.resource("leases", "coordination.k8s.io")
        cluster.api.create(leases, "default", lease("stellwerk-7d-x2_4f0c"))
        address = PortAddress(kubeconfig=str(tmp_path / "kubeconfig"), lease_namespace="default")
        try:
            with pytest.raises(SchedulerError, match=error):
                async with asyncio.timeout(20), open_port(address) as port:
                    await port.ask_json("/queue")
        finally:
            os.kill(int(agent.read_text()), signal.SIGKILL)


@dataclass
class TlsPort:
    """A port with a certificate that is signed by itself, and what it was sent."""

    number: int
    public_key: str
    asked: list[web.Request]


@asynccontextmanager
async def tls_port(directory: Path, name: str) -> AsyncIterator[TlsPort]:
    pem = directory / f"{name}.pem"
    pem.write_bytes(self_signed(name, SystemClock().now()))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pem)
    certificate = pem.read_text()
    der = ssl.PEM_cert_to_DER_cert(certificate[certificate.index("-----BEGIN CERT") :])
    asked: list[web.Request] = []

    async def handle(request: web.Request) -> web.Response:
        asked.append(request)
        return web.json_response({"invented": True})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    try:
        yield TlsPort(runner.addresses[0][1], fingerprint(der), asked)
    finally:
        await runner.cleanup()


async def test_a_certificate_that_is_not_trusted_is_named_with_the_option_that_accepts_it(
    tmp_path: Path,
) -> None:
    async with tls_port(tmp_path, "own") as port, aiohttp.ClientSession() as session:
        asked = OperatorPort(session, f"https://127.0.0.1:{port.number}")
        with pytest.raises(NoAnswer, match=r"not trusted \(.*\); --insecure-skip-tls-verify"):
            await asked.ask_json("/queue")
    assert port.asked == []


@asynccontextmanager
async def forwarded_to(
    port: TlsPort, directory: Path, public_key: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[PortAddress]:
    """A cluster whose lease names a key, a token, and a kubectl that leads to some port."""
    script = f'echo "Forwarding from 127.0.0.1:{port.number} -> 10259"\nexec sleep 60'
    fake_kubectl(directory, script, monkeypatch)
    config = directory / "kubeconfig"
    async with cluster_at(config) as cluster:
        leases = cluster.api.kinds.resource("leases", "coordination.k8s.io")
        cluster.api.create(leases, "default", lease("stellwerk-1_a", public_key))
        yield PortAddress(kubeconfig=str(config), lease_namespace="default")


async def test_the_token_is_sent_to_the_key_that_the_lease_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        tls_port(tmp_path, "leader") as leader,
        forwarded_to(leader, tmp_path, leader.public_key, monkeypatch) as address,
        open_port(address) as port,
    ):
        assert await port.ask_json("/queue") == {"invented": True}
    (asked,) = leader.asked
    token = asked.headers["Authorization"].removeprefix("Bearer ")
    assert token in (tmp_path / "kubeconfig").read_text()


async def test_another_key_gets_neither_token_nor_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        tls_port(tmp_path, "leader") as leader,
        tls_port(tmp_path, "stranger") as stranger,
        # The lease that the API server has, and a pod or a local process that answers instead.
        forwarded_to(stranger, tmp_path, leader.public_key, monkeypatch) as address,
        open_port(address) as port,
    ):
        with pytest.raises(SchedulerError, match="the expected public key"):
            await port.ask_json("/queue")
        with pytest.raises(SchedulerError, match="the expected public key"):
            await port.ask_json("/what-if", {})
    hold("requests to another key", len(stranger.asked))


async def test_a_lease_without_a_key_is_refused_with_the_flag_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        tls_port(tmp_path, "old") as old,
        forwarded_to(old, tmp_path, "", monkeypatch) as address,
    ):
        with pytest.raises(SchedulerError, match="--insecure-skip-tls-verify"):
            async with open_port(address):
                pass
        assert not old.asked
        async with open_port(replace(address, verify=False)) as port:
            assert await port.ask_json("/queue") == {"invented": True}
    assert len(old.asked) == 1


async def test_a_kubectl_that_says_something_else_and_goes_on_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = 'echo "it has a reason" >&2; echo "a line of a newer kubectl"; exec sleep 600'
    fake_kubectl(tmp_path, script, monkeypatch)
    async with cluster_at(tmp_path / "kubeconfig") as cluster:
        leases = cluster.api.kinds.resource("leases", "coordination.k8s.io")
        cluster.api.create(leases, "default", lease("stellwerk-7d-x2_4f0c"))
        config = str(tmp_path / "kubeconfig")
        address = PortAddress(kubeconfig=config, lease_namespace="default")
        with pytest.raises(UnreachableError, match=r"cannot forward a port .*: it has a reason"):
            async with asyncio.timeout(60), open_port(address):
                pass


async def test_kubectl_s_refusal_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_kubectl(tmp_path, 'echo "pods is forbidden" >&2; exit 1', monkeypatch)
    async with cluster_at(tmp_path / "kubeconfig") as cluster:
        leases = cluster.api.kinds.resource("leases", "coordination.k8s.io")
        cluster.api.create(leases, "default", lease("stellwerk-1_a"))
        address = PortAddress(kubeconfig=str(tmp_path / "kubeconfig"), lease_namespace="default")
        with pytest.raises(SchedulerError, match="pods is forbidden"):
            async with open_port(address):
                pass


async def test_without_a_holder_there_is_no_way(tmp_path: Path) -> None:
    async with cluster_at(tmp_path / "kubeconfig"):
        address = PortAddress(kubeconfig=str(tmp_path / "kubeconfig"))
        with pytest.raises(SchedulerError, match="no replica holds"):
            async with open_port(address):
                pass


IN_PLACE = ("kube-system", "kube-scheduler")
OWN = ("stellwerk", "stellwerk")
EARLIER, LATER = "2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:02.000000Z"


def hold_lease(
    cluster: EmbeddedCluster, key: tuple[str, str], identity: str, renewed: str, **said: str
) -> None:
    """Write a lease; `said`: the annotations `holder`, `pod` and `public_key` of its holder."""
    namespace, name = key
    namespaces = cluster.api.kinds.resource("namespaces")
    cluster.api.ensure(namespaces, "", {"metadata": {"name": namespace}})
    names = {
        "holder": HOLDER_ANNOTATION,
        "pod": POD_ANNOTATION,
        "public_key": PUBLIC_KEY_ANNOTATION,
    }
    annotations = {names[word]: text for word, text in said.items()}
    metadata = {"name": name, "namespace": namespace, "annotations": annotations}
    spec = {"holderIdentity": identity, "leaseDurationSeconds": 15, "renewTime": renewed}
    leases = cluster.api.kinds.resource("leases", "coordination.k8s.io")
    cluster.api.create(leases, namespace, {"metadata": metadata, "spec": spec})


def hold_as_stellwerk(
    cluster: EmbeddedCluster, key: tuple[str, str], pod: str, renewed: str = EARLIER
) -> None:
    """Write the lease of a Stellwerk in that pod."""
    holder = f"{pod.rpartition('/')[2]}_4f0c"
    hold_lease(cluster, key, holder, renewed, holder=holder, pod=pod, public_key="c2hvd24=")


def unflagged(kubeconfig: Path) -> PortAddress:
    """The address of a command without a flag for the way."""
    parser = argparse.ArgumentParser()
    add_port_arguments(parser)
    return port_address(parser.parse_args(["--kubeconfig", str(kubeconfig)]))


def asked_of_kubectl(log: Path) -> list[str]:
    """Namespace and pod that it was asked to forward a port to; empty: nothing was asked."""
    words = log.read_text().split() if log.exists() else []
    return [word.removeprefix("--namespace=") for word in words[1:4] if word != "port-forward"]


async def forwarding_to(address: PortAddress, log: Path) -> list[str]:
    """Namespace and pod that kubectl was asked to forward a port to."""
    async with open_port(address):
        pass
    return asked_of_kubectl(log)


async def refusal_of(address: PortAddress) -> str:
    with pytest.raises(SchedulerError) as raised:
        async with open_port(address):
            pass
    return str(raised.value)


@pytest.fixture
def forwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The log of a kubectl that forwards every port."""
    script = 'echo "Forwarding from 127.0.0.1:1 -> 10259"\nexec sleep 60'
    return fake_kubectl(tmp_path, script, monkeypatch)


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param("stellwerk/stellwerk-7d-x2", id="of the Deployment"),
        pytest.param("kube-system/stellwerk-control-plane-1", id="the mirror of a static pod"),
    ],
)
async def test_in_kube_schedulers_place_the_pod_is_found_without_a_flag(
    tmp_path: Path, forwards: Path, capsys: pytest.CaptureFixture[str], pod: str
) -> None:
    async with cluster_at(tmp_path / "kubeconfig") as cluster:
        hold_as_stellwerk(cluster, IN_PLACE, pod)
        address = unflagged(tmp_path / "kubeconfig")
        namespace, _, name = pod.partition("/")
        assert await forwarding_to(address, forwards) == [namespace, f"pod/{name}"]
        (said,) = capsys.readouterr().err.splitlines()
        assert said == (
            f"stellwerk: pod {pod} is the leader, by the lease kube-system/kube-scheduler"
        )
        named = replace(address, lease_namespace=IN_PLACE[0], lease_name=IN_PLACE[1])
        named = replace(named, or_in_place=False)
        assert await forwarding_to(named, forwards) == [namespace, f"pod/{name}"]
        assert capsys.readouterr().err == "", "the user has said it"


async def test_beside_kube_scheduler_the_own_lease_is_used_and_nothing_said(
    tmp_path: Path, forwards: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with cluster_at(tmp_path / "kubeconfig") as cluster:
        hold_as_stellwerk(cluster, OWN, "stellwerk/stellwerk-1")
        # What Stellwerk wrote before kube-scheduler was started again stays in the lease.
        left = {"holder": "stellwerk-0_1", "pod": "stellwerk/stellwerk-0", "public_key": "a2V5"}
        hold_lease(cluster, IN_PLACE, "control-plane-1_9", LATER, **left)
        address = unflagged(tmp_path / "kubeconfig")
        assert await forwarding_to(address, forwards) == ["stellwerk", "pod/stellwerk-1"]
    assert capsys.readouterr().err == ""


async def test_of_two_leases_that_stellwerk_holds_the_one_renewed_last_counts(
    tmp_path: Path, forwards: Path
) -> None:
    async with cluster_at(tmp_path / "kubeconfig") as cluster:
        hold_as_stellwerk(cluster, OWN, "stellwerk/stellwerk-lost", EARLIER)
        hold_as_stellwerk(cluster, IN_PLACE, "stellwerk/stellwerk-1", LATER)
        address = unflagged(tmp_path / "kubeconfig")
        assert await forwarding_to(address, forwards) == ["stellwerk", "pod/stellwerk-1"]


async def test_who_leads_instead_is_said_with_operators_of_other_names(
    tmp_path: Path, forwards: Path
) -> None:
    async with cluster_at(tmp_path / "kubeconfig") as cluster:
        hold_lease(cluster, IN_PLACE, "control-plane-1_9", LATER)
        hold_lease(cluster, ("stellwerk", "other"), "a_1", LATER)
        hold_as_stellwerk(cluster, ("stellwerk", "gpu-stellwerk"), "stellwerk/gpu-stellwerk-1")
        assert await refusal_of(unflagged(tmp_path / "kubeconfig")) == (
            "no replica holds the lease stellwerk/stellwerk or kube-system/kube-scheduler; "
            "kube-system/kube-scheduler is held by control-plane-1_9, which is not Stellwerk, "
            "or an older version; "
            "in stellwerk Stellwerk holds gpu-stellwerk: pass --lease or --url"
        )
    assert asked_of_kubectl(forwards) == []


async def test_a_pod_where_stellwerk_is_not_expected_gets_no_request(
    tmp_path: Path, forwards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many programs may write leases of kube-system, and name a pod of their own."""
    async with cluster_at(tmp_path / "kubeconfig") as cluster:
        hold_as_stellwerk(cluster, OWN, "stellwerk/stellwerk-1", EARLIER)
        hold_as_stellwerk(cluster, IN_PLACE, "team/greedy-1", LATER)
        refusal = await refusal_of(unflagged(tmp_path / "kubeconfig"))
        assert refusal.endswith(
            "names the pod team/greedy-1, but Stellwerk is expected only in kube-system or "
            "stellwerk. If it runs there, set STELLWERK_NAMESPACE=team"
        )
        assert asked_of_kubectl(forwards) == []
        monkeypatch.setenv("STELLWERK_NAMESPACE", "team")
        address = unflagged(tmp_path / "kubeconfig")
        assert await forwarding_to(address, forwards) == ["team", "pod/greedy-1"]


async def test_a_holder_outside_of_the_cluster_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_kubectl(tmp_path, "echo 'pods \"laptop\" not found' >&2; exit 1", monkeypatch)
    async with cluster_at(tmp_path / "kubeconfig") as cluster:
        said = {"holder": "laptop_4f0c", "public_key": "a2V5"}
        hold_lease(cluster, IN_PLACE, "laptop_4f0c", LATER, **said)
        refusal = await refusal_of(unflagged(tmp_path / "kubeconfig"))
    assert refusal == (
        'cannot forward a port to pod kube-system/laptop: pods "laptop" not found (the lease '
        "kube-system/kube-scheduler names no pod of its holder laptop_4f0c: if it runs outside "
        "the cluster, name its port with --url)"
    )


def reader_of(cluster: EmbeddedCluster, directory: Path, *keys: tuple[str, str]) -> Path:
    """The kubeconfig of a user who may read these leases and nothing else."""
    for namespace, name in keys:
        rule = {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": [name],
            "verbs": ["get"],
        }
        role = {"metadata": {"name": "reads-lease"}, "rules": [rule]}
        subject = {"kind": "ServiceAccount", "namespace": "stellwerk", "name": "ann"}
        bound = {
            "metadata": {"name": "reads-lease"},
            "roleRef": {"apiGroup": RBAC_GROUP, "kind": "Role", "name": "reads-lease"},
            "subjects": [subject],
        }
        cluster.api.create(cluster.api.kinds.resource("roles", RBAC_GROUP), namespace, role)
        bindings = cluster.api.kinds.resource("rolebindings", RBAC_GROUP)
        cluster.api.create(bindings, namespace, bound)
    accounts = cluster.api.kinds.resource("serviceaccounts")
    cluster.api.create(accounts, "stellwerk", {"metadata": {"name": "ann"}})
    kubeconfig = directory / "kubeconfig"
    cluster.write_kubeconfig(kubeconfig)
    kubeconfig.write_text(with_token(kubeconfig.read_text(), token_of(cluster, "ann")))
    return kubeconfig


def missing(namespace: str, name: str) -> str:
    return (
        f"the lease {namespace}/{name} may not be read: you lack the right to get "
        f"leases.coordination.k8s.io {name} in namespace {namespace}"
    )


async def test_who_may_read_one_lease_alone_learns_what_is_missing(
    tmp_path: Path, forwards: Path
) -> None:
    async with EmbeddedCluster(1, options=ClusterOptions(identity=ENFORCED)) as cluster:
        operator_token(cluster)  # installs the namespace and the rights
        hold_lease(cluster, OWN, "", EARLIER)
        address = unflagged(reader_of(cluster, tmp_path, OWN))
        assert await refusal_of(address) == (
            f"no replica holds the lease stellwerk/stellwerk; {missing(*IN_PLACE)}: pass "
            "--lease or --url"
        )
    async with EmbeddedCluster(1, options=ClusterOptions(identity=ENFORCED)) as cluster:
        operator_token(cluster)  # installs the namespace and the rights
        hold_as_stellwerk(cluster, IN_PLACE, "stellwerk/stellwerk-1")
        address = unflagged(reader_of(cluster, tmp_path, IN_PLACE))
        assert await forwarding_to(address, forwards) == ["stellwerk", "pod/stellwerk-1"]
    async with EmbeddedCluster(1, options=ClusterOptions(identity=ENFORCED)) as cluster:
        operator_token(cluster)  # installs the namespace and the rights
        address = unflagged(reader_of(cluster, tmp_path))
        assert await refusal_of(address) == f"{missing(*OWN)}; {missing(*IN_PLACE)}"


def test_the_history_of_profiles_lies_in_the_operators_namespace_and_not_in_kube_system() -> None:
    in_place = PortAddress(lease_namespace=IN_PLACE[0], lease_name=IN_PLACE[1])
    assert in_place.history_namespace == "stellwerk"
    assert PortAddress(lease_namespace="scheduling").history_namespace == "scheduling"


def test_a_lease_has_a_namespace() -> None:
    parser = argparse.ArgumentParser()
    add_port_arguments(parser)
    with pytest.raises(ConfigurationError, match="NAMESPACE/NAME"):
        port_address(parser.parse_args(["--lease", "stellwerk"]))


class Replica:
    """An operator's port that leads or stands by."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.leads = True
        self.url = ""

    async def handle(self, request: web.Request) -> web.Response:
        if request.path == "/missing":
            return web.json_response({"error": "nothing here"}, status=404)
        if not self.leads:
            return web.json_response({"error": "standby", "leader": "other"}, status=503)
        return web.json_response({"profile": self.name, "revisions": []})


def of(name: str) -> ProfileHistory:
    """The answer of a replica; any kind will do."""
    return ProfileHistory(profile=name, revisions=[])


@asynccontextmanager
async def replica(name: str) -> AsyncIterator[Replica]:
    made = Replica(name)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield made
    finally:
        await runner.cleanup()


class Ways:
    """Leads to the replica that is said to lead, and counts."""

    def __init__(self, *urls: str) -> None:
        self.urls = list(urls)
        self.opened = 0

    @asynccontextmanager
    async def open(self, _: PortAddress) -> AsyncIterator[object]:
        self.opened += 1
        if not self.urls:
            raise SchedulerError("no replica holds the lease")
        url = self.urls.pop(0)
        async with open_port(PortAddress(url=url)) as port:
            yield port


async def test_when_the_leader_changes_the_new_one_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with replica("a") as first, replica("b") as second:
        ways = Ways(first.url, second.url)
        monkeypatch.setattr(operator_port, "open_port", ways.open)
        async with LeaderPort(PortAddress()) as leader:
            assert await leader.get("/queue", ProfileHistory) == of("a")
            assert await leader.post("/what-if", {}, ProfileHistory) == of("a")
            with pytest.raises(PortRefusal, match="nothing here"):
                await leader.get("/missing", ProfileHistory)
            assert ways.opened == 1
            first.leads = False
            assert await leader.get("/queue", ProfileHistory) == of("b")


async def test_when_the_leader_dies_the_new_one_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with replica("b") as second:
        async with replica("a") as first:
            ways = Ways(first.url, second.url)
            monkeypatch.setattr(operator_port, "open_port", ways.open)
            leader = LeaderPort(PortAddress())
            assert await leader.get("/queue", ProfileHistory) == of("a")
        async with leader:
            assert await leader.get("/queue", ProfileHistory) == of("b")


async def test_without_a_leader_it_is_not_looked_for_with_each_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ways = Ways()
    monkeypatch.setattr(operator_port, "open_port", ways.open)
    async with LeaderPort(PortAddress()) as leader:
        for _ in range(5):
            with pytest.raises(SchedulerError, match="no replica holds"):
                await leader.get("/queue", ProfileHistory)
    assert ways.opened == 1
