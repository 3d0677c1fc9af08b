"""Arguments of the plugins that people add: what is refused, and what a converted profile keeps."""

from typing import Any

import pytest

from stellwerk.plugins.registry import known_plugins
from stellwerk.profiles.spec.profile import load_profile
from stellwerk_cli.convert.conversion import convert_text
from stellwerk_kube.errors import ProfileError

MODEL = {"n": {"k0": 1, "k1": 1, "k2": 1}}


def load(plugin: str, args: dict[str, Any]) -> None:
    config = [{"name": plugin, "args": args}]
    plugins = {"multiPoint": {"enabled": [{"name": plugin}]}}
    spec = {"schedulerName": "own", "plugins": plugins, "pluginConfig": config}
    load_profile({"metadata": {"name": "own"}, "spec": spec}, known_plugins())


@pytest.mark.parametrize(
    ("plugin", "args", "text"),
    [
        ("TargetLoadPacking", {"metricProvider": {"type": "Datadog"}}, "metricProvider.type"),
        (
            "TargetLoadPacking",
            {"metricProvider": {"type": "Prometheus"}},
            "address of a Prometheus",
        ),
        ("TargetLoadPacking", {"defaultRequestsMultiplier": "abc"}, 'such as "1.5"'),
        ("TargetLoadPacking", {"defaultRequestsMultiplier": ""}, 'such as "1.5"'),
        ("TargetLoadPacking", {"watcherAddress": "watcher:2020"}, "address of a service"),
        ("TargetLoadPacking", {"defaultRequests": {"cpu": "x"}}, "defaultRequests.cpu"),
        ("Peaks", {"nodePowerModel": MODEL}, "NodePowerModel"),
        ("Peaks", {"WatcherAddress": "http://w:2020"}, "NodePowerModel: required"),
        ("NodeResourceTopologyMatch", {"scoringStrategy": {"type": "MostUsed"}}, "MostAllocated"),
        ("NodeResourceTopologyMatch", {"scoringStrategy": {}}, "scoringStrategy.type: required"),
        ("NodeResourceTopologyMatch", {"preemptionMode": "Enabled"}, "preemptionMode"),
        ("NodeResourcesAllocatable", {"mode": "Medium"}, "mode"),
        (
            "NodeResourcesAllocatable",
            {"mode": "x", "resources": [{"name": "cpu", "weight": 0}]},
            "resources[0].weight",
        ),
        ("CapacityScheduling", {"any": 1}, "takes no arguments"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused_in_words(
    plugin: str, args: dict[str, Any], text: str
) -> None:
    with pytest.raises(ProfileError) as refused:
        load(plugin, args)
    assert text in str(refused.value)


def test_a_converted_configuration_keeps_them() -> None:
    converted = convert_text(
        """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: own
  plugins:
    score: {enabled: [{name: TargetLoadPacking, weight: 3}, {name: NodeResourceTopologyMatch}]}
    filter: {enabled: [{name: NodeResourceTopologyMatch}]}
    postFilter: {enabled: [{name: CapacityScheduling}], disabled: [{name: "*"}]}
    preFilter: {enabled: [{name: CapacityScheduling}]}
    reserve: {enabled: [{name: CapacityScheduling}]}
  pluginConfig:
  - name: TargetLoadPacking
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: TargetLoadPackingArgs
      watcherAddress: http://watcher:2020
  - name: NodeResourceTopologyMatch
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeResourceTopologyMatchArgs
      cacheResyncPeriodSeconds: 5
"""
    )
    assert converted.warnings == ()
    (manifest,) = [each for each in converted.manifests if each["kind"] == "SchedulerProfile"]
    loaded = load_profile(manifest, known_plugins())
    assert loaded.args["TargetLoadPacking"].watcher_address == "http://watcher:2020"  # type: ignore[attr-defined]
    assert loaded.plugins.weights["TargetLoadPacking"] == 3
