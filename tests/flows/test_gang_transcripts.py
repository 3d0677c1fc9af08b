"""Every recorded scenario of groups of pods, played to the embedded API and to the whole operator.

The facts are those of the recordings' README. `DIFFERENT` lists what Stellwerk does otherwise on
purpose, with the number that it has in the list of doubts and in docs/differences.md; `NOT_YET`
what still differs by mistake. Both must only shrink.
"""

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from urllib.parse import urlsplit

import pytest

from stellwerk.models.json_values import JsonObject
from stellwerk_cluster.apimachinery.feature_gates import feature_gates
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from tests.support.gang_comparison import GangComparison, stored_groups
from tests.support.recordings import scenario, scenarios, transcript_modules
from tests.support.scheduler_replay import play
from tests.support.served_cluster import served

SCENARIOS = scenarios("gang")
_POLICIES = "admissionregistration.k8s.io"

OWN_REASONS = frozenset[str]()
"""Of conditions and events that say that a group waits for pods, where upstream is silent (13)."""

_OPERATOR = "the operator takes up pods one by one"
NOT_YET = dict.fromkeys(SCENARIOS, _OPERATOR)

DIFFERENT: dict[str, dict[str, str]] = {}
"""By scenario: what a difference begins with or contains, and the doubt that it comes from."""


@pytest.fixture(scope="module")
def normalise() -> Iterator[ModuleType]:
    with transcript_modules("normalise") as (normalise,):
        yield normalise


def answered(url: str, step: JsonObject) -> int:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    media_type = step.get("contentType") or "application/json"
    body = None if step.get("body") is None else json.dumps(step["body"])
    connection.request(step["method"], step["path"], body, {"Content-Type": media_type})
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_embedded_api_answers_each_step_and_stores_the_groups(name: str) -> None:
    recording = scenario(name, "gang")
    gates = feature_gates(recording["featureGates"]["apiServer"])
    options = ClusterOptions(controllers=False, kubelet=None, heartbeats=False, feature_gates=gates)
    with served(EmbeddedCluster(0, options=options)) as cluster:
        for step in (*recording["setup"], *recording["actions"]):
            if "method" in step and _POLICIES not in step["path"]:
                assert answered(cluster.url, step) == step["status"], step
        found = {
            each["metadata"]["name"]: each
            for each in cluster.api.all("podgroups.scheduling.k8s.io")
        }
    recorded = stored_groups(recording)
    assert {key: each["spec"] for key, each in found.items()} == {
        key: each["spec"] for key, each in recorded.items()
    }
    for key, each in recorded.items():
        assert found[key]["metadata"].get("finalizers") == each["metadata"].get("finalizers")


@pytest.mark.parametrize("name", [each for each in SCENARIOS if each not in NOT_YET])
def test_the_operator_does_what_kube_scheduler_did(
    name: str, normalise: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = scenario(name, "gang")
    outcome = play(recording, tmp_path, monkeypatch)
    different = DIFFERENT.get(name, {})
    found = list(GangComparison(recording, outcome, normalise.norm, OWN_REASONS).differences())
    assert [line for line in found if not any(each in line for each in different)] == []
    assert [each for each in different if not any(each in line for line in found)] == []
