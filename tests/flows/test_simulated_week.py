"""A week of a cluster of 20 nodes and 200 pods, in virtual time, and what must hold after it."""

import pytest

from stellwerk.profiles import status_writer as profile_status
from stellwerk_cluster.cluster import ClusterOptions
from stellwerk_kube.clock import VirtualClock
from tests.flows.simulated_week import Week, week_nodes
from tests.support.skipped_time import run_skipping
from tests.support.virtual_cluster import open_virtual_cluster

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


def test_after_a_week_of_rollouts_drains_failures_and_jobs_all_is_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A look at the profiles' statuses in every second would be a third of the whole week's work.
    monkeypatch.setattr(profile_status, "STATUS_ROUND_SECONDS", 60.0)

    async def flow(clock: VirtualClock) -> None:
        options = ClusterOptions(seed=1)
        # Its end checks the invariants: none lost, none over-committed, the snapshot as if new.
        async with open_virtual_cluster(clock, week_nodes(), options) as world:
            week = Week(world, seed=1)
            await week.begin()
            while clock.monotonic() < 7 * 24 * 3600:
                await week.hour()
            await week.end()
            assert min(week.done.values()) >= 5, week.done

    run_skipping(flow)
