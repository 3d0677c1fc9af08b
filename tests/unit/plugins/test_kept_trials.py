"""Which outcomes of dry runs are remembered, and for how long."""

from stellwerk.framework.status import unresolvable
from stellwerk.plugins.kept_trials import MAX_SPECS, Circumstances, KeptTrials

FOUND = (Circumstances(None, [], []), unresolvable("", "No preemption victims found"))


def test_the_crowds_seen_last_are_remembered() -> None:
    kept = KeptTrials()
    for key in range(MAX_SPECS):
        kept.of(key, 0)[7] = FOUND
    assert kept.of(0, 0) == {7: FOUND}
    kept.of("one more", 0)[7] = FOUND
    assert kept.of(0, 0) == {7: FOUND}
    assert kept.of(1, 0) == {}, "the one that was asked for longest ago made room"


def test_another_version_of_the_budgets_ends_them_all() -> None:
    kept = KeptTrials()
    kept.of("key", 0)[7] = FOUND
    assert kept.of("key", 1) == {}
    assert kept.of("key", 0) == {}
