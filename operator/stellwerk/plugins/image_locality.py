"""ImageLocality: prefers nodes that already hold the pod's images, the larger the better.

Invariant: an image counts by its size times the fraction of nodes that hold it, so that pods do
not heap on the one node that happened to pull it; scores are those of the release.
"""

from collections.abc import Hashable, Iterator, Mapping
from typing import ClassVar, Final

import numpy as np
from pydantic import BaseModel
from typing_extensions import override

from stellwerk.framework.interface import MAX_NODE_SCORE, Reuse, ScorePlugin
from stellwerk.framework.services import Handle
from stellwerk.framework.types import CycleState
from stellwerk.models.pod import PodInfo
from stellwerk.models.scheduling_spec import SchedulingSpec
from stellwerk.plugins.shared.row_by_row import RowByRow
from stellwerk.snapshot.columns import IntColumn
from stellwerk.snapshot.images import Images
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.compatibility import ReleaseRule

_MEBIBYTE: Final = 1024 * 1024
_LEAST_BYTES: Final = 23 * _MEBIBYTE
_MAX_BYTES_PER_CONTAINER: Final = 1000 * _MEBIBYTE
_MAX_REMEMBERED_COMBINATIONS: Final = 1024
"""Combinations of images that are remembered until the images of nodes change."""
_ON_NO_NODE: Final = "no node holds any image"


class ImageLocality(RowByRow, ScorePlugin):
    """Scores by bytes that need not be pulled."""

    name: ClassVar[str] = "ImageLocality"
    score_reuse: ClassVar[Reuse] = Reuse.NODE

    def __init__(self, handle: Handle, _args: BaseModel | None = None) -> None:
        self._images = handle.snapshot.images
        self._counts_volumes = ReleaseRule.COUNT_IMAGE_VOLUMES in handle.compatibility
        self._held: dict[tuple[str, ...], bool] = {}
        """Whether any node holds one of these images, by `spec.images`."""
        self._version = self._images.version
        """The version of the images for which that holds."""

    @override
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> IntColumn:
        snapshot = nodes.snapshot
        held: IntColumn = np.zeros(len(nodes), np.int64)
        for rows in _held_images(snapshot.images, pod.spec):
            spread = len(rows) / snapshot.node_count
            held += (nodes.users(rows) * spread).astype(np.int64)
        # #138951: an image of a volume is one of `images`, and no container.
        images = len(pod.spec.images) if self._counts_volumes else pod.spec.container_count
        most = _MAX_BYTES_PER_CONTAINER * images
        within = np.maximum(np.minimum(held, most), _LEAST_BYTES)
        return MAX_NODE_SCORE * (within - _LEAST_BYTES) // (most - _LEAST_BYTES)

    @override
    def score_key(self, state: CycleState, pod: PodInfo) -> Hashable | None:
        images, spec = self._images, pod.spec
        if self._version != images.version or len(self._held) >= _MAX_REMEMBERED_COMBINATIONS:
            self._held.clear()
            self._version = images.version
        held = self._held.get(spec.images)
        if held is None:
            held = self._held[spec.images] = any(_held_images(images, spec))
        # Which other nodes hold an image changes its spread, and with it the score of every row.
        return (spec.images, spec.container_count, images.version) if held else _ON_NO_NODE


def _held_images(images: Images, spec: SchedulingSpec) -> Iterator[Mapping[int, int]]:
    """Bytes by row, of each of the pod's images that any node holds; repeated images repeat."""
    for image in spec.images:
        rows = images.rows(_with_tag(image))
        if rows:
            yield rows


def _with_tag(image: str) -> str:
    """The image's name as nodes report it: an absent tag is `latest`."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"
