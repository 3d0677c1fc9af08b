from typing import Any

import pytest

from stellwerk_cli.embedded_cluster import ApiFeatures, api_features, open_cluster
from stellwerk_cluster.access_flags import AccessFlags
from stellwerk_cluster.admission.plugins import RBAC_PLUGINS, PluginFlags, default_plugins
from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.apimachinery.feature_gates import default_gates
from stellwerk_cluster.apimachinery.releases import DEFAULT_RELEASE
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from stellwerk_kube.errors import ConfigurationError


def test_flags_say_what_is_on_in_the_api() -> None:
    others = default_gates(DEFAULT_RELEASE)
    assert api_features() == ApiFeatures(PluginFlags(), others | {"GenericWorkload"})
    assert api_features(gates="GenericWorkload=false") == ApiFeatures(PluginFlags(), others)
    features = api_features(disabled="LimitRanger", gates="GenericWorkload=true")
    assert features == ApiFeatures(
        PluginFlags(disabled=frozenset({"LimitRanger"})), others | {"GenericWorkload"}
    )
    assert open_cluster(0, features=features).api.plugins == default_plugins(DEFAULT_RELEASE) - {
        "LimitRanger"
    }
    kinds = open_cluster(0, features=features).api.kinds
    assert kinds.find("scheduling.k8s.io", "v1beta1", "podgroups") is not None


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        pytest.param(
            {"enabled": "Nope"},
            "admission plugins: no admission plugin Nope; there are DefaultIngressClass, .*"
            "NamespaceLifecycle, .*NodeRestriction, .*ServiceAccount, ",
            id="plugin",
        ),
        pytest.param(
            {"enabled": "LimitRanger,Priority", "disabled": "Priority"},
            "Priority in enable-admission-plugins and disable-admission-plugins overlapped",
            id="plugin that is switched on and off",
        ),
        pytest.param(
            {"gates": "Nope=true"}, "--feature-gates: no gate Nope in 1.37; there are", id="gate"
        ),
    ],
)
def test_a_flag_that_names_nothing_is_refused(flags: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        api_features(**flags)


@pytest.mark.parametrize(
    ("authorization", "flags", "on"),
    [
        pytest.param("always-allow", {}, set(), id="nobody is asked for rights"),
        pytest.param("rbac", {}, set(RBAC_PLUGINS), id="rights are enforced"),
        pytest.param(
            "always-allow",
            {"enabled": "ServiceAccount"},
            {"ServiceAccount"},
            id="service accounts without rights",
        ),
        pytest.param(
            "rbac",
            {"disabled": "ServiceAccount"},
            {"NodeRestriction"},
            id="rights without service accounts",
        ),
        pytest.param(
            "rbac", {"disabled": "NodeRestriction,ServiceAccount"}, set(), id="rights alone"
        ),
    ],
)
def test_service_accounts_and_the_bounds_of_kubelets_are_admission_plugins(
    authorization: Any, flags: dict[str, str], on: set[str]
) -> None:
    cluster = open_cluster(
        0, access=AccessFlags(authorization, controllers="none"), features=api_features(**flags)
    )
    assert cluster.api.plugins == default_plugins(DEFAULT_RELEASE) | on
    names = {type(each).__name__ for each in cluster.api.write_admission}
    assert ("ServiceAccountAdmission" in names) == ("ServiceAccount" in on)
    assert ("NodeRestriction" in names) == ("NodeRestriction" in on)


def test_without_namespace_lifecycle_objects_need_no_namespace() -> None:
    api = open_cluster(0, features=api_features(disabled="NamespaceLifecycle")).api
    maps = api.kinds.resource("configmaps")
    assert api.create(maps, "nowhere", {"metadata": {"name": "m"}}).key == ("nowhere", "m")
    with pytest.raises(StatusError, match='namespaces "nowhere" not found'):
        open_cluster(0).api.create(maps, "nowhere", {"metadata": {"name": "m"}})


def test_without_namespace_lifecycle_every_namespace_can_be_deleted() -> None:
    for disabled in ("", "NamespaceLifecycle"):
        api = open_cluster(0, features=api_features(disabled=disabled)).api
        namespaces = api.kinds.resource("namespaces")
        if disabled:
            assert not delete(api, namespaces, ("", "default"), DeleteOptions()).gone
            api.create(api.kinds.resource("configmaps"), "default", {"metadata": {"name": "m"}})
        else:
            with pytest.raises(StatusError, match="this namespace may not be deleted"):
                delete(api, namespaces, ("", "default"), DeleteOptions())


def test_a_release_and_its_versions_are_chosen_by_flags() -> None:
    features = api_features()
    assert features.groups_of_pods() == (
        "Kubernetes 1.37; scheduling.k8s.io/v1beta1 (PodGroups, Workloads) is served"
    )
    assert "v1alpha2 (PodGroups" in api_features(release="1.36").groups_of_pods()
    off = api_features(release="1.36", runtime="scheduling.k8s.io/v1alpha2=false")
    assert off.groups_of_pods() == "Kubernetes 1.36; PodGroups and Workloads are not served"
    api = open_cluster(0, features=features).api
    assert api.release == "1.37"
    assert "VolumeLimitScaling" in api.features
    assert "PodGroupWorkloadExists" not in api.plugins
    newest = api_features(release="1.38")
    assert newest.groups_of_pods() == (
        "Kubernetes 1.38; scheduling.k8s.io/v1 (PodGroups, Workloads) is served"
    )
    with pytest.raises(ConfigurationError, match=r"there are 1\.36, 1\.37, 1\.38"):
        api_features(release="1.35")
    with pytest.raises(ConfigurationError, match="no admission plugin PodGroupWorkloadExists"):
        api_features(enabled="PodGroupWorkloadExists", release="1.37")
    with pytest.raises(ConfigurationError, match=r"--runtime-config: .*v1alpha2 that has not been"):
        api_features(release="1.37", runtime="scheduling.k8s.io/v1alpha2=true")


@pytest.mark.parametrize(
    ("release", "gates", "runtime", "refused"),
    [
        pytest.param("1.38", "GenericWorkload=true", "", False, id="v1 is served"),
        pytest.param("1.38", "", "scheduling.k8s.io/v1=false", False, id="on by default"),
        pytest.param(
            "1.38", "GenericWorkload=true", "scheduling.k8s.io/v1=false", True, id="on by a flag"
        ),
        pytest.param(
            "1.38",
            "GenericWorkload=true",
            "scheduling.k8s.io/v1=false,scheduling.k8s.io/v1beta1=true",
            False,
            id="any version will do",
        ),
        pytest.param(
            "1.38", "GenericWorkload=false", "scheduling.k8s.io/v1=false", False, id="off by a flag"
        ),
        pytest.param(
            "1.37",
            "GenericWorkload=true",
            "scheduling.k8s.io/v1beta1=false",
            False,
            id="older releases only lack the kinds",
        ),
    ],
)
def test_a_gate_that_a_flag_turns_on_needs_a_version_of_its_kinds(
    release: str, gates: str, runtime: str, *, refused: bool
) -> None:
    if not refused:
        api_features(gates=gates, release=release, runtime=runtime)
        return
    with pytest.raises(ConfigurationError, match="GenericWorkload is enabled, but --runtime-confi"):
        api_features(gates=gates, release=release, runtime=runtime)
