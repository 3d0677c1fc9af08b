"""Plugin lists of a profile resolve as kube-scheduler v1.36 resolves them."""

import pytest

from stellwerk.profiles.spec.defaults import DEFAULT_PLUGINS, ResolvedPlugins, resolve_plugins
from stellwerk.profiles.spec.plugin_description import ExtensionPoint, PluginDescription
from stellwerk.profiles.spec.spec_fields import Plugins
from stellwerk_kube.errors import ProfileError
from stellwerk_kube.json_values import JsonObject
from tests.support.plugin_descriptions import KNOWN_PLUGINS, describe

DEFAULT_SCORES = (
    "TaintToleration",
    "NodeAffinity",
    "NodeResourcesFit",
    "PodTopologySpread",
    "InterPodAffinity",
    "DynamicResources",
    "NodeResourcesBalancedAllocation",
    "ImageLocality",
)


def resolve(
    plugins: JsonObject | None = None,
    weights: dict[str, int] | None = None,
    **extra: PluginDescription,
) -> ResolvedPlugins:
    return resolve_plugins(
        Plugins.model_validate(plugins or {}), weights or {}, {**KNOWN_PLUGINS, **extra}
    )


def enabled(*names: str, **weights: int) -> JsonObject:
    return {
        "enabled": [
            *({"name": name} for name in names),
            *({"name": name, "weight": weight} for name, weight in weights.items()),
        ]
    }


def disabled(*names: str) -> JsonObject:
    return {"disabled": [{"name": name} for name in names]}


def test_an_empty_profile_has_the_default_plugins_in_their_order() -> None:
    resolved = resolve()
    assert resolved.at(ExtensionPoint.FILTER) == (
        "NodeUnschedulable",
        "NodeName",
        "TaintToleration",
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
        "VolumeRestrictions",
        "NodeVolumeLimits",
        "VolumeBinding",
        "VolumeZone",
        "PodTopologySpread",
        "InterPodAffinity",
        "DynamicResources",
        "NodeDeclaredFeatures",
    )
    assert resolved.at(ExtensionPoint.SCORE) == DEFAULT_SCORES
    assert resolved.at(ExtensionPoint.POST_FILTER) == ("DynamicResources", "DefaultPreemption")
    assert resolved.at(ExtensionPoint.QUEUE_SORT) == ("PrioritySort",)
    assert resolved.at(ExtensionPoint.BIND) == ("DefaultBinder",)
    assert resolved.at(ExtensionPoint.PERMIT) == ()
    assert set(resolved.names) == set(DEFAULT_PLUGINS)


def test_default_weights_are_those_of_v1_36() -> None:
    assert resolve().weights == {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "NodeResourcesFit": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "DynamicResources": 2,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
    }


@pytest.mark.parametrize(
    ("plugins", "point", "expected"),
    [
        pytest.param(
            {"score": disabled("ImageLocality")},
            "score",
            DEFAULT_SCORES[:-1],
            id="disabling at a point leaves the plugin out there",
        ),
        pytest.param(
            {"multiPoint": disabled("NodeResourcesFit")},
            "filter",
            tuple(
                name for name in resolve().at(ExtensionPoint.FILTER) if name != "NodeResourcesFit"
            ),
            id="disabling at multiPoint leaves the plugin out everywhere",
        ),
        pytest.param(
            {"score": {**disabled("*"), **enabled("ImageLocality", "NodeAffinity")}},
            "score",
            ("ImageLocality", "NodeAffinity"),
            id="a star leaves only what is enabled, in the user's order",
        ),
        pytest.param(
            {"score": enabled("ImageLocality")},
            "score",
            ("ImageLocality", *DEFAULT_SCORES[:-1]),
            id="a default plugin listed for the point goes first",
        ),
        pytest.param(
            {"score": enabled("SelectorSpread")},
            "score",
            (*DEFAULT_SCORES, "SelectorSpread"),
            id="another plugin listed for the point goes last",
        ),
        pytest.param(
            {"score": enabled("SelectorSpread", "ImageLocality")},
            "score",
            ("ImageLocality", *DEFAULT_SCORES[:-1], "SelectorSpread"),
            id="overrides go first and additions last",
        ),
        pytest.param(
            {"multiPoint": enabled("SelectorSpread")},
            "preScore",
            (*resolve().at(ExtensionPoint.PRE_SCORE), "SelectorSpread"),
            id="multiPoint puts a plugin at every point it implements",
        ),
        pytest.param(
            {"multiPoint": enabled(TaintToleration=9)},
            "score",
            DEFAULT_SCORES,
            id="a default configured anew in multiPoint keeps its place",
        ),
        pytest.param(
            {"multiPoint": {**disabled("TaintToleration"), **enabled(TaintToleration=10)}},
            "score",
            (*DEFAULT_SCORES[1:], "TaintToleration"),
            id="disabled and enabled in multiPoint moves a default to the end",
        ),
        pytest.param(
            {"multiPoint": enabled("SelectorSpread"), "score": disabled("SelectorSpread")},
            "score",
            DEFAULT_SCORES,
            id="disabling at a point beats enabling in multiPoint",
        ),
        pytest.param(
            {"score": {**disabled("ImageLocality"), **enabled("ImageLocality")}},
            "score",
            (*DEFAULT_SCORES[:-1], "ImageLocality"),
            id="enabled beats disabled within one list",
        ),
        pytest.param(
            {
                "multiPoint": {
                    **disabled("*"),
                    **enabled("PrioritySort", "DefaultBinder", "NodeName"),
                }
            },
            "filter",
            ("NodeName",),
            id="a star in multiPoint drops every default",
        ),
        pytest.param(
            {"score": disabled("DefaultPodTopologySpread")}
            | {"multiPoint": enabled("SelectorSpread")},
            "score",
            DEFAULT_SCORES,
            id="an alias disables the plugin behind it",
        ),
    ],
)
def test_order_at_a_point(plugins: JsonObject, point: str, expected: tuple[str, ...]) -> None:
    assert resolve(plugins).at(ExtensionPoint(point)) == expected


