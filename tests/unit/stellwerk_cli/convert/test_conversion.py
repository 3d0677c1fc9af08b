"""Old configurations become profiles: pairs of files, and what is refused."""

import argparse
import io
import json
import re
from fnmatch import fnmatch
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml

from stellwerk.plugins.registry import ENTRY_POINT_GROUP as REGISTRY_GROUP
from stellwerk.plugins.registry import IN_TREE, add_installed, installed_points, known_plugins
from stellwerk.profiles.spec.plugin_description import ExtensionPoint
from stellwerk.profiles.spec.profile import load_profile
from stellwerk_cli.cli import main
from stellwerk_cli.commands import run
from stellwerk_cli.convert.conversion import (
    NOT_IN_PROFILES,
    convert,
    convert_command,
    convert_text,
    render,
)
from stellwerk_cli.convert.draft import normal_extender
from stellwerk_cli.convert.plugins import ENTRY_POINT_GROUP, OFF_BY_DEFAULT, unknown_plugin
from stellwerk_kube.errors import ConfigurationError, ProfileError
from stellwerk_kube.json_values import JsonObject
from tests.support.plugin_descriptions import KNOWN_PLUGINS, describe
from tests.support.repository import ROOT

CASES = ROOT / "tests" / "data" / "convert"

KNOWN = {
    **KNOWN_PLUGINS,
    "MyPlugin": describe("MyPlugin", "filter score"),
    "MyPreScore": describe("MyPreScore", "preScore"),
    "MyReserve": describe("MyReserve", "reserve"),
}


def names() -> list[str]:
    return sorted(path.name.removesuffix(".in.yaml") for path in CASES.glob("*.in.yaml"))


@pytest.mark.parametrize("name", names())
def test_a_configuration_becomes_profiles(name: str) -> None:
    converted = convert_text((CASES / f"{name}.in.yaml").read_text())
    warnings = CASES / f"{name}.warnings.txt"
    assert render(converted) == (CASES / f"{name}.out.yaml").read_text()
    assert list(converted.warnings) == (
        warnings.read_text().splitlines() if warnings.exists() else []
    )


@pytest.mark.parametrize("name", names())
def test_a_converted_profile_loads(name: str) -> None:
    for manifest in convert_text((CASES / f"{name}.in.yaml").read_text()).manifests:
        config = manifest["spec"].get("pluginConfig", [])
        own = [each for each in config if each["name"] != "MyPlugin"]
        spec = {**manifest["spec"], "pluginConfig": own}
        loaded = load_profile({**manifest, "spec": spec}, KNOWN)
        assert loaded.scheduler_name == manifest["spec"]["schedulerName"]


def config(version: str = "v1", **fields: Any) -> JsonObject:
    return {
        "apiVersion": f"kubescheduler.config.k8s.io/{version}",
        "kind": "KubeSchedulerConfiguration",
        **fields,
    }


def policy(**fields: Any) -> JsonObject:
    return {"apiVersion": "v1", "kind": "Policy", **fields}


def spec(document: JsonObject) -> JsonObject:
    (manifest,) = convert(document).manifests
    written: JsonObject = manifest["spec"]
    return written


@pytest.mark.parametrize(
    ("global_", "own", "written"),
    [
        pytest.param(None, None, 0, id="unset was adaptive"),
        pytest.param(0, None, 0, id="0 was adaptive"),
        pytest.param(70, None, 70, id="the configuration's counts"),
        pytest.param(70, 30, 30, id="the profile's counts more"),
        pytest.param(70, 0, 0, id="the profile's 0 counts more"),
    ],
)
def test_percentage_is_always_written(global_: int | None, own: int | None, written: int) -> None:
    document = config(
        percentageOfNodesToScore=global_,
        profiles=[{"schedulerName": "p", "percentageOfNodesToScore": own}],
    )
    assert spec(document)["percentageOfNodesToScore"] == written


@pytest.mark.parametrize("version", ["v1", "v1beta3", "v1beta2", "v1beta1", "v1alpha2", "v1alpha1"])
def test_an_empty_configuration_is_the_default_scheduler(version: str) -> None:
    assert spec(config(version))["schedulerName"] == "default-scheduler"


