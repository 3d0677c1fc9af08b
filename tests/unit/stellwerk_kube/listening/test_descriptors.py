"""The descriptors of the process are counted where they are few."""

import resource
from pathlib import Path

from stellwerk_kube.listening.descriptors import MIN_FREE_DESCRIPTORS, Descriptors


def test_descriptors_are_counted_where_they_are_few() -> None:
    open_now = sum(1 for _ in Path("/proc/self/fd").iterdir()) - 1
    assert Descriptors(open_now + MIN_FREE_DESCRIPTORS).missing() == 0
    assert Descriptors(open_now + MIN_FREE_DESCRIPTORS - 3).missing() == 3
    assert not Descriptors(resource.RLIM_INFINITY).are_counted
    assert Descriptors(1 << 20).missing() == 0
