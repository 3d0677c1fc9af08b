"""What loading makes of SchedulerProfile objects, and which of several profiles may serve."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from stellwerk.plugins.registry import known_plugins
from stellwerk.profiles.spec.plugin_args import NodeResourcesFitArgs
from stellwerk.profiles.spec.plugin_description import ExtensionPoint, PluginDescription
from stellwerk.profiles.spec.profile import (
    DEFAULT_PROFILE_MANIFEST,
    TAKEOVER_PROFILE_MANIFEST,
    Accepted,
    LoadedProfile,
    Rejected,
    arbitrate,
    load_profile,
)
from stellwerk_kube.errors import ProfileError
from stellwerk_kube.json_values import JsonObject
from tests.support.bad_profiles import BAD_PROFILES, BadProfile
from tests.support.plugin_descriptions import KNOWN_PLUGINS, describe
from tests.support.repository import ROOT

PROFILES = ROOT / "manifests" / "profiles"

_GENERATOR = "TopologyPlacementGenerator"
KNOWN = {**KNOWN_PLUGINS, "Fifo": describe("Fifo", "queueSort")}


def load(spec: JsonObject, name: str = "p", created: str = "2026-01-01T00:00:00Z") -> LoadedProfile:
    metadata = {"name": name, "uid": f"uid-{name}", "creationTimestamp": created, "generation": 3}
    return load_profile({"metadata": metadata, "spec": {"schedulerName": name} | spec}, KNOWN)


@pytest.mark.parametrize("bad", [pytest.param(bad, id=bad.rule) for bad in BAD_PROFILES])
def test_a_bad_profile_is_refused_with_its_field(bad: BadProfile) -> None:
    with pytest.raises(ProfileError) as caught:
        load_profile({"metadata": {"name": "bad"}, "spec": bad.spec}, KNOWN)
    assert caught.value.field.startswith(bad.field)
    assert bad.message in caught.value.message


def test_the_table_of_bad_profiles_breaks_at_least_sixty_rules() -> None:
    assert len({bad.rule for bad in BAD_PROFILES}) >= 60


def test_an_object_without_a_spec_is_refused() -> None:
    with pytest.raises(ProfileError, match="spec: required"):
        load_profile({"metadata": {"name": "p"}}, KNOWN)


@pytest.mark.parametrize(
    ("spec", "observes"), [({}, False), ({"mode": "Schedule"}, False), ({"mode": "Observe"}, True)]
)
def test_a_profile_schedules_unless_it_says_that_it_observes(
    spec: JsonObject, *, observes: bool
) -> None:
    assert load(spec).observes is observes
    assert load(spec).spec.allow_beside is False


def test_every_mistake_is_told_at_once() -> None:
    with pytest.raises(ProfileError) as caught:
        load({"percentageOfNodesToScore": -1, "checkAllFilters": 3})
    assert str(caught.value) == (
        "spec.percentageOfNodesToScore: must be at least 0, not -1; "
        "spec.checkAllFilters: must be true or false, not 3"
    )


def test_metadata_is_kept() -> None:
    loaded = load({}, "web")
    assert (loaded.name, loaded.uid, loaded.generation) == ("web", "uid-web", 3)
    assert loaded.scheduler_name == "web"


@pytest.mark.parametrize(
    ("written", "loaded"),
    [
        pytest.param({}, None, id="unset scores every node"),
        pytest.param({"percentageOfNodesToScore": None}, None, id="null is unset"),
        pytest.param({"percentageOfNodesToScore": 0}, 0, id="0 stays 0: adaptive"),
        pytest.param({"percentageOfNodesToScore": 3}, 3, id="below 5 is honoured"),
        pytest.param({"percentageOfNodesToScore": 250}, 100, id="above 100 acts as 100"),
    ],
)
def test_percentage_of_nodes_to_score(written: JsonObject, loaded: int | None) -> None:
    assert load(written).percentage_of_nodes_to_score == loaded


def test_a_percentage_above_100_is_remarked_upon() -> None:
    assert load({"percentageOfNodesToScore": 250}).remarks == (
        "spec.percentageOfNodesToScore: 250 acts as 100",
    )


@pytest.mark.parametrize(
    ("plugins", "gangs", "remarked"),
    [
        pytest.param({"multiPoint": [_GENERATOR]}, False, True, id="alone"),
        pytest.param({"placementGenerate": [_GENERATOR]}, False, True, id="at its point"),
        pytest.param({"multiPoint": [_GENERATOR, "GangScheduling"]}, False, False, id="with it"),
        pytest.param({"multiPoint": [_GENERATOR]}, True, False, id="by a word"),
        pytest.param({"multiPoint": ["PodGroupPodsCount"]}, False, False, id="no placements"),
    ],
)
def test_placements_of_groups_that_are_not_decided_as_a_whole_are_remarked_upon(
    plugins: dict[str, list[str]], *, gangs: bool, remarked: bool
) -> None:
    """As kube-scheduler 1.36 lists its plugins with two gates on and GangScheduling off."""
    lists = {
        point: {"enabled": [{"name": name} for name in names]} for point, names in plugins.items()
    }
    spec = {"schedulerName": "p", "plugins": lists, "gangScheduling": gangs}
    found = load_profile({"metadata": {"name": "p"}, "spec": spec}, known_plugins()).remarks
    begins = "spec.plugins: TopologyPlacementGenerator has no effect without GangScheduling: "
    assert [each.startswith(begins) for each in found] == [True] * remarked


def test_disabling_an_unknown_plugin_is_only_remarked_upon() -> None:
    loaded = load({"plugins": {"score": {"disabled": [{"name": "ImageLocalty"}, {"name": "*"}]}}})
    assert loaded.remarks == (
        'spec.plugins.score.disabled[0]: no plugin "ImageLocalty"; did you mean "ImageLocality"?',
    )


def test_plugins_that_run_have_arguments_with_defaults() -> None:
    loaded = load({"plugins": {"multiPoint": {"disabled": [{"name": "InterPodAffinity"}]}}})
    assert loaded.args["NodeResourcesFit"] == NodeResourcesFitArgs.model_validate({})
    assert "InterPodAffinity" not in loaded.args
    assert "NodeName" not in loaded.args


def test_equal_arguments_are_equal_whatever_their_writing() -> None:
    args = {
        "kind": "NodeResourcesFitArgs",
        "ignoredResources": None,
        "scoringStrategy": {"type": "LeastAllocated", "resources": []},
    }
    written = load({"pluginConfig": [{"name": "NodeResourcesFit", "args": args}]})
    assert written.args["NodeResourcesFit"] == load({}).args["NodeResourcesFit"]


def test_arguments_under_an_alias_reach_the_plugin() -> None:
    class SpreadArgs(BaseModel):
        zones: bool = False

    spread = PluginDescription(
        "SelectorSpread", frozenset({ExtensionPoint.SCORE}), args_model=SpreadArgs
    )
    known = {**KNOWN, "SelectorSpread": spread, "DefaultPodTopologySpread": spread}
    loaded = load_profile(
        {
            "spec": {
                "schedulerName": "p",
                "plugins": {"multiPoint": {"enabled": [{"name": "DefaultPodTopologySpread"}]}},
                "pluginConfig": [{"name": "DefaultPodTopologySpread", "args": {"zones": True}}],
            }
        },
        known,
    )
    assert loaded.args["SelectorSpread"] == SpreadArgs(zones=True)


def test_a_plugin_of_ones_own_refuses_arguments_by_its_own_model() -> None:
    class MineArgs(BaseModel):
        threshold: int

    known = {
        **KNOWN,
        "Mine": PluginDescription("Mine", frozenset({ExtensionPoint.SCORE}), MineArgs),
    }
    spec = {"schedulerName": "p", "pluginConfig": [{"name": "Mine", "args": {"threshold": "x"}}]}
    with pytest.raises(ProfileError) as caught:
        load_profile({"spec": spec}, known)
    assert caught.value.field == "spec.pluginConfig[0].args.threshold"


def test_a_plugin_that_needs_arguments_is_refused_without_them() -> None:
    enabled = {"multiPoint": {"enabled": [{"name": "LegacyRequestedToCapacityRatio"}]}}
    with pytest.raises(ProfileError) as caught:
        load({"plugins": enabled})
    assert caught.value.field == "spec.pluginConfig.LegacyRequestedToCapacityRatio.shape"


def test_resources_left_to_an_extender_are_ignored_by_fit() -> None:
    resources = [
        {"name": "example.com/gpu", "ignoredByScheduler": True},
        {"name": "example.com/nic"},
    ]
    loaded = load(
        {
            "extenders": [{"urlPrefix": "http://x", "managedResources": resources}],
            "pluginConfig": [
                {"name": "NodeResourcesFit", "args": {"ignoredResources": ["example.com/old"]}}
            ],
        }
    )
    fit = loaded.args["NodeResourcesFit"]
    assert isinstance(fit, NodeResourcesFitArgs)
    assert fit.ignored_resources == ("example.com/gpu",)
    assert "is replaced by the managedResources" in loaded.remarks[0]


@pytest.mark.parametrize(
    ("written", "seconds"),
    [({}, 0.5), ({"httpTimeout": "0s"}, 0.5), ({"httpTimeout": "1m30.5s"}, 90.5)],
)
def test_extender_timeout(written: JsonObject, seconds: float) -> None:
    (extender,) = load({"extenders": [{"urlPrefix": "http://x", **written}]}).spec.extenders
    assert extender.timeout_seconds == seconds


# Between profiles.


def test_of_two_profiles_with_one_scheduler_name_the_older_wins() -> None:
    older = load({"schedulerName": "web"}, "zzz", "2026-01-01T00:00:00Z")
    newer = load({"schedulerName": "web"}, "aaa", "2026-01-02T00:00:00Z")
    verdicts = arbitrate([newer, older])
    assert verdicts["zzz"] == Accepted()
    assert verdicts["aaa"] == Rejected(
        "SchedulerNameTaken",
        'spec.schedulerName: "web" is already served by the older profile "zzz"',
    )


def test_of_two_profiles_of_one_age_the_first_name_wins() -> None:
    verdicts = arbitrate([load({"schedulerName": "web"}, name) for name in ("b", "a")])
    assert verdicts["a"] == Accepted()
    assert isinstance(verdicts["b"], Rejected)


FIFO = {
    "plugins": {
        "queueSort": {"disabled": [{"name": "PrioritySort"}], "enabled": [{"name": "Fifo"}]}
    }
}


def test_a_profile_with_another_queue_sort_than_the_oldest_is_rejected() -> None:
    profiles = [
        load({}, "old", "2026-01-01T00:00:00Z"),
        load(FIFO, "new", "2026-01-02T00:00:00Z"),
        load({}, "newest", "2026-01-03T00:00:00Z"),
    ]
    verdicts = arbitrate(profiles)
    assert [type(verdicts[name]) for name in ("old", "new", "newest")] == [
        Accepted,
        Rejected,
        Accepted,
    ]
    rejected = verdicts["new"]
    assert isinstance(rejected, Rejected)
    assert rejected.reason == "QueueSortDiffers"
    assert rejected.message.startswith("spec.plugins.queueSort: ")


def test_a_loser_recovers_when_the_winner_goes() -> None:
    profiles = [load({"schedulerName": "web"}, name) for name in ("a", "b")]
    assert arbitrate(profiles[1:]) == {"b": Accepted()}


def test_a_rejected_profile_claims_nothing() -> None:
    profiles = [
        load({}, "old", "2026-01-01T00:00:00Z"),
        load({"schedulerName": "web"} | FIFO, "rejected", "2026-01-02T00:00:00Z"),
        load({"schedulerName": "web"}, "new", "2026-01-03T00:00:00Z"),
    ]
    assert arbitrate(profiles)["new"] == Accepted()


# The profiles that are shipped.


@pytest.mark.parametrize("path", sorted(PROFILES.rglob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_profiles_load(path: Path) -> None:
    manifest = yaml.safe_load(path.read_text())
    assert load_profile(manifest, KNOWN).name == path.stem


def test_the_default_profile_is_the_shipped_one() -> None:
    assert yaml.safe_load((PROFILES / "default.yaml").read_text()) == DEFAULT_PROFILE_MANIFEST
    optional = PROFILES / "optional" / "default-scheduler.yaml"
    assert yaml.safe_load(optional.read_text()) == TAKEOVER_PROFILE_MANIFEST


def test_the_legacy_profile_scores_with_exactly_the_plugins_of_1_18() -> None:
    manifest = yaml.safe_load((PROFILES / "legacy-v1.18.yaml").read_text())
    assert load_profile(manifest, KNOWN).plugins.weights == {
        "LegacyBalancedAllocation": 1,
        "ImageLocality": 1,
        "InterPodAffinity": 1,
        "LegacyLeastAllocated": 1,
        "NodeAffinity": 1,
        "NodePreferAvoidPods": 10000,
        "SelectorSpread": 1,
        "TaintToleration": 1,
    }


def test_profiles_may_all_serve_at_once() -> None:
    loaded = [
        load_profile(yaml.safe_load(path.read_text()), KNOWN) for path in PROFILES.rglob("*.yaml")
    ]
    assert set(arbitrate(loaded).values()) == {Accepted()}


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    ["plugins", "pluginConfig", "weights", "extenders", "score", "enabled", "name", "args", "shape"]
)


def blamed_field(spec: object) -> str | None:
    """The field that loading a spec blames, or None if it loads."""
    try:
        load_profile({"spec": spec}, KNOWN)
    except ProfileError as error:
        return error.field
    return None


@given(st.dictionaries(FIELDS, JSON_VALUES | st.dictionaries(FIELDS, JSON_VALUES)) | JSON_VALUES)
def test_whatever_is_written_is_loaded_or_refused_with_a_field(written: object) -> None:
    spec = {"schedulerName": "p", **written} if isinstance(written, dict) else written
    field = blamed_field(spec)
    assert field is None or field.startswith("spec")


@given(st.dictionaries(FIELDS, JSON_VALUES))
def test_whatever_is_written_as_arguments_is_loaded_or_refused(args: dict[str, Any]) -> None:
    for plugin in ("NodeResourcesFit", "NodeAffinity", "PodTopologySpread"):
        config = [{"name": plugin, "args": args}]
        field = blamed_field({"schedulerName": "p", "pluginConfig": config})
        assert field is None or field.startswith("spec.pluginConfig[0].args")


def test_thousands_of_profiles_are_arbitrated_in_one_pass() -> None:
    first = load({}, "p0")
    profiles = []
    for number in range(5_000):
        spec = first.spec.model_copy(update={"scheduler_name": f"s{number}"})
        profiles.append(replace(first, name=f"p{number}", spec=spec))
    began = time.thread_time()
    assert set(arbitrate(profiles).values()) == {Accepted()}
    assert time.thread_time() - began < 1  # each against each: 6 s