@pytest.mark.parametrize(
    ("document", "field", "message"),
    [
        (config(proflies=[]), "proflies", 'unknown field; did you mean "profiles"?'),
        (config(nothingLike=1), "nothingLike", "unknown field"),
        (
            config(profiles=[{"schedulerName": "p", "plugin": {}}]),
            "profiles[0].plugin",
            'unknown field; did you mean "plugins"?',
        ),
    ],
)
def test_an_unknown_field_is_refused_as_kube_scheduler_refuses_it(
    document: JsonObject, field: str, message: str
) -> None:
    with pytest.raises(ProfileError) as caught:
        convert(document)
    assert (caught.value.field, caught.value.message) == (field, message)


def test_arguments_that_stellwerk_alone_has_are_known() -> None:
    args = {
        "DefaultPreemption": {
            "minRunSeconds": 600,
            "spareDaemonSetPods": True,
            "orderByDeletionCost": True,
        },
        "PodTopologySpread": {"defaultingType": "System", "giveWayAfterSeconds": 300},
    }
    plugin_config = [{"name": name, "args": each} for name, each in args.items()]
    converted = convert(config(profiles=[{"pluginConfig": plugin_config}]))
    [profile] = converted.manifests
    assert {each["name"]: each["args"] for each in profile["spec"]["pluginConfig"]} == args
    assert not converted.warnings
    plugin_config[0]["args"] = {"minRunSeconds": -1, "spareDaemonSetPods": True}
    with pytest.raises(ProfileError, match=r"args\.minRunSeconds: must be at least 0"):
        convert(config(profiles=[{"pluginConfig": plugin_config}]))


def test_a_policy_without_lists_has_the_default_plugins_with_the_old_weights() -> None:
    assert spec(policy()) == {
        "schedulerName": "default-scheduler",
        "percentageOfNodesToScore": 0,
        "weights": {"TaintToleration": 1, "NodeAffinity": 1, "InterPodAffinity": 1},
    }


def test_a_policy_filters_and_scores_with_exactly_what_it_names() -> None:
    document = policy(
        predicates=[{"name": "PodFitsResources"}, {"name": "MatchInterPodAffinity"}],
        priorities=[{"name": "ImageLocalityPriority"}, {"name": "InterPodAffinityPriority"}],
    )
    (manifest,) = convert(document).manifests
    plugins = load_profile(manifest, KNOWN).plugins
    filters = set(plugins.at(ExtensionPoint.FILTER))
    assert filters == {
        "NodeResourcesFit",
        "InterPodAffinity",
        # Mandatory whatever a policy says, and newer than policies.
        "TaintToleration",
        "NodeUnschedulable",
        "DynamicResources",
        "NodeDeclaredFeatures",
    }
    assert plugins.weights == {"ImageLocality": 1, "InterPodAffinity": 1, "DynamicResources": 2}


def test_an_empty_list_of_priorities_scores_nothing() -> None:
    (manifest,) = convert(policy(priorities=[])).manifests
    assert set(load_profile(manifest, KNOWN).plugins.weights) == {"DynamicResources"}


def test_the_policy_that_a_configuration_names_is_read() -> None:
    text = yaml.safe_dump(
        config(
            "v1alpha1",
            schedulerName="mine",
            algorithmSource={"policy": {"file": {"path": "/etc/policy.json"}}},
        )
    )
    files = {"/etc/policy.json": yaml.safe_dump(policy(alwaysCheckAllPredicates=True))}
    (manifest,) = convert_text(text, files.__getitem__).manifests
    assert manifest["spec"]["schedulerName"] == "mine"
    assert manifest["spec"]["checkAllFilters"] is True


def test_a_policy_that_cannot_be_read_is_warned_about() -> None:
    source = {"policy": {"file": {"path": "/etc/policy.json"}}}
    converted = convert(config("v1alpha1", algorithmSource=source))
    assert any("convert /etc/policy.json" in warning for warning in converted.warnings)


def test_the_source_is_left_as_it_was() -> None:
    document = yaml.safe_load((CASES / "v1beta1-old-plugins.in.yaml").read_text())
    before = yaml.safe_dump(document)
    convert(document)
    assert yaml.safe_dump(document) == before


