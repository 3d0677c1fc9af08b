"""How much the columns that are kept between attempts may take."""

from collections.abc import Iterator

from stellwerk.framework.result_cache import ResultCache
from stellwerk.models.pod import parse_pod
from stellwerk.models.scheduling_spec import SchedulingSpec
from stellwerk.snapshot.snapshot import Snapshot
from tests.support.builders import make_pod

FEW = 8
ROOM_BYTES = 1 << 20


def specs(entries: int) -> Iterator[SchedulingSpec]:
    """Different ones, each with so many entries in its nodeSelector."""
    for number in range(FEW):
        selector = {f"key-{number}-{entry}": "value" for entry in range(entries)}
        yield parse_pod(make_pod(f"p-{number}", nodeSelector=selector)).spec


def kept(entries: int) -> int:
    """How many of a few specs are found again, the oldest first."""
    cache = ResultCache(Snapshot(), ROOM_BYTES)
    first = {spec: cache.columns(spec) for spec in specs(entries)}
    # The newest first: to look for one that is gone makes it anew, and drops another.
    return sum(cache.columns(spec) is columns for spec, columns in reversed(first.items()))


def test_specs_count_with_their_columns() -> None:
    assert kept(entries=1) == FEW
    assert kept(entries=1_500) < FEW
