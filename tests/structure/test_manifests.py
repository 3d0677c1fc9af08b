"""The manifests that install Stellwerk: complete, in an order that applies, and with few rights."""

from pathlib import Path
from typing import Any

import yaml

from stellwerk.handlers import watching
from stellwerk_cli.cli import build_parser
from stellwerk_kube.cel.environment import Environment
from stellwerk_kube.cel.types import DYN
from stellwerk_kube.json_values import JsonObject
from tests.support.findings import hold
from tests.support.repository import ROOT

MANIFESTS = ROOT / "manifests"


WATCHED = {
    ("", "pods"),
    ("", "nodes"),
    ("", "namespaces"),
    ("", "services"),
    ("", "replicationcontrollers"),
    ("", "persistentvolumeclaims"),
    ("", "persistentvolumes"),
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("scheduling.k8s.io", "priorityclasses"),
    ("scheduling.stellwerk.dev", "schedulerprofiles"),
    ("policy", "poddisruptionbudgets"),
    ("storage.k8s.io", "storageclasses"),
    ("storage.k8s.io", "csinodes"),
    ("storage.k8s.io", "csidrivers"),
    ("storage.k8s.io", "csistoragecapacities"),
    ("storage.k8s.io", "volumeattachments"),
    ("resource.k8s.io", "resourceclaims"),
    ("resource.k8s.io", "resourceslices"),
    ("resource.k8s.io", "deviceclasses"),
    ("resource.k8s.io", "devicetaintrules"),
    ("scheduling.k8s.io", "podgroups"),
    ("scheduling.x-k8s.io", "podgroups"),
}

WRITTEN = {
    ("", "pods", "delete"),
    ("", "pods/binding", "create"),
    ("", "pods/status", "patch"),
    ("", "pods/finalizers", "update"),
    ("resource.k8s.io", "resourceclaims", "create"),
    ("resource.k8s.io", "resourceclaims", "update"),
    ("resource.k8s.io", "resourceclaims", "delete"),
    ("resource.k8s.io", "resourceclaims/status", "patch"),
    ("resource.k8s.io", "resourceclaims/status", "update"),
    ("resource.k8s.io", "resourceclaims/binding", "patch"),
    ("resource.k8s.io", "resourceclaims/binding", "update"),
    ("", "persistentvolumeclaims", "update"),
    ("", "persistentvolumes", "update"),
    ("events.k8s.io", "events", "create"),
    ("events.k8s.io", "events", "patch"),
    ("scheduling.stellwerk.dev", "schedulerprofiles", "create"),
    ("scheduling.stellwerk.dev", "schedulerprofiles/status", "patch"),
    ("scheduling.k8s.io", "podgroups/status", "patch"),
    ("scheduling.x-k8s.io", "podgroups/status", "patch"),
}

READ = {"get", "list", "watch"}
SIGNS = {("coordination.k8s.io", "leases", "list"), ("", "events", "list")}
"""Signs of other schedulers are looked for in these; neither is watched."""
DEFINING = {
    (group, resource, verb)
    for group, _, resource in watching.DEFINING
    for verb in ("list", "watch")
}


def objects() -> list[JsonObject]:
    """Return what `kubectl apply -f manifests/` applies, in its order."""
    return [
        document
        for path in sorted(MANIFESTS.glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text())
    ]


def of_kind(kind: str) -> JsonObject:
    """The one of the operator itself."""
    (found,) = [
        each
        for each in objects()
        if (each["kind"], each["metadata"]["name"]) == (kind, "stellwerk")
    ]
    return found


def rights(role: JsonObject) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_namespace_comes_before_what_lies_in_it() -> None:
    assert objects()[0]["kind"] == "Namespace"


def test_custom_resources_are_not_applied_together_with_their_definition() -> None:
    assert "SchedulerProfile" not in {each["kind"] for each in objects()}


def test_every_watched_kind_may_be_read_and_nothing_else_may_be_written() -> None:
    granted = rights(of_kind("ClusterRole"))
    assert granted >= DEFINING
    assert granted >= SIGNS
    granted -= DEFINING | SIGNS
    assert {right for right in granted if right[2] not in READ} == WRITTEN
    read = {(group, resource) for group, resource, verb in granted if verb in READ}
    for group, resource in WATCHED:
        assert {(group, resource, verb) for verb in READ} <= granted
    assert read == WATCHED