def test_a_file_may_hold_several_configurations() -> None:
    text = yaml.safe_dump_all([config(), policy()])
    assert len(convert_text(text).manifests) == 2


@pytest.mark.parametrize(
    ("document", "field"),
    [
        pytest.param(
            policy(priorities=[{"name": "ImageLocalityPriority", "weight": -1}]),
            "priorities[0].weight",
            id="negative weight of a priority",
        ),
        pytest.param(
            policy(
                priorities=[
                    {
                        "name": "RequestedToCapacityRatioPriority",
                        "argument": {
                            "requestedToCapacityRatioArguments": {
                                "shape": [{"utilization": 0, "score": 0}],
                                "resources": [{"name": "CPU", "weight": -3}],
                            }
                        },
                    }
                ]
            ),
            "priorities[0].argument.requestedToCapacityRatioArguments.resources[0].weight",
            id="negative weight of a resource",
        ),
        pytest.param(
            config(profiles=[{"schedulerName": "a"}, {}]),
            "profiles[1].schedulerName",
            id="one of several profiles without a name",
        ),
        pytest.param(
            config(profiles=[{"schedulerName": "a"}, {"schedulerName": "a"}]),
            "profiles[1].schedulerName",
            id="two profiles of one name",
        ),
        pytest.param(config(profiles={}), "profiles", id="profiles as an object"),
        pytest.param(
            config(profiles=[{"plugins": {"score": {"enabled": {"name": "x"}}}}]),
            "profiles[0].plugins.score.enabled",
            id="plugins as an object",
        ),
        pytest.param(
            config(profiles=[{"plugins": {"score": {"enabled": [{"name": "A", "weight": -1}]}}}]),
            "profiles[0].plugins.score.enabled[0].weight",
            id="negative weight of a plugin",
        ),
        pytest.param(
            config(
                profiles=[
                    {"pluginConfig": [{"name": "InterPodAffinity"}, {"name": "InterPodAffinity"}]}
                ]
            ),
            "profiles[0].pluginConfig[1]",
            id="arguments twice",
        ),
        pytest.param(
            config(
                profiles=[
                    {
                        "pluginConfig": [
                            {"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 101}}
                        ]
                    }
                ]
            ),
            "profiles[0].pluginConfig[0].args.hardPodAffinityWeight",
            id="an argument out of range",
        ),
        pytest.param(
            config(
                extenders=[{"urlPrefix": "http://x", "managedResources": [{"name": "shunter"}]}]
            ),
            "extenders[0].managedResources[0].name",
            id="a resource of an extender",
        ),
        pytest.param(
            config(
                profiles=[
                    {"pluginConfig": [{"name": "Foreign", "args": {"a": 1}}]},
                ],
                percentageOfNodesToScore=-1,
            ),
            "percentageOfNodesToScore",
            id="a percentage of all profiles",
        ),
        pytest.param(
            config(
                profiles=[
                    {
                        "pluginConfig": [
                            {"name": "Foreign", "args": {"a": 1}},
                            {"name": "NodeAffinity", "args": {"addedAffinity": 1}},
                        ]
                    },
                ],
            ),
            "profiles[0].pluginConfig[1].args.addedAffinity",
            id="an argument behind those that are left out",
        ),
        pytest.param(
            config(extenders=[{"filterVerb": "filter"}]),
            "extenders[0].urlPrefix",
            id="an extender without a URL",
        ),
        pytest.param(
            config(extenders=[{"urlPrefix": "http://x", "prioritizeVerb": "p", "weight": -1}]),
            "extenders[0].weight",
            id="negative weight of an extender",
        ),
    ],
)
def test_refused_values(document: JsonObject, field: str) -> None:
    with pytest.raises(ProfileError) as caught:
        convert(document)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "the file is empty", id="nothing"),
        pytest.param("a: [", "not valid YAML or JSON", id="broken"),
        pytest.param("[" * 20_000, "not valid YAML or JSON", id="nested too deeply"),
        pytest.param("- 1", "expected a KubeSchedulerConfiguration or Policy", id="a list"),
        pytest.param("a: 1", "an object without a kind", id="no kind"),
        pytest.param("{apiVersion: v1, kind: Pod}", "cannot convert Pod of v1", id="a pod"),
        pytest.param(
            "{apiVersion: kubescheduler.config.k8s.io/v2, kind: KubeSchedulerConfiguration}",
            "cannot convert KubeSchedulerConfiguration of kubescheduler.config.k8s.io/v2",
            id="a version of the future",
        ),
    ],
)
def test_other_files(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        convert_text(text)


@pytest.mark.parametrize("written", [{}, {"httpTimeout": "0s"}, {"httpTimeout": 0}])
def test_an_extender_without_a_timeout_keeps_that_of_kube_scheduler(written: JsonObject) -> None:
    extender = normal_extender({"urlPrefix": "http://x", **written}, "extenders[0]")
    assert extender["httpTimeout"] == "5s"


def test_a_plugin_that_is_not_installed_is_kept_with_a_warning() -> None:
    text = json.dumps(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [
                {
                    "schedulerName": "mine",
                    "plugins": {
                        "score": {
                            "enabled": [{"name": "NodeResourceFit"}, {"name": "ImageLocality"}],
                            "disabled": [{"name": "*"}],
                        },
                        "permit": {"enabled": [{"name": "GangSchedulin"}]},
                    },
                    "pluginConfig": [{"name": "GangSchedulin", "args": {}}],
                }
            ],
        }
    )
    converted = convert_text(text)
    said = [warning for warning in converted.warnings if "is installed here" in warning]
    assert [warning.split(": ")[0] for warning in said] == [
        "profiles[0].plugins.score.enabled[0]",
        "profiles[0].plugins.permit.enabled[0]",
    ]
    assert 'no plugin "NodeResourceFit"' in said[0]
    assert 'did you mean "NodeResourcesFit"?' in said[0]
    assert 'did you mean "GangScheduling"?' in said[1]


