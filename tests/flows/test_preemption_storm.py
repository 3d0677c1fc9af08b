"""Hundreds of preemptors are not woken by each other's victims, and end up as if they were."""

from tests.support.preemption_storm import as_kube_scheduler, preemption_storm

VICTIMS_EACH = 3


def test_a_victims_end_wakes_no_other_preemptor_and_all_end_up_the_same() -> None:
    preemptors = 25
    spared, woken = preemption_storm(40, preemptors), as_kube_scheduler(40, preemptors)
    assert spared.bound == woken.bound == preemptors
    assert spared.victims == woken.victims == VICTIMS_EACH * preemptors
    assert set(spared.per_node.values()) == set(woken.per_node.values()) == {1}
    assert spared.seconds <= woken.seconds + 1
    assert spared.attempts <= (1 + VICTIMS_EACH) * preemptors
    assert woken.attempts > 2 * spared.attempts