def test_no_right_is_a_wildcard() -> None:
    for kind in ("ClusterRole", "Role"):
        assert not any("*" in right for right in rights(of_kind(kind)))


def test_secrets_are_those_of_the_own_namespace() -> None:
    role = of_kind("Role")
    assert role["metadata"]["namespace"] == "stellwerk"
    assert ("", "secrets", "get") in rights(role)
    of_secrets = [each for each in role["rules"] if "secrets" in each["resources"]]
    everywhere = [each for each in rights(of_kind("ClusterRole")) if each[1] == "secrets"]
    unnamed = [each for each in of_secrets if not each.get("resourceNames")]
    hold("Secrets", len(unnamed) + len(everywhere))


def test_viewers_of_profiles_are_part_of_view_and_editors_of_nothing() -> None:
    roles = {each["metadata"]["name"]: each for each in objects() if each["kind"] == "ClusterRole"}
    viewer, editor = roles["stellwerk-profile-viewer"], roles["stellwerk-profile-editor"]
    aggregates = "rbac.authorization.k8s.io/aggregate-to-view"
    assert viewer["metadata"]["labels"] == {aggregates: "true"}
    profiles = ("scheduling.stellwerk.dev", "schedulerprofiles")
    reading = {(*profiles, verb) for verb in ("get", "list", "watch")}
    writing = {(*profiles, verb) for verb in ("create", "update", "patch", "delete")}
    assert (rights(viewer), rights(editor)) == (reading, reading | writing)
    aggregated = [name for name, each in roles.items() if each["metadata"].get("labels")]
    hold("roles", sum(bool(writing & rights(roles[name])) for name in aggregated))


def test_the_pod_runs_stellwerk_without_privileges() -> None:
    pod = of_kind("Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"][0] == "run"
    assert pod["serviceAccountName"] == "stellwerk"
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_pod_is_not_scheduled_by_itself() -> None:
    pod = of_kind("Deployment")["spec"]["template"]["spec"]
    assert pod["schedulerName"] == "default-scheduler"


def test_of_two_replicas_one_decides() -> None:
    deployment = of_kind("Deployment")["spec"]
    (container,) = deployment["template"]["spec"]["containers"]
    options = build_parser().parse_args(container["args"])
    assert deployment["replicas"] == 2
    assert options.leader_elect is True
    lease = (options.leader_elect_resource_namespace, options.leader_elect_resource_name)
    assert lease == ("stellwerk", "stellwerk"), "not the one of kube-scheduler"


def test_the_lease_may_be_created_and_only_the_own_one_read_and_written() -> None:
    role = of_kind("Role")
    named = {
        verb: rule.get("resourceNames")
        for rule in role["rules"]
        if rule["resources"] == ["leases"]
        for verb in rule["verbs"]
    }
    own = ["stellwerk"]
    assert named == {"create": None, "get": own, "update": own, "watch": own}
    assert role["metadata"]["namespace"] == "stellwerk"


def test_the_pod_is_started_with_options_that_exist() -> None:
    (container,) = of_kind("Deployment")["spec"]["template"]["spec"]["containers"]
    options = build_parser().parse_args(container["args"])
    assert options.bind_address == "0.0.0.0:10259"


def test_probes_speak_tls_and_give_up() -> None:
    (container,) = of_kind("Deployment")["spec"]["template"]["spec"]["containers"]
    for name, path in (("startup", "/livez"), ("liveness", "/livez"), ("readiness", "/readyz")):
        probe = container[f"{name}Probe"]
        assert probe["httpGet"] == {"path": path, "port": "https", "scheme": "HTTPS"}
        assert probe["timeoutSeconds"] > 1


def test_the_port_asks_with_rights_that_every_cluster_has() -> None:
    granted = {
        (each["kind"], each["metadata"].get("namespace"), each["roleRef"]["name"])
        for each in objects()
        if "roleRef" in each and each["roleRef"]["name"] != "stellwerk"
    }
    assert granted == {
        ("ClusterRoleBinding", None, "system:auth-delegator"),
        ("RoleBinding", "kube-system", "extension-apiserver-authentication-reader"),
    }