ADDED = config(
    profiles=[
        {
            "plugins": {
                "multiPoint": {
                    "enabled": [
                        {"name": "TargetLoadPacking"},
                        {"name": "NodeResourceTopologyMatch"},
                        {"name": "CapacityScheduling"},
                        {"name": "Peaks"},
                    ]
                },
                "postFilter": {"disabled": [{"name": "DefaultPreemption"}]},
            },
            "pluginConfig": [
                {
                    "name": "TargetLoadPacking",
                    "args": {
                        "apiVersion": "kubescheduler.config.k8s.io/v1",
                        "kind": "TargetLoadPackingArgs",
                        "targetUtilization": 70,
                        "metricProvider": {"type": "SignalFx"},
                    },
                },
                {
                    "name": "NodeResourceTopologyMatch",
                    "args": {
                        "kind": "NodeResourceTopologyMatchArgs",
                        "cacheResyncPeriodSeconds": 5,
                        "preemptionMode": "Enabled",
                        "cacheSize": 3,
                        "scoringStrategy": {"type": "Fewest", "resources": [{"weight": 2}]},
                    },
                },
                {"name": "CapacityScheduling", "args": {"fairness": True}},
                {"name": "Peaks", "args": {"watcherAddress": "http://watcher:2020"}},
            ],
        }
    ]
)


