"""What is kept as a whole because there is so much of it counts like what is kept one by one."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from stellwerk.backend.cache import Cache
from stellwerk.models import volumes
from stellwerk.models.pod import PodInfo
from stellwerk.models.volumes import PodUses
from stellwerk.snapshot import images, resource_rows
from stellwerk.snapshot.snapshot import Snapshot
from tests.support.cluster_changes import (
    POD_NAMES,
    Change,
    ClusterModel,
    histories,
    make_in_both,
    trials,
)
from tests.support.examples import examples
from tests.support.snapshot_contents import contents


@contextmanager
def little_is_much() -> Iterator[None]:
    """Keep two images, a resource that is not native, and a volume as a whole."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(volumes, "MAX_COUNTED_USES", 0)
        patch.setattr(images, "MAX_INDEXED_NAMES", 1)
        patch.setattr(resource_rows, "MAX_COUNTED_RESOURCES", 4)
        yield


def with_uses(change: Change) -> Change:
    """The same change, with the uses of every second pod as a whole."""
    pod = change.subject
    if not isinstance(pod, PodInfo) or pod.uid in POD_NAMES[::2]:
        return change
    return Change(
        change.act,
        replace(
            pod, details=replace(pod.details, volume_uses=PodUses.of(pod.namespace, pod.volumes))
        ),
    )


def shown(snapshot: Snapshot) -> Any:
    """All that the books say, in no order."""
    users = snapshot.volume_users
    return (
        contents(snapshot),
        {key: dict(users.rows(key)) for key in users.keys()},  # noqa: SIM118 not a dict
        {row: dict(users.on_row(row)) for row in snapshot.row_of.values()},
        {image: dict(snapshot.images.rows(image)) for image in snapshot.images},
    )


@settings(max_examples=examples(25))
@given(history=histories, later=histories, tried=trials)
def test_wholes_and_parts_say_the_same(
    history: list[Change], later: list[Change], tried: list[Change]
) -> None:
    wholes, parts, model = Cache(), Cache(), ClusterModel()
    of_wholes = ClusterModel()
    for change in history:
        with little_is_much():
            of_wholes.make(wholes, with_uses(change))
            wholes.update_snapshot()
        model.make(parts, change)
        assert shown(wholes.snapshot) == shown(parts.update_snapshot())
    fork, truth = wholes.fork(), shown(wholes.snapshot)
    with little_is_much():
        for change in later:
            of_wholes.make(wholes, with_uses(change))
        wholes.update_snapshot()
    assert shown(fork.snapshot) == truth
    for change in later:
        model.make(parts, change)
    assert shown(wholes.snapshot) == shown(parts.update_snapshot())
    truth = shown(wholes.snapshot)
    with little_is_much(), wholes.trial() as trial:
        for change in tried:
            make_in_both(trial, parts, with_uses(change))
        assert contents(wholes.snapshot) == contents(parts.snapshot)
    assert shown(wholes.snapshot) == truth
