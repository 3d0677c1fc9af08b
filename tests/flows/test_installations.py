"""Three ways to install Stellwerk give the same objects: files, kustomization, chart."""

import asyncio
import io
import socket
import subprocess
import urllib.error
from pathlib import Path
from typing import Any

import pytest
import yaml

from stellwerk import __version__
from stellwerk.profiles.spec.profile import GROUP, PLURAL, TAKEOVER_PROFILE_MANIFEST
from stellwerk_cluster.cluster import EmbeddedCluster
from stellwerk_kube.json_values import JsonObject
from tests.flows import chart_files
from tests.support.findings import hold
from tests.support.kubectls import helm, newest, program_of
from tests.support.repository import ROOT
from tests.support.running_operator import install

CHART = ROOT / "charts" / "stellwerk"
NAMESPACE = "stellwerk"
TEST_POD = "templates/tests/bound-and-ready.yaml"

Key = tuple[str, str, str]
OF_CHARTS = {
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/version",
    "helm.sh/chart",
}
FOUND_BY_NAME = {"Deployment", "Service", "ServiceMonitor", "PrometheusRule", "ConfigMap"}
"""Kinds whose objects have the label of the name in the files, too."""


def by_key(objects: list[JsonObject]) -> dict[Key, JsonObject]:
    """Objects by kind, namespace and name."""
    keyed = {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each
        for each in objects
    }
    assert len(keyed) == len(objects)
    return keyed


def parsed(text: str) -> list[JsonObject]:
    found = yaml.load_all(text, Loader=yaml.CSafeLoader)
    return [each for each in found if each is not None]


def applied_as_files() -> dict[Key, JsonObject]:
    """What `kubectl apply -f crds/ -f manifests/` reads: files with an ending that it knows."""
    files = [*sorted((ROOT / "crds").iterdir()), *sorted((ROOT / "manifests").iterdir())]
    texts = [each.read_text() for each in files if each.suffix in {".yaml", ".yml", ".json"}]
    return by_key([each for text in texts for each in parsed(text)])


def run(program: Path, *arguments: str | Path) -> str:
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def templated(release: str, *options: str | Path) -> list[JsonObject]:
    """The objects of a release as the chart gives them."""
    shown = ("template", release, CHART, "-n", NAMESPACE, "--include-crds", "--no-hooks")
    return parsed(run(helm(), *shown, *options))


def built(folder: Path, base: str, *overlays: str, more: str = "") -> list[JsonObject]:
    """The objects of a user's kustomization of a base and overlays, which kubectl builds."""
    (folder / "clone").symlink_to(ROOT)
    mine = folder / "mine"
    mine.mkdir()
    components = [f"../clone/manifests/overlays/{each}" for each in overlays]
    named = yaml.safe_dump({"resources": [f"../clone/{base}"], "components": components})
    (mine / "kustomization.yaml").write_text(named + more)
    return parsed(run(program_of(newest()), "kustomize", mine))


def rendered(*values: str, release: str = "stellwerk") -> dict[Key, JsonObject]:
    """The chart's objects with some values set, without the labels that only a chart has."""
    settings = [part for value in values for part in ("--set", value)]
    objects = templated(release, *settings)
    for each in objects:
        labels = each["metadata"].get("labels", {})
        for label in [label for label in labels if label in OF_CHARTS]:
            del labels[label]
        if each["kind"] not in FOUND_BY_NAME:
            labels.pop("app.kubernetes.io/name", None)
        if not labels:
            each["metadata"].pop("labels", None)
    return by_key(objects)


def deployed(objects: dict[Key, JsonObject]) -> dict[str, Any]:
    deployment = objects["Deployment", NAMESPACE, "stellwerk"]
    return dict(deployment["spec"]["template"]["spec"])


def test_the_kustomization_gives_what_the_files_give() -> None:
    program = program_of(newest())
    assert by_key(parsed(run(program, "kustomize", ROOT / "manifests"))) == applied_as_files()