def test_arguments_of_plugins_that_people_add_are_kept_as_far_as_their_model_takes_them() -> None:
    converted = convert(ADDED)
    place = "profiles[0].pluginConfig"
    assert [warning for warning in converted.warnings if warning.startswith(place)] == [
        (
            f"{place}[0].args.metricProvider.type: SignalFx is not read: "
            "have a load-watcher read it (watcherAddress)"
        ),
        f"{place}[1].args.cacheSize: unknown field; left out",
        (
            f"{place}[1].args.scoringStrategy.type: must be 'MostAllocated', 'BalancedAllocation', "
            "'LeastAllocated' or 'LeastNUMANodes', not 'Fewest'; left out"
        ),
        f"{place}[1].args.scoringStrategy.type: required; left out with all of scoringStrategy",
        f"{place}[1].args.preemptionMode: must be 'Disabled', not 'Enabled'; left out",
        f"{place}[2].args.fairness: unknown field; left out",
        (
            f"{place}[3].args.NodePowerModel: required: k0, k1 and k2 of each node; the profile is "
            "refused until it is given"
        ),
    ]
    (manifest,) = converted.manifests
    assert manifest["spec"]["pluginConfig"] == [
        {
            "name": "TargetLoadPacking",
            "args": {"targetUtilization": 70, "metricProvider": {"type": "SignalFx"}},
        },
        {"name": "NodeResourceTopologyMatch", "args": {"cacheResyncPeriodSeconds": 5}},
        {"name": "Peaks", "args": {"WatcherAddress": "http://watcher:2020"}},
    ]
    del manifest["spec"]["pluginConfig"][2]
    del manifest["spec"]["plugins"]["multiPoint"]["enabled"][3]
    add_installed(installed_points())
    assert load_profile(manifest, known_plugins()).scheduler_name == "default-scheduler"


def test_the_names_of_in_tree_plugins_are_those_of_the_registry() -> None:
    in_tree = {
        name for plugin in IN_TREE for name in (plugin.name, *getattr(plugin, "aliases", ()))
    }
    assert {name for name in in_tree if unknown_plugin(name)} == set()
    assert OFF_BY_DEFAULT - in_tree == set()
    assert ENTRY_POINT_GROUP == REGISTRY_GROUP


def test_each_flag_that_a_warning_names_is_one_of_the_operator() -> None:
    parser = argparse.ArgumentParser()
    run.add_arguments(parser)
    flags = re.findall(r"--[a-z-]+", parser.format_help())
    named = [
        flag for text in NOT_IN_PROFILES.values() for flag in re.findall(r"--[a-z-]+\*?", text)
    ]
    assert len(named) >= 7
    assert [flag for flag in named if not any(fnmatch(known, flag) for known in flags)] == []


POLICY = '{"kind": "Policy", "predicates": [{"name": "PodFitsResources"}], "priorities": []}'


def written(directory: Path, text: str) -> str:
    path = directory / "config.yaml"
    path.write_text(text)
    return str(path)