@pytest.mark.parametrize(
    ("plugins", "weights", "plugin", "expected"),
    [
        pytest.param(
            {"score": enabled(NodeResourcesFit=7)},
            {},
            "NodeResourcesFit",
            7,
            id="a weight at the point",
        ),
        pytest.param(
            {"multiPoint": enabled(NodeResourcesFit=7)},
            {},
            "NodeResourcesFit",
            7,
            id="a weight in multiPoint",
        ),
        pytest.param(
            {"multiPoint": enabled(NodeAffinity=7), "score": enabled(NodeAffinity=5)},
            {},
            "NodeAffinity",
            5,
            id="the point's weight beats multiPoint's",
        ),
        pytest.param(
            {"multiPoint": enabled("NodeAffinity")},
            {},
            "NodeAffinity",
            1,
            id="a default enabled again without a weight has 1, not its default",
        ),
        pytest.param({"score": enabled(NodeAffinity=0)}, {}, "NodeAffinity", 1, id="0 means unset"),
        pytest.param(
            {"score": enabled(NodeAffinity=4)},
            {"NodeAffinity": 9},
            "NodeAffinity",
            9,
            id="the short form beats every list",
        ),
        pytest.param(
            {"multiPoint": enabled("SelectorSpread")},
            {"DefaultPodTopologySpread": 3},
            "SelectorSpread",
            3,
            id="the short form knows aliases",
        ),
    ],
)
def test_weights(plugins: JsonObject, weights: dict[str, int], plugin: str, expected: int) -> None:
    assert resolve(plugins, weights).weights[plugin] == expected


def test_a_plugin_of_ones_own_may_bring_a_weight() -> None:
    mine = PluginDescription("Mine", frozenset({ExtensionPoint.SCORE}), default_weight=4)
    resolved = resolve({"multiPoint": enabled("Mine")}, Mine=mine)
    assert resolved.weights["Mine"] == 4


def test_a_default_plugin_that_a_build_lacks_is_off() -> None:
    known = {name: each for name, each in KNOWN_PLUGINS.items() if name != "NodeDeclaredFeatures"}
    resolved = resolve_plugins(Plugins.model_validate({}), {}, known)
    assert "NodeDeclaredFeatures" not in resolved.names


def test_queue_sort_is_replaced_by_disabling_the_default() -> None:
    resolved = resolve(
        {"queueSort": {**disabled("PrioritySort"), **enabled("Fifo")}},
        Fifo=describe("Fifo", "queueSort"),
    )
    assert resolved.at(ExtensionPoint.QUEUE_SORT) == ("Fifo",)


@pytest.mark.parametrize(
    ("plugins", "weights", "field", "message"),
    [
        pytest.param(
            {"filter": enabled("NodeRessourcesFit")},
            {},
            "spec.plugins.filter.enabled[0].name",
            'unknown plugin "NodeRessourcesFit"; did you mean "NodeResourcesFit"?',
            id="a misspelt name",
        ),
        pytest.param(
            {"filter": enabled("EBSLimits")},
            {},
            "spec.plugins.filter.enabled[0].name",
            "NodeVolumeLimits replaces it",
            id="a removed plugin",
        ),
        pytest.param(
            {"score": enabled("NodePorts")},
            {},
            "spec.plugins.score.enabled[0].name",
            'plugin "NodePorts" does not implement Score',
            id="a plugin at a point it lacks",
        ),
        pytest.param(
            {"score": enabled("ImageLocality", "NodeAffinity", "ImageLocality")},
            {},
            "spec.plugins.score.enabled[2].name",
            'duplicate plugin "ImageLocality"',
            id="a plugin twice at a point",
        ),
        pytest.param(
            {"multiPoint": enabled("SelectorSpread", "DefaultPodTopologySpread")},
            {},
            "spec.plugins.multiPoint.enabled[1].name",
            "duplicate plugin",
            id="a plugin and its alias",
        ),
        pytest.param(
            {"queueSort": disabled("*")},
            {},
            "spec.plugins.queueSort",
            "exactly one plugin, not 0",
            id="no queue sort",
        ),
        pytest.param(
            {"bind": disabled("DefaultBinder")},
            {},
            "spec.plugins.bind",
            "at least one plugin",
            id="no bind plugin",
        ),
        pytest.param(
            {},
            {"ImageLocalty": 3},
            "spec.weights.ImageLocalty",
            'did you mean "ImageLocality"?',
            id="a misspelt name in the short form",
        ),
        pytest.param(
            {"score": disabled("ImageLocality")},
            {"ImageLocality": 3},
            "spec.weights.ImageLocality",
            "does not score in this profile",
            id="a weight for a plugin that does not score",
        ),
    ],
)
def test_refused(plugins: JsonObject, weights: dict[str, int], field: str, message: str) -> None:
    with pytest.raises(ProfileError) as caught:
        resolve(plugins, weights)
    assert caught.value.field == field
    assert message in caught.value.message
