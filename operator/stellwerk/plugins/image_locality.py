"""ImageLocality: prefers nodes that already hold the pod's images, the larger the better.

Invariant: an image counts by its size times the fraction of nodes that hold it, so that pods do
not heap on the one node that happened to pull it; scores are those of v1.36.
"""

from collections.abc import Hashable, Iterator, Mapping
from typing import ClassVar, Final
from weakref import WeakKeyDictionary

import numpy as np
from pydantic import BaseModel
from typing_extensions import override

from stellwerk.framework.cycle_state import CycleState
from stellwerk.framework.interface import MAX_NODE_SCORE, Reuse, ScorePlugin
from stellwerk.framework.services import Handle
from stellwerk.models.pod import PodInfo
from stellwerk.models.scheduling_spec import SchedulingSpec
from stellwerk.snapshot.columns import IntColumn
from stellwerk.snapshot.images import Images
from stellwerk.snapshot.node_view import NodeView

_MEBIBYTE: Final = 1024 * 1024
_LEAST_BYTES: Final = 23 * _MEBIBYTE
_MOST_BYTES_PER_CONTAINER: Final = 1000 * _MEBIBYTE
_ON_NO_NODE: Final = "no node holds any image"


class ImageLocality(ScorePlugin):
    """Scores by bytes that need not be pulled."""

    name: ClassVar[str] = "ImageLocality"
    score_reuse: ClassVar[Reuse] = Reuse.NODE

    def __init__(self, handle: Handle, _args: BaseModel | None = None) -> None:
        self._images = handle.snapshot.images
        self._keys: WeakKeyDictionary[SchedulingSpec, Hashable] = WeakKeyDictionary()
        self._version = self._images.version
        """Of the images for which the keys hold."""

    @override
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> IntColumn:
        snapshot = nodes.snapshot
        held: IntColumn = np.zeros(len(nodes), np.int64)
        for rows in _held_images(snapshot.images, pod.spec):
            spread = len(rows) / snapshot.node_count
            held += (nodes.users(rows) * spread).astype(np.int64)
        most = _MOST_BYTES_PER_CONTAINER * pod.spec.container_count
        within = np.maximum(np.minimum(held, most), _LEAST_BYTES)
        return MAX_NODE_SCORE * (within - _LEAST_BYTES) // (most - _LEAST_BYTES)

    @override
    def score_key(self, state: CycleState, pod: PodInfo) -> Hashable | None:
        if self._version != self._images.version:
            self._keys, self._version = WeakKeyDictionary(), self._images.version
        key = self._keys.get(pod.spec)
        if key is None:
            key = self._keys[pod.spec] = self._key(pod.spec)
        return key

    def _key(self, spec: SchedulingSpec) -> Hashable:
        if not any(_held_images(self._images, spec)):
            return _ON_NO_NODE
        # Which other nodes hold an image changes its spread, and with it the score of every row.
        return (spec.images, spec.container_count, self._version)


def _held_images(images: Images, spec: SchedulingSpec) -> Iterator[Mapping[int, int]]:
    """Bytes by row, of each of the pod's images that any node holds; repeated images repeat."""
    for image in spec.images:
        rows = images.rows(_with_tag(image))
        if rows:
            yield rows


def _with_tag(image: str) -> str:
    """The image's name as nodes report it: an absent tag is `latest`."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"