def test_manifests_go_to_standard_output_and_remarks_to_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(
        tmp_path,
        "apiVersion: kubescheduler.config.k8s.io/v1\n"
        "kind: KubeSchedulerConfiguration\n"
        "parallelism: 8\n"
        "profiles: [{schedulerName: packing}, {schedulerName: spreading}]\n",
    )
    assert main(["convert", path]) == 0
    captured = capsys.readouterr()
    manifests = list(yaml.safe_load_all(captured.out))
    assert [each["spec"]["schedulerName"] for each in manifests] == ["packing", "spreading"]
    assert captured.err.startswith(f"{path}: parallelism")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("", "the file is empty", id="an empty file"),
        pytest.param("a: [", "not valid YAML or JSON", id="broken YAML"),
        pytest.param("kind: Pod\napiVersion: v1\n", "cannot convert Pod of v1", id="another kind"),
        pytest.param(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
            "podMaxBackoffSeconds: -1\n",
            "podMaxBackoffSeconds",
            id="a value out of range",
        ),
    ],
)
def test_what_cannot_be_converted_is_one_line_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    assert main(["convert", written(tmp_path, text)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert len(captured.err.splitlines()) == 1


def test_a_file_that_is_not_there_is_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", str(tmp_path / "absent")]) == 2
    assert "cannot be read: No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize("there", [True, False])
def test_the_policy_file_of_an_old_configuration_is_read_if_it_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, there: bool
) -> None:
    if there:
        (tmp_path / "policy.json").write_text(POLICY)
    path = written(
        tmp_path,
        "apiVersion: kubescheduler.config.k8s.io/v1alpha1\n"
        "kind: KubeSchedulerConfiguration\n"
        "algorithmSource: {policy: {file: {path: policy.json}}}\n",
    )
    assert main(["convert", path]) == 0
    captured = capsys.readouterr()
    assert ("convert policy.json" in captured.err) is not there
    (manifest,) = yaml.safe_load_all(captured.out)
    assert ("plugins" in manifest["spec"]) is there


def test_flags_that_files_and_addresses_of_extenders_need_are_printed(tmp_path: Path) -> None:
    source = tmp_path / "scheduler.yaml"
    source.write_text("""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
extenders:
- urlPrefix: http://user:word@127.0.0.1:8888/scheduler/
  filterVerb: filter
- urlPrefix: https://gpu.tools.svc:8443/scheduler
  filterVerb: filter
  enableHTTPS: true
  tlsConfig: {certFile: /etc/ssl/tls/a.crt, keyFile: /etc/ssl/tls/a.key, caFile: /etc/ssl/ca.crt}
""")
    remarks, output = StringIO(), StringIO()
    assert convert_command(str(source), output, remarks) == 0
    needed = "--extender-allow=http://127.0.0.1:8888/scheduler --extender-files-dir=/etc/ssl"
    assert remarks.getvalue().splitlines()[-3:] == [
        f"{source}: in a cluster, stellwerk run needs {needed}",
        f"{source}: the file /etc/ssl/tls/hosts has to name https://gpu.tools.svc:8443",
        f"{source}: the file /etc/ssl/hosts has to name https://gpu.tools.svc:8443",
    ]


def test_a_service_by_name_needs_no_flag() -> None:
    converted = convert_text(
        "{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration, "
        "extenders: [{urlPrefix: 'http://gpu.tools:80', filterVerb: filter}]}"
    )
    assert not converted.flags


def test_credentials_are_moved_into_a_secret_beside_the_profile(tmp_path: Path) -> None:
    source = tmp_path / "scheduler.yaml"
    source.write_text("""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
extenders:
- urlPrefix: https://user:p%40ss@gpu.tools.svc/scheduler
  filterVerb: filter
  enableHTTPS: true
  tlsConfig: {certData: Y2VydA==, keyData: a2V5, caData: Y2E=}
- urlPrefix: http://plain.tools.svc
  filterVerb: filter
""")
    remarks, output = StringIO(), StringIO()
    assert convert_command(str(source), output, remarks) == 0
    secret, profile = yaml.safe_load_all(output.getvalue())
    reference = {"namespace": "stellwerk", "name": "default-scheduler-extender-0"}
    assert secret == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            **reference,
            "annotations": {"scheduling.stellwerk.dev/hosts": "https://gpu.tools.svc"},
        },
        "type": "Opaque",
        "data": {
            "username": "dXNlcg==",
            "password": "cEBzcw==",
            "tls.crt": "Y2VydA==",
            "tls.key": "a2V5",
            "ca.crt": "Y2E=",
        },
    }
    first, second = profile["spec"]["extenders"]
    assert first["urlPrefix"] == "https://gpu.tools.svc/scheduler"
    assert first["secretRef"] == first["tlsConfig"]["secretRef"] == reference
    assert first["tlsConfig"].keys() == {"secretRef"}
    assert "secretRef" not in second
    assert "extenders.secrets has to name: default-scheduler-extender-0" in remarks.getvalue()
    load_profile(profile, KNOWN_PLUGINS)


@pytest.mark.parametrize(
    ("field", "plugin", "remarked"),
    [
        ("enabled", "DefaultPreemption", False),
        ("enabled", "DynamicResources", False),
        ("enabled", "Mine", True),
        ("disabled", "DefaultPreemption", True),
        ("disabled", "*", True),
    ],
)
def test_the_list_for_groups_is_known_and_what_it_changes_is_said(
    field: str, plugin: str, *, remarked: bool
) -> None:
    point = {field: [{"name": plugin}]}
    converted = convert(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{"plugins": {"podGroupPostFilter": point}}],
        }
    )
    place = f"profiles[0].plugins.podGroupPostFilter.{field}[0]"
    said = f"{place}: groups preempt as postFilter says, and have no list of their own"
    assert list(converted.warnings) == ([said] if remarked else [])