def test_the_chart_gives_what_the_files_give() -> None:
    files = applied_as_files()
    del files["Namespace", "", NAMESPACE]  # helm install --create-namespace
    assert rendered() == files


def test_in_place_of_kube_scheduler_chart_and_overlay_are_one(tmp_path: Path) -> None:
    overlay = by_key(built(tmp_path, "manifests", "in-place"))
    del overlay["Namespace", "", NAMESPACE]
    chart = rendered("takeOverDefaultScheduler=true")
    profile = ROOT / "manifests" / "profiles" / "optional" / "default-scheduler.yaml"
    (made,) = parsed(profile.read_text())
    assert chart.pop(("SchedulerProfile", "", "default-scheduler")) == made
    assert chart == overlay


def test_an_observer_is_the_same_by_chart_and_overlay(tmp_path: Path) -> None:
    overlay = by_key(built(tmp_path, "manifests", "observe"))
    del overlay["Namespace", "", NAMESPACE]
    assert "--observe" in deployed(overlay)["containers"][0]["args"]
    chart = rendered("observe=true")
    profile = ROOT / "manifests" / "overlays" / "observe" / "profile.yaml"
    (made,) = parsed(profile.read_text())
    observed = chart.pop(("SchedulerProfile", "", "default-scheduler"))
    # The profile stays when the value is set back, and goes on observing.
    assert observed["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert observed == made
    assert chart == overlay


def test_no_other_value_gives_an_observer_a_right_to_write() -> None:
    secret = ("plugins.secrets[0].name=a", "plugins.secrets[0].namespace=b")
    plugins = ("gpuSharing=true", "plugins.load=true", "plugins.topologies=true")
    objects = rendered("observe=true", "plugins.quotas=true", *plugins, *secret)
    bound = {
        (each["roleRef"]["kind"], each["metadata"].get("namespace", ""), each["roleRef"]["name"])
        for each in objects.values()
        if "roleRef" in each and each["subjects"][0]["name"] == "stellwerk"
    }
    writes = {
        (resource, verb)
        for key, each in objects.items()
        if key in bound
        for rule in each["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if verb not in {"get", "list", "watch"} or resource == "secrets"
    }
    assert writes == {
        ("leases", "create"),
        ("leases", "update"),
        ("schedulerprofiles/status", "patch"),
    }


def test_an_observer_takes_no_lease_over() -> None:
    both = ("--set=observe=true", "--set=takeOverDefaultScheduler=true")
    done = subprocess.run(
        [helm(), "template", "stellwerk", CHART, *both], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "takeOverDefaultScheduler cannot be used with observe" in done.stderr


def test_an_observer_keeps_the_profiles_that_are_named() -> None:
    named = rendered("observe=true", "profiles.a.schedulerName=a", "profiles.a.mode=Observe")
    names = [name for kind, _, name in named if kind == "SchedulerProfile"]
    assert names == ["a"]


def test_for_gpus_that_pods_share_chart_and_overlay_are_one(tmp_path: Path) -> None:
    overlay = by_key(built(tmp_path, "manifests", "gpu"))
    del overlay["Namespace", "", NAMESPACE]
    assert rendered("gpuSharing=true") == overlay


def test_overlays_can_be_combined(tmp_path: Path) -> None:
    both = by_key(built(tmp_path, "manifests", "in-place", "gpu"))
    del both["Namespace", "", NAMESPACE]
    chart = rendered("takeOverDefaultScheduler=true", "gpuSharing=true")
    del chart["SchedulerProfile", "", "default-scheduler"]
    assert both == chart


@pytest.mark.parametrize(
    ("base", "overlays", "tag"),
    [
        ("manifests", (), ""),
        ("manifests", (), "newTag: 1.2.3"),
        ("manifests", (), "digest: sha256:00"),
        ("manifests", ("in-place",), ""),
        ("manifests", ("observe",), ""),
        ("manifests", ("gpu", "in-place"), ""),
        ("manifests/static-pod", (), ""),
        ("manifests/static-pod", ("static-pod-own-user",), ""),
    ],
)
def test_a_users_kustomization_names_the_image_of_every_way(
    base: str, overlays: tuple[str, ...], tag: str, tmp_path: Path
) -> None:
    """Images are the user's alone, with the release's tag where the user names none."""
    images = f"images:\n- name: stellwerk\n  newName: registry.example/stellwerk\n  {tag}\n"
    made = built(tmp_path, base, *overlays, more=images)
    pods = [each["spec"]["template"]["spec"] for each in made if each["kind"] == "Deployment"]
    pods += [each["spec"] for each in made if each["kind"] == "Pod"]
    found = {container["image"] for pod in pods for container in pod["containers"]}
    behind = {"": f":{__version__}", "newTag: 1.2.3": ":1.2.3", "digest: sha256:00": "@sha256:00"}
    assert found == {f"registry.example/stellwerk{behind[tag]}"}


def test_the_static_pod_of_its_own_user_is_not_root_and_has_its_own_kubeconfig(
    tmp_path: Path,
) -> None:
    program = program_of(newest())
    (as_root,) = parsed(run(program, "kustomize", ROOT / "manifests" / "static-pod"))
    (own,) = built(tmp_path, "manifests/static-pod", "static-pod-own-user")
    assert as_root["spec"]["securityContext"]["runAsUser"] == 0
    assert own["spec"]["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    text = yaml.safe_dump(own)
    assert "/etc/kubernetes/stellwerk.conf" in text
    assert "scheduler.conf" not in text
    restored = yaml.safe_load(text.replace("stellwerk.conf", "scheduler.conf"))
    restored["spec"]["securityContext"] = as_root["spec"]["securityContext"]
    assert restored == as_root, "nothing else differs"


def test_the_chart_passes_helms_own_look() -> None:
    assert "0 chart(s) failed" in run(helm(), "lint", "--strict", CHART)


def test_chart_manifests_and_package_have_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__
    static_pod = yaml.safe_load((ROOT / "manifests" / "static-pod" / "stellwerk.yaml").read_text())
    for pod in (deployed(applied_as_files()), static_pod["spec"]):
        (container,) = pod["containers"]
        assert container["image"] == f"stellwerk:{__version__}"


def test_values_reach_the_deployment() -> None:
    objects = rendered(
        "image.repository=registry.example/stellwerk",
        "image.tag=1.2.3",
        "image.pullSecrets={pull}",
        "replicas=3",
        "controlPlane=true",
        "resources.limits.memory=4Gi",
        "extraArgs={--log-level=debug}",
    )
    pod = deployed(objects)
    (container,) = pod["containers"]
    assert objects["Deployment", NAMESPACE, "stellwerk"]["spec"]["replicas"] == 3
    assert container["image"] == "registry.example/stellwerk:1.2.3"
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    assert container["resources"]["limits"] == {"memory": "4Gi"}
    assert container["args"][-1] == "--log-level=debug"
    assert "node-role.kubernetes.io/control-plane" in {each["key"] for each in pod["tolerations"]}


def test_secrets_of_plugins_may_be_read_one_by_one() -> None:
    role = rendered("plugins.secrets[0].namespace=team", "plugins.secrets[0].name=token")[
        "Role", "team", "stellwerk-plugins-token"
    ]
    (rule,) = role["rules"]
    assert (rule["resourceNames"], rule["verbs"]) == (["token"], ["get"])


def test_profiles_are_made_of_values() -> None:
    objects = rendered("profiles.packing.schedulerName=packing", "takeOverDefaultScheduler=true")
    served = {key[2]: each["spec"] for key, each in objects.items() if key[0] == "SchedulerProfile"}
    assert served == {
        "packing": {"schedulerName": "packing"},
        "default-scheduler": {"schedulerName": "default-scheduler"},
    }


def test_monitoring_adds_the_objects_of_the_folder_monitoring() -> None:
    plain, monitored = rendered(), rendered("monitoring.enabled=true")
    folder = run(program_of(newest()), "kustomize", ROOT / "manifests" / "monitoring")
    added = {key: each for key, each in monitored.items() if key not in plain}
    assert {key[0] for key in added} == {"Service", "ServiceMonitor", "PrometheusRule", "ConfigMap"}
    assert added == by_key(parsed(folder))


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("replicas=0", "minimum"),
        ("image.tag=latest", "image/tag"),
        ("imag.tag=1", "imag"),
        ("profiles.packing.weight=1", "schedulerName"),
        ("plugins.secrets[0].name=token", "namespace"),
    ],
)
def test_a_wrong_value_is_named(value: str, complaint: str) -> None:
    done = subprocess.run(
        [helm(), "template", "stellwerk", CHART, "--set", value],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert complaint in done.stderr


def test_files_addresses_and_secrets_of_extenders_are_values() -> None:
    plain = rendered()
    objects = rendered(
        "extenders.allow={http://127.0.0.1:8888,https://x.example/v1}",
        "extenders.filesSecret=gpu-tls",
        "extenders.secrets={gpu,tpu}",
    )
    (container,) = deployed(objects)["containers"]
    assert container["args"][-3:] == [
        "--extender-allow=http://127.0.0.1:8888",
        "--extender-allow=https://x.example/v1",
        "--extender-files-dir=/etc/stellwerk/extenders",
    ]
    assert {"name": "extenders", "secret": {"secretName": "gpu-tls"}} in deployed(objects)[
        "volumes"
    ]
    assert secrets_of(plain) == [["stellwerk-extenders"]]
    assert secrets_of(objects) == [["gpu", "tpu"]]
    assert secrets_of(rendered("extenders.secrets=null")) == []


def secrets_of(objects: dict[Key, JsonObject]) -> list[list[str]]:
    """The names of the Secrets that the operator may read; one list for each rule."""
    return [
        rule["resourceNames"]
        for rule in objects["Role", NAMESPACE, "stellwerk"]["rules"]
        if "secrets" in rule["resources"]
    ]


def notes(*values: str) -> str:
    settings = [part for value in values for part in ("--set", value)]
    told = ("install", "stellwerk", CHART, "-n", NAMESPACE, "--dry-run=client")
    return run(helm(), *told, *settings)


def test_each_direction_of_the_network_is_open_until_its_addresses_are_named() -> None:
    (policy,) = [each for key, each in rendered().items() if key[0] == "NetworkPolicy"]
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    assert "from" not in policy["spec"]["ingress"][0]
    values = (
        "networkPolicy.kubeletCIDRs={10.0.0.0/16}",
        "networkPolicy.prometheus.namespaceSelector.matchLabels.team=monitoring",
        "networkPolicy.apiServerCIDRs={10.96.0.1/32,10.0.0.2/32}",
        "networkPolicy.extenders[0].podSelector.matchLabels.app=gpu",
    )
    (policy,) = [each for key, each in rendered(*values).items() if key[0] == "NetworkPolicy"]
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    (ingress,) = policy["spec"]["ingress"]
    assert ingress["ports"] == [{"protocol": "TCP", "port": 10259}]
    assert ingress["from"] == [
        {"ipBlock": {"cidr": "10.0.0.0/16"}},
        {"namespaceSelector": {"matchLabels": {"team": "monitoring"}}},
    ]
    api, dns, extenders = policy["spec"]["egress"]
    assert [each["ipBlock"]["cidr"] for each in api["to"]] == ["10.96.0.1/32", "10.0.0.2/32"]
    assert {each["port"] for each in dns["ports"]} == {53}
    assert extenders["to"] == [{"podSelector": {"matchLabels": {"app": "gpu"}}}]
    hold("directions", sum(not each for each in (ingress["from"], api["to"], extenders["to"])))


def test_the_notes_say_which_direction_is_open() -> None:
    said = notes()
    assert "accepts connections from every pod. To close it, set networkPolicy.kubeletCIDRs" in said
    assert "can connect to every address. To limit it, set networkPolicy.apiServerCIDRs" in said
    said = notes(
        "networkPolicy.kubeletCIDRs={10.0.0.0/16}", "networkPolicy.apiServerCIDRs={1.2.3.4/32}"
    )
    assert "only from the kubelets" in said
    assert "can reach only the API server and DNS." in said


def test_the_notes_say_how_explain_finds_the_operator_and_what_brings_lost_pods_back() -> None:
    plain, in_place = notes(), notes("takeOverDefaultScheduler=true")
    for said in (plain, in_place):
        assert "\n  stellwerk explain pod NAME\n" in said
    assert "stellwerk run --leader-elect --kubeconfig admin.conf" in in_place
    assert "manifests/static-pod" in in_place
    assert "static-pod" not in plain
    named = notes("operatorName=gpu", "fullnameOverride=gpu")
    assert "stellwerk explain pod NAME --lease stellwerk/gpu\n" in named


def test_the_notes_say_how_the_namespace_enforces_pod_security() -> None:
    label = "kubectl label namespace stellwerk pod-security.kubernetes.io/enforce=restricted"
    assert label in notes()


def test_the_notes_say_how_to_uninstall_where_no_pod_runs() -> None:
    without_hook = "helm uninstall stellwerk --namespace stellwerk --no-hooks"
    assert without_hook in notes()
    assert without_hook not in notes("leaveBeforeUninstall=false")


class Waiting:
    """Half a minute that passes at once: the times that a script of `helm test` asks for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers_after_seconds: float) -> None:
        self.seconds = 0.0
        self.asked: list[str] = []
        self._answers_after_seconds = answers_after_seconds
        monkeypatch.setattr("time.monotonic", lambda: self.seconds)
        monkeypatch.setattr("time.sleep", self._sleep)
        monkeypatch.setattr("urllib.request.urlopen", self._open)

    def _sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def _open(self, url: str, **_: object) -> io.BytesIO:
        self.asked.append(url)
        if self.seconds < self._answers_after_seconds:
            raise urllib.error.URLError(socket.gaierror(-2, "Name or service not known"))
        answer = io.BytesIO(b"ok")
        vars(answer)["status"] = 200
        return answer


@pytest.mark.parametrize("answers_after_seconds", [0.0, 7.0, 29.0])
def test_helm_test_asks_again_while_a_name_does_not_resolve(
    answers_after_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = script_of_helm_test()
    waiting = Waiting(monkeypatch, answers_after_seconds)
    exec(script, {})  # noqa: S102 what the chart has the pod run
    assert set(waiting.asked) == {"https://stellwerk-test.stellwerk.svc:10259/readyz"}
    assert waiting.seconds == answers_after_seconds


def test_helm_test_fails_after_half_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    script = script_of_helm_test()
    waiting = Waiting(monkeypatch, 1000.0)
    with pytest.raises(urllib.error.URLError, match="not known"):
        exec(script, {})  # noqa: S102 what the chart has the pod run
    assert 30 <= waiting.seconds <= 32


def script_of_helm_test() -> str:
    """What the pod of `helm test` runs."""
    shown = run(helm(), "template", "stellwerk", CHART, "-n", NAMESPACE, "-s", TEST_POD)
    (pod,) = [each for each in parsed(shown) if each["kind"] == "Pod"]
    (container,) = pod["spec"]["containers"]
    assert container["command"] == ["python", "-c"]
    (script,) = container["args"]
    return str(script)


def test_the_made_files_of_the_chart_are_those_of_the_code() -> None:
    how = "python -m tests.flows.chart_files writes it"
    assert chart_files.SCHEMA.read_text() == chart_files.schema_text(), how
    assert chart_files.README.read_text() == chart_files.readme_text(), how


EVERY_VALUE: JsonObject = {
    "operatorName": "gpu",
    "image": {"digest": "sha256:" + 64 * "0", "pullPolicy": "Always", "pullSecrets": ["pull"]},
    "replicas": 3,
    "revisionHistoryLimit": 0,
    "profiles": {"canary": {"schedulerName": "canary"}, "shadow": {"shadowOf": "canary"}},
    "schedulerName": "other",
    "priorityClassName": "",
    "leaveBeforeUninstall": False,
    "controlPlane": True,
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "tolerations": [{"key": "infra", "operator": "Exists"}],
    "podAnnotations": {"team": "a"},
    "podLabels": {"team": "a"},
    "serviceAccount": {"create": False, "name": "mine", "annotations": {"role": "a"}},
    "podSecurityContext": {"runAsUser": 7},
    "securityContext": {"privileged": False},
    "probes": {"startup": {"failureThreshold": 9}, "liveness": {"timeoutSeconds": 9}},
    "podDisruptionBudget": {"maxUnavailable": "50%"},
    "resources": {"limits": {"cpu": "2"}},
    "gpuSharing": True,
    "plugins": {"load": True, "topologies": True, "quotas": True, "definitions": False},
    "extenders": {"allow": ["http://"], "filesSecret": "files", "secrets": ["a"]},
    "extraArgs": ["--log-format=json"],
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy"}],
    "extraVolumes": [{"name": "ca", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "ca", "mountPath": "/ca"}],
    "networkPolicy": {"kubeletCIDRs": ["10.0.0.0/16"], "apiServerCIDRs": ["10.96.0.1/32"]},
    "monitoring": {
        "enabled": True,
        "interval": "15s",
        "serviceMonitor": {
            "labels": {"release": "prometheus"},
            "relabelings": [{"action": "labelmap", "regex": "a"}],
            "metricRelabelings": [{"action": "drop", "regex": "b"}],
        },
        "rules": {"labels": {"role": "alerts"}},
        "dashboard": {"labels": {"dashboards": "yes"}},
    },
}


def test_every_value_reaches_the_objects(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(EVERY_VALUE))
    schema = yaml.safe_load(chart_files.SCHEMA.read_text())["properties"]
    assert set(schema) - EVERY_VALUE.keys() == {
        "global",
        "fullnameOverride",
        "observe",
        "takeOverDefaultScheduler",
    }
    objects = by_key(templated("gpu", "--values", file))
    names = {name for kind, _, name in objects if kind not in {*PER_CLUSTER, "SchedulerProfile"}}
    assert all(name.startswith("gpu-stellwerk") for name in names)
    spec = objects["Deployment", NAMESPACE, "gpu-stellwerk"]["spec"]
    pod, (container,) = spec["template"]["spec"], spec["template"]["spec"]["containers"]
    assert (spec["replicas"], spec["revisionHistoryLimit"]) == (3, 0)
    assert spec["template"]["metadata"]["annotations"] == {"team": "a"}
    assert spec["template"]["metadata"]["labels"]["team"] == "a"
    assert container["image"] == "stellwerk@sha256:" + 64 * "0"
    assert (pod["nodeSelector"], pod["schedulerName"]) == ({"kubernetes.io/os": "linux"}, "other")
    assert pod["affinity"] == EVERY_VALUE["affinity"]
    assert {"key": "infra", "operator": "Exists"} in pod["tolerations"]
    assert pod["serviceAccountName"] == "mine"
    assert pod["securityContext"]["runAsUser"] == 7
    assert container["securityContext"]["privileged"] is False
    assert container["startupProbe"]["failureThreshold"] == 9
    assert container["livenessProbe"]["timeoutSeconds"] == 9
    assert {"--operator-name=gpu", "--log-format=json"} <= set(container["args"])
    assert "--leader-elect-resource-name=gpu-stellwerk" in container["args"]
    assert {"name": "HTTPS_PROXY", "value": "http://proxy"} in container["env"]
    assert {"name": "ca", "emptyDir": {}} in pod["volumes"]
    assert {"name": "ca", "mountPath": "/ca"} in container["volumeMounts"]
    budget = objects["PodDisruptionBudget", NAMESPACE, "gpu-stellwerk"]["spec"]
    assert budget["maxUnavailable"] == "50%"
    assert budget["selector"] == spec["selector"]
    monitor = objects["ServiceMonitor", NAMESPACE, "gpu-stellwerk"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert {each["relabelings"][0]["regex"] for each in monitor["spec"]["endpoints"]} == {"a"}
    assert {each["metricRelabelings"][0]["regex"] for each in monitor["spec"]["endpoints"]} == {"b"}
    dashboard = objects["ConfigMap", NAMESPACE, "gpu-stellwerk-dashboard"]
    assert dashboard["metadata"]["labels"]["dashboards"] == "yes"
    bound = {
        (each["kind"], subject["name"])
        for each in objects.values()
        for subject in each.get("subjects", ())
    }
    assert {name for _, name in bound} == {"mine"}
    assert not any(kind == "ServiceAccount" for kind, _, _ in objects)
    profile = objects["SchedulerProfile", "", "canary"]
    assert profile["metadata"]["labels"]["scheduling.stellwerk.dev/operator"] == "gpu"


PER_CLUSTER = {"CustomResourceDefinition"}


def test_a_name_of_ones_own_goes_before_that_of_the_release() -> None:
    assert ("Deployment", NAMESPACE, "mine") in rendered("fullnameOverride=mine", release="gpu")
    assert ("Deployment", NAMESPACE, "my-stellwerk") in rendered(release="my-stellwerk")
    off = rendered("podDisruptionBudget.enabled=false")
    assert not any(kind == "PodDisruptionBudget" for kind, _, _ in off)


async def test_what_an_api_server_has_is_looked_up(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    async with EmbeddedCluster(1) as cluster:
        cluster.write_kubeconfig(kubeconfig)

        async def objects(*values: str, release: str = "stellwerk") -> dict[Key, JsonObject]:
            settings = [part for value in values for part in ("--set", value)]
            shown: tuple[str | Path, ...] = (
                "template",
                release,
                CHART,
                "-n",
                "default",
                "--dry-run=server",
            )
            process = await asyncio.create_subprocess_exec(
                helm(),
                *shown,
                "--kubeconfig",
                kubeconfig,
                "--skip-tests",
                *settings,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            told, complaint = await process.communicate()
            assert process.returncode == 0, complaint.decode()
            return by_key(parsed(told.decode()))

        def create(plural: str, group: str, obj: JsonObject) -> None:
            namespace = obj["metadata"].get("namespace", "")
            cluster.api.create(cluster.api.kinds.resource(plural, group), namespace, obj)

        install(cluster)
        key = ("SchedulerProfile", "", "default-scheduler")
        assert key in await objects("takeOverDefaultScheduler=true")
        create(PLURAL, GROUP, dict(TAKEOVER_PROFILE_MANIFEST))
        assert key not in await objects("takeOverDefaultScheduler=true")
        # `helm upgrade --take-ownership` takes over what the chart has, as the notes say.
        own = "profiles.default-scheduler.schedulerName=default-scheduler"
        assert own in notes("takeOverDefaultScheduler=true")
        with pytest.raises(AssertionError, match="cannot be imported into the current release"):
            await objects("takeOverDefaultScheduler=true", own)
        quotas = ("plugins.quotas=true", "plugins.topologies=true")
        made = await objects(*quotas)
        definitions = [each for key, each in made.items() if key[0] == "CustomResourceDefinition"]
        assert len(definitions) == 2
        for each in definitions:
            each["metadata"]["annotations"]["meta.helm.sh/release-name"] = "first"
            create("customresourcedefinitions", "apiextensions.k8s.io", each)
        again = await objects(*quotas)
        assert not any(kind == "CustomResourceDefinition" for kind, _, _ in again)
        # A release from before names followed it keeps its own.
        before = made["Deployment", "default", "stellwerk"]
        before["metadata"]["annotations"] = {
            "meta.helm.sh/release-name": "prod",
            "meta.helm.sh/release-namespace": "default",
        }
        create("deployments", "apps", before)
        kept = await objects(release="prod")
        assert ("Deployment", "default", "stellwerk") in kept