def test_the_token_is_mounted_by_the_pod_that_needs_it_alone() -> None:
    assert of_kind("ServiceAccount")["automountServiceAccountToken"] is False
    pod = of_kind("Deployment")["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is True


def test_disruptions_and_connections_are_of_its_own_pods() -> None:
    labels = of_kind("Deployment")["spec"]["template"]["metadata"]["labels"]
    budget, policy = of_kind("PodDisruptionBudget")["spec"], of_kind("NetworkPolicy")["spec"]
    assert budget["selector"]["matchLabels"] == policy["podSelector"]["matchLabels"] == labels
    assert budget["maxUnavailable"] == 1
    assert policy["ingress"] == [{"ports": [{"protocol": "TCP", "port": 10259}]}]


STATIC = MANIFESTS / "static-pod"
USERS = ["system:kube-scheduler", "system:stellwerk"]


def static_pod() -> JsonObject:
    pod: JsonObject = yaml.safe_load((STATIC / "stellwerk.yaml").read_text())
    return pod


def static_rights() -> list[JsonObject]:
    return list(yaml.safe_load_all((STATIC / "rbac.yaml").read_text()))


def test_a_static_pod_is_not_among_what_is_applied() -> None:
    assert "Pod" not in {each["kind"] for each in objects()}
    kustomization = yaml.safe_load((MANIFESTS / "Kustomization").read_text())
    assert not any("static" in each for each in kustomization["resources"])


def test_the_static_pod_needs_neither_a_scheduler_nor_the_network_of_pods() -> None:
    pod = static_pod()
    spec, (container,) = pod["spec"], pod["spec"]["containers"]
    assert (pod["metadata"]["namespace"], spec["hostNetwork"]) == ("kube-system", True)
    # The kubelet looks up no class, and a static pod may name nothing that the API server has.
    assert (spec["priorityClassName"], spec["priority"]) == ("system-node-critical", 2000001000)
    assert "serviceAccountName" not in spec
    assert {next(iter(each.keys() - {"name"})) for each in spec["volumes"]} == {
        "hostPath",
        "emptyDir",
    }
    options = build_parser().parse_args(container["args"])
    host, _, port = options.bind_address.rpartition(":")
    assert host == "127.0.0.1"
    lease = (options.leader_elect_resource_namespace, options.leader_elect_resource_name)
    assert (options.leader_elect, lease) == (True, ("kube-system", "kube-scheduler"))
    assert options.profile_history_namespace == "stellwerk", "where `stellwerk profile` looks"
    (mounted,) = [each for each in spec["volumes"] if "hostPath" in each]
    assert mounted["hostPath"] == {"path": options.kubeconfig, "type": "File"}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        get = container[probe]["httpGet"]
        assert (get["host"], str(get["port"]), get["scheme"]) == (host, port, "HTTPS")


def test_the_static_pod_differs_from_the_deployments_where_it_has_to() -> None:
    (static,) = static_pod()["spec"]["containers"]
    (usual,) = of_kind("Deployment")["spec"]["template"]["spec"]["containers"]
    differing = {key for key in usual if static.get(key) != usual[key]}
    assert differing == {"args", "startupProbe", "livenessProbe", "readinessProbe", "volumeMounts"}
    assert static.keys() == usual.keys()


def test_the_users_of_static_pods_get_what_the_deployments_account_gets() -> None:
    bound = {
        (each["roleRef"]["name"], each["metadata"].get("namespace"))
        for each in static_rights()
        if "roleRef" in each
    }
    usual = {
        (each["roleRef"]["name"], each["metadata"].get("namespace"))
        for each in objects()
        if "roleRef" in each
    }
    assert bound == usual | {("stellwerk:static-pod", "kube-system")}
    for each in static_rights():
        if "roleRef" in each:
            assert [subject["name"] for subject in each["subjects"]] == USERS
            assert {subject["kind"] for subject in each["subjects"]} == {"User"}


def in_place() -> dict[str, JsonObject]:
    """The roles of the overlay, by their names."""
    text = (ROOT / "manifests" / "overlays" / "in-place" / "lease.yaml").read_text()
    return {
        each["metadata"]["name"]: each
        for each in yaml.safe_load_all(text)
        if each["kind"] == "Role"
    }


def test_the_lease_of_kube_scheduler_is_shared_with_the_same_rights() -> None:
    roles = {each["metadata"]["name"]: each for each in static_rights() if each["kind"] == "Role"}
    lease = in_place()["stellwerk:kube-scheduler-lease"]
    assert roles["stellwerk:static-pod"]["rules"] == lease["rules"]
    (rule,) = in_place()["stellwerk-explanations-reader"]["rules"]
    assert (rule["resourceNames"], rule["verbs"]) == (["kube-scheduler"], ["get"])
    of_readers = roles["stellwerk-explanations-reader:static-pod"]["rules"]
    assert of_readers[0] == rule
    assert all(each["resourceNames"] for each in of_readers), "kube-system has pods of others"


def profile(**spec: Any) -> JsonObject:
    return {"spec": {"schedulerName": "p", **spec}}


def of_load(**args: Any) -> JsonObject:
    return profile(pluginConfig=[{"name": "Other"}, {"name": "TargetLoadPacking", "args": args}])


PLAIN = "https://extender.example/a@b"
WITH_USER = "https://ada:secret@extender.example"
WITHOUT_CREDENTIALS = (
    profile(),
    profile(extenders=[{"urlPrefix": PLAIN}, {"urlPrefix": PLAIN, "tlsConfig": {"keyData": ""}}]),
    of_load(watcherAddress=PLAIN, metricProvider={"type": "Prometheus", "address": PLAIN}),
    of_load(metricProvider={"token": ""}),
)
WITH_CREDENTIALS = (
    profile(extenders=[{"urlPrefix": PLAIN}, {"urlPrefix": WITH_USER}]),
    profile(extenders=[{"urlPrefix": PLAIN, "tlsConfig": {"keyData": "a2V5"}}]),
    of_load(watcherAddress=WITH_USER),
    of_load(metricProvider={"token": "secret"}),
    of_load(metricProvider={"address": WITH_USER}),
)


def validations(text: str) -> list[JsonObject]:
    """Those of the policy on credentials, in a manifest or in a template of the chart."""
    plain = "\n".join(line for line in text.splitlines() if "{{" not in line)
    policy = next(iter(yaml.safe_load_all(plain)))
    assert policy["spec"]["failurePolicy"] == "Ignore"
    found: list[JsonObject] = policy["spec"]["validations"]
    return found


def test_a_profile_is_warned_of_where_a_credential_stands_in_it() -> None:
    """As the API server evaluates the policy."""
    manifest = (ROOT / "manifests" / "50-credentials.yaml").read_text("utf-8")
    template = (ROOT / "charts/stellwerk/templates/credentials.yaml").read_text("utf-8")
    rules = validations(manifest)
    assert validations(template) == rules
    environment = Environment({"object": DYN})
    programs = [environment.compile(each["expression"]) for each in rules]
    for obj, warned in (
        *((each, False) for each in WITHOUT_CREDENTIALS),
        *((each, True) for each in WITH_CREDENTIALS),
    ):
        answers = [each.evaluate({"object": obj}) for each in programs]
        assert (False in answers) is warned, obj


def test_a_second_apply_finds_the_rules_of_the_policy_as_the_api_server_stores_them() -> None:
    (policy,) = (each for each in objects() if each["kind"] == "ValidatingAdmissionPolicy")
    stored_by_default = {"scope": "*"}  # kubectl compares a list as a whole
    for rule in policy["spec"]["matchConstraints"]["resourceRules"]:
        assert rule.items() >= stored_by_default.items()


def test_the_uninstall_page_names_every_file_of_rights_that_is_applied_besides_the_base() -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    uninstall = page.partition("\n## Uninstall\n")[2].partition("\n## ")[0]
    base = {identity(each) for each in objects()}
    for file in sorted(MANIFESTS.glob("*/**/*.yaml")):
        own = {identity(each) for each in objects_of(file) if "Role" in each["kind"]} - base
        assert not own or f"-f {file.relative_to(ROOT)}" in uninstall, file


def objects_of(file: Path) -> list[JsonObject]:
    return [each for each in yaml.safe_load_all(file.read_text(encoding="utf-8")) if each]


def identity(obj: JsonObject) -> tuple[str, str, str]:
    metadata = obj.get("metadata") or {}
    return obj["kind"], metadata.get("namespace", ""), metadata.get("name", "")