@pytest.mark.parametrize(
    ("names", "remarked"),
    [
        pytest.param(["TopologyPlacementGenerator", "PodGroupPodsCount"], True, id="1.36's list"),
        pytest.param(["GangScheduling", "TopologyPlacementGenerator"], False, id="with gangs"),
        pytest.param(["PodGroupPodsCount"], False, id="no placements"),
    ],
)
def test_a_topology_that_would_be_lost_is_said(names: list[str], *, remarked: bool) -> None:
    """kube-scheduler 1.36 with two gates on and GangScheduling off keeps it."""
    enabled = [{"name": name} for name in ("NodeName", *names)]
    converted = convert(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{"plugins": {"multiPoint": {"enabled": enabled}}}],
        }
    )
    begins = "profiles[0].plugins: TopologyPlacementGenerator has no effect without GangScheduling"
    assert [each.startswith(begins) for each in converted.warnings] == [True] * remarked


TWO_PREDICATES = {
    "kind": "Policy",
    "apiVersion": "v1",
    "predicates": [{"name": "PodFitsResources"}, {"name": "PodFitsHostPorts"}],
    "priorities": [{"name": "LeastRequestedPriority", "weight": 1}],
}


def test_json_may_have_tabs() -> None:
    with_tabs = json.dumps(TWO_PREDICATES, indent="\t")
    assert "\t" in with_tabs
    assert convert_text(with_tabs) == convert_text(json.dumps(TWO_PREDICATES))


def config_map(name: str, **data: str) -> JsonObject:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def test_a_config_map_is_converted_by_what_it_holds() -> None:
    held = yaml.safe_dump(config(profiles=[{"schedulerName": "packing"}]))
    objects = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "s"}},
        config_map("c", **{"config.yaml": held, "notes.txt": "not: [yaml"}),
        config_map("other", key="value"),
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}},
    ]
    for text in (
        yaml.safe_dump_all(objects),
        yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": objects}),
    ):
        converted = convert_text(text)
        assert [each["metadata"]["name"] for each in converted.manifests] == ["packing"]
        assert converted.warnings == (
            "not converted: 1 ConfigMap without a configuration, 1 Deployment, 1 ServiceAccount",
        )


def test_mistakes_in_a_config_map_are_named_with_their_key() -> None:
    held = yaml.safe_dump(config(profiles=[{"schedulerNam": "x"}]))
    with pytest.raises(ProfileError, match=r"ConfigMap c, k: profiles\[0\]\.schedulerNam: unknown"):
        convert_text(yaml.safe_dump(config_map("c", k=held)))
    broken = "kind: KubeSchedulerConfiguration\nprofiles: ["
    with pytest.raises(ConfigurationError, match="ConfigMap c, k: not valid YAML or JSON"):
        convert_text(yaml.safe_dump(config_map("c", k=broken)))
    with pytest.raises(ConfigurationError, match="ConfigMap without a configuration"):
        convert_text(yaml.safe_dump(config_map("c", k="text")))


def test_the_policy_of_a_config_map_beside_its_configuration_is_used() -> None:
    naming = config(
        "v1alpha1",
        schedulerName="mine",
        algorithmSource={"policy": {"configMap": {"name": "p", "namespace": "kube-system"}}},
    )
    text = yaml.safe_dump_all(
        [naming, config_map("p", **{"policy.cfg": json.dumps(TWO_PREDICATES)})]
    )
    converted = convert_text(text)
    [manifest] = converted.manifests
    assert {"name": "VolumeBinding"} in manifest["spec"]["plugins"]["multiPoint"]["disabled"]
    assert not [each for each in converted.warnings if "not part of this file" in each]
    path = {"path": "/etc/kubernetes/scheduler/policy.yaml"}
    mounted = config("v1alpha1", schedulerName="mine", algorithmSource={"policy": {"file": path}})
    data = {"config.yaml": yaml.safe_dump(mounted), "policy.yaml": yaml.safe_dump(TWO_PREDICATES)}
    beside = convert_text(yaml.safe_dump(config_map("both", **data)))
    assert beside.manifests == converted.manifests


def test_a_policy_of_another_group_is_not_converted() -> None:
    audit = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": []}
    with pytest.raises(ConfigurationError, match=r"cannot convert Policy of audit\.k8s\.io/v1"):
        convert_text(yaml.safe_dump(audit))
    converted = convert_text(yaml.safe_dump_all([audit, config()]))
    assert converted.warnings[-1] == "not converted: 1 Policy"


