"""Container images that nodes hold, by row, for ImageLocality.

As in kube-scheduler's cache (imageStates, v1.36), an image keeps the size that the first of its
nodes reported until no node holds it. Invariant: all rows of an image show the same size.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Final

from typing_extensions import override

from stellwerk.snapshot.book import Book
from stellwerk.snapshot.columns import CopyOnWrite
from stellwerk_kube.node import NodeInfo

MAX_INDEXED_NAMES: Final = 1000
"""Names of images of a node that are indexed; a kubelet reports 50 images. The names of a node with
more are looked up in the node itself."""


class Images(Book):
    """The rows that hold each image, and its size."""

    def __init__(self) -> None:
        self._bytes: CopyOnWrite[str, dict[int, int]] = CopyOnWrite()
        """Bytes by image and row, for rows with at most MAX_INDEXED_NAMES names."""
        self._large: dict[int, Mapping[str, int]] = {}
        """Rows with very many images; the sizes that are shown, by name."""
        self.version = 0
        """Grows when what ImageLocality reads changes: images of a node, or the number of nodes."""

    def rows(self, image: str) -> Mapping[int, int]:
        """Bytes by row, only rows that hold the image."""
        rows = self._bytes.get(image) or {}
        if not self._large:
            return rows
        return rows | {row: held[image] for row, held in self._large.items() if image in held}

    def __iter__(self) -> Iterator[str]:
        """Every image that some node holds."""
        return iter(dict.fromkeys(chain(self._bytes, *self._large.values())))

    def with_sizes_kept(self, row: int, images: Mapping[str, int]) -> Mapping[str, int]:
        """Images of a row with the sizes that are shown, not those that the node reported.

        Written again, they bring back what was shown, also of an image that no other node holds.
        """
        return {image: self.rows(image).get(row, size) for image, size in images.items()}

    @override
    def write_node(self, row: int, before: NodeInfo | None, node: NodeInfo) -> None:
        if before is not None and before.images == node.images:
            return
        if before is not None:
            self._take_out(row, before.images)
        if len(node.images) > MAX_INDEXED_NAMES:
            self._large[row] = self._as_shown(node.images)
        else:
            for image, size_bytes in node.images.items():
                rows = self._bytes.to_change(image)
                if rows is None:
                    shown = self._shown(image, size_bytes) if self._large else size_bytes
                    self._bytes.put(image, {row: shown})
                else:
                    rows[row] = next(iter(rows.values()))
        self.version += 1

    @override
    def free(self, row: int, node: NodeInfo) -> None:
        self._take_out(row, node.images)
        self.version += 1

    @override
    def fork(self) -> "Images":
        fork = Images()
        fork._bytes, fork.version = self._bytes.fork(), self.version
        fork._large = self._large.copy()
        return fork

    def _as_shown(self, images: Mapping[str, int]) -> Mapping[str, int]:
        """The images with the sizes that other rows show."""
        if not self._large and self._bytes.keys().isdisjoint(images):
            return images
        return {image: self._shown(image, size) for image, size in images.items()}

    def _shown(self, image: str, size_bytes: int) -> int:
        """The size of an image in other rows, or the given one where none has it."""
        rows = self._bytes.get(image)
        if rows is not None:
            return next(iter(rows.values()))
        return next((held[image] for held in self._large.values() if image in held), size_bytes)

    def _take_out(self, row: int, images: Iterable[str]) -> None:
        if self._large.pop(row, None) is not None:
            return
        for image in images:
            rows = self._bytes.to_change(image)
            if rows is not None:
                del rows[row]
                if not rows:
                    self._bytes.discard(image)
