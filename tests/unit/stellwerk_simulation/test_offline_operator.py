from random import Random

import pytest

from stellwerk.errors import ConfigurationError
from stellwerk.journal.entries import Head
from stellwerk.models.compatibility import AS_RECORDED, Compatibility, FeatureGates, Release
from stellwerk_simulation.offline_operator import offline_operator

STARTED = "2026-01-01T00:00:00Z"


async def test_a_journal_is_decided_again_as_its_release() -> None:
    gates = FeatureGates.parse("VolumeLimitScaling=false")
    head = Head("test", STARTED, release="1.37", feature_gates=str(gates))
    operator, _ = offline_operator(head, Random)
    expected = Compatibility.with_server(Release.V1_37, gates)
    assert operator.world.profiles.compatibility == expected


async def test_a_journal_without_a_release_is_of_1_36_with_its_faults() -> None:
    operator, _ = offline_operator(Head("test", STARTED), Random)
    assert operator.world.profiles.compatibility == AS_RECORDED


async def test_a_journal_of_a_release_that_is_not_known_yet() -> None:
    with pytest.raises(ConfigurationError, match=r"'1\.38' is none of the releases"):
        offline_operator(Head("test", STARTED, release="1.38"), Random)