@pytest.mark.parametrize("points", [(), ("score",), ("filter",), ("filter", "score")])
def test_labels_that_node_label_asks_for_count_where_it_filters(points: tuple[str, ...]) -> None:
    enabled = {point: {"enabled": [{"name": "NodeLabel"}]} for point in points}
    arguments = {"name": "NodeLabel", "args": {"presentLabels": ["rack"]}}
    converted = convert(
        config("v1alpha2", profiles=[{"plugins": enabled, "pluginConfig": [arguments]}])
    )
    [manifest] = converted.manifests
    names = [each["name"] for each in manifest["spec"].get("pluginConfig") or ()]
    assert ("NodeAffinity" in names) is ("filter" in points)
    said = [each for each in converted.warnings if "no effect" in each]
    assert bool(said) is ("filter" not in points)


def test_arguments_of_a_plugin_from_elsewhere_are_its_own() -> None:
    arguments: JsonObject = {"scoringStrategy": "Highest", "resources": 5, "shape": [1]}
    plugins = {"score": {"enabled": [{"name": "LabelScore", "weight": 5}]}}
    listed = [{"name": "LabelScore", "args": arguments}, {"name": "Unused", "args": {"a": 1}}]
    listed.append({"name": "Texts", "args": "a"})
    converted = convert(config(profiles=[{"plugins": plugins, "pluginConfig": listed}]))
    [manifest] = converted.manifests
    assert manifest["spec"]["pluginConfig"] == [{"name": "LabelScore", "args": arguments}]
    assert "profiles[0].pluginConfig[2].args: must be an object, left out" in converted.warnings
    unused = "profiles[0].pluginConfig[1].args: Unused is not enabled: "
    assert f"{unused}its arguments have no effect, left out" in converted.warnings


@pytest.mark.parametrize("point", ["multiPoint", "permit"])
def test_coscheduling_becomes_gang_scheduling(point: str) -> None:
    plugins = {
        point: {"enabled": [{"name": "Coscheduling"}]},
        "queueSort": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]},
    }
    arguments = {"permitWaitingTimeSeconds": 10, "podGroupBackoffSeconds": 5}
    listed = [{"name": "Coscheduling", "args": arguments}]
    converted = convert(config(profiles=[{"plugins": plugins, "pluginConfig": listed}]))
    [manifest] = converted.manifests
    assert manifest["spec"]["gangScheduling"] is True
    assert not {"plugins", "pluginConfig"} & manifest["spec"].keys()
    add_installed(installed_points())
    assert load_profile(manifest, known_plugins()).scheduler_name == "default-scheduler"
    place = "profiles[0].pluginConfig[0].args"
    said = [each for each in converted.warnings if each.startswith(place)]
    assert said[0].startswith(f"{place}: Coscheduling becomes gangScheduling, which reads the same")
    assert [each.partition(": ")[0] for each in said[1:]] == [
        f"{place}.permitWaitingTimeSeconds",
        f"{place}.podGroupBackoffSeconds",
    ]


def test_the_configuration_in_an_export_of_the_simulator_is_converted() -> None:
    export = {"pods": [], "nodes": [{"metadata": {"name": "n"}}], "schedulerConfig": config()}
    [manifest] = convert_text(yaml.safe_dump(export)).manifests
    assert manifest["spec"]["schedulerName"] == "default-scheduler"


def test_a_template_is_called_one() -> None:
    text = "kind: KubeSchedulerConfiguration\nprofiles:\n  {{- toYaml .Values.profiles }}\n"
    with pytest.raises(ConfigurationError, match="a template"):
        convert_text(text)


def test_standard_input_is_read_as_a_file_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def converted(content: bytes) -> str:
        output = io.StringIO()
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert convert_command("-", output, io.StringIO()) == 0
        return output.getvalue()

    text = yaml.safe_dump(config())
    assert converted(text.encode()) == converted(text.encode("utf-16"))
    with pytest.raises(ConfigurationError, match=r"^-: line 2: not UTF-8"):
        converted(b"a: b\nc: \xe4")
