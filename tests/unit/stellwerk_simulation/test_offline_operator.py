from random import Random

import pytest

from stellwerk.journal.entries import Head
from stellwerk_kube.compatibility import (
    AS_RECORDED,
    NEWEST_PATCHES,
    RECORDED,
    Compatibility,
    FeatureGates,
    PatchRelease,
    Release,
    patches_of,
    patches_text,
)
from stellwerk_kube.errors import ConfigurationError
from stellwerk_simulation.offline_operator import offline_operator

STARTED = "2026-01-01T00:00:00Z"


async def test_a_journal_is_decided_again_as_its_release() -> None:
    gates = FeatureGates.parse("VolumeLimitScaling=false")
    patches = patches_text(NEWEST_PATCHES)
    head = Head("test", STARTED, release="1.37.1", feature_gates=str(gates), patches=patches)
    operator, _ = offline_operator(head, Random)
    expected = Compatibility.with_server(PatchRelease(Release.V1_37, 1), gates)
    assert operator.world.profiles.compatibility == expected


async def test_a_journal_that_knows_no_patch_releases_means_what_it_meant_then() -> None:
    operator, _ = offline_operator(Head("test", STARTED, release="1.37"), Random)
    found = operator.world.profiles.compatibility
    assert found.version == PatchRelease(Release.V1_37, 0)
    assert found.of("1.36").version == RECORDED
    assert found.rules == Compatibility.with_server(found.version, patches=patches_of("")).rules


async def test_a_journal_without_a_release_is_of_1_36_2_with_its_faults() -> None:
    operator, _ = offline_operator(Head("test", STARTED), Random)
    assert operator.world.profiles.compatibility.rules == AS_RECORDED.rules
    assert operator.world.profiles.compatibility.version == RECORDED


async def test_a_journal_of_a_release_that_is_not_known_yet() -> None:
    with pytest.raises(ConfigurationError, match=r"'1\.99' is none of the releases"):
        offline_operator(Head("test", STARTED, release="1.99"), Random)
