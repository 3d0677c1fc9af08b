"""A pod whose DoNotSchedule constraints have given way is decided as if it had ScheduleAnyway."""

from datetime import UTC, datetime
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk.backend.nominator import Nominator
from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.framework.offline import offline_services
from stellwerk.framework.runtime import Framework
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.plugins.assembly import Assembly
from stellwerk.plugins.registry import known_plugins
from stellwerk.profiles.spec.profile import load_profile
from stellwerk.snapshot.snapshot import Snapshot
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support import pairwise_strategies as cluster
from tests.support.builders import make_cache
from tests.support.examples import examples

AFTER_SECONDS = 300
REFUSED = datetime(2026, 1, 1, tzinfo=UTC)


def framework(snapshot: Snapshot, clock: VirtualClock, after_seconds: int) -> Framework:
    args = {"giveWayAfterSeconds": after_seconds}
    spec = {
        "schedulerName": "default-scheduler",
        "pluginConfig": [{"name": "PodTopologySpread", "args": args}],
    }
    loaded = load_profile({"metadata": {"name": "test"}, "spec": spec}, known_plugins())
    services = offline_services(snapshot, IndexedObjectStore(), Nominator(), Random(0), clock.now)
    return Assembly(loaded, services).framework


def answer(of: Framework, pod: PodInfo) -> tuple[list[bool], list[int] | None]:
    """The feasible rows and, if there are any, their totals."""
    found = of.filtering.find_feasible(pod, sample=False)
    fits = np.asarray(found.fits).tolist()
    if not found.fits.any():
        return fits, None
    return fits, of.scoring.prioritize(found.state, pod, found.view()).total.tolist()


def softened(pod: JsonObject) -> JsonObject:
    """The pod as it would have been written: no two constraints of one key are then alike."""
    constraints = pod["spec"]["topologySpreadConstraints"]
    soft = [{**each, "whenUnsatisfiable": "ScheduleAnyway"} for each in constraints]
    for each in soft:
        each.pop("minDomains", None)
    return {**pod, "spec": {**pod["spec"], "topologySpreadConstraints": soft}}


def refused(pod: JsonObject) -> JsonObject:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    return {**pod, "status": {"phase": "Pending", "conditions": [condition]}}


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[JsonObject], list[JsonObject]]:
    names = [f"n{number}" for number in range(draw(st.integers(1, 5)))]
    nodes = [draw(cluster.nodes(name)) for name in names]
    pods = [
        draw(cluster.pods(f"p{number}", draw(st.sampled_from(names))))
        for number in range(draw(st.integers(0, 8)))
    ]
    return nodes, pods


@settings(max_examples=examples(90), deadline=None)
@given(drawn=clusters(), new=cluster.pending_pods(), waited=st.integers(0, 2 * AFTER_SECONDS))
def test_it_is_decided_as_if_it_were_written_so(
    drawn: tuple[list[JsonObject], list[JsonObject]], new: JsonObject, waited: int
) -> None:
    cache, clock = make_cache(*drawn), VirtualClock(REFUSED)
    clock.advance(float(waited))
    gives_way = framework(cache.snapshot, clock, AFTER_SECONDS)
    plain = framework(cache.snapshot, clock, 0)
    pod = refused(new)
    as_written = pod if waited < AFTER_SECONDS else softened(pod)
    assert answer(gives_way, parse_pod(pod)) == answer(plain, parse_pod(as_written))
    # Nor does what was found at one moment show at another.
    clock.advance(float(AFTER_SECONDS))
    later = answer(gives_way, parse_pod(pod))
    assert later == answer(plain, parse_pod(softened(pod)))
