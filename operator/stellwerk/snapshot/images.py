"""The book of container images that nodes hold, for ImageLocality.

As in kube-scheduler's cache (imageStates, v1.36), an image keeps the size that the first of its
nodes reported until no node holds it. Invariant: all rows of an image show the same size.
"""

from collections.abc import Iterable, Iterator, Mapping

from typing_extensions import override

from stellwerk.models.node import NodeInfo
from stellwerk.snapshot.book import Book
from stellwerk.snapshot.copy_on_write import CopyOnWrite


class Images(Book):
    """Which rows hold an image, and how large it is."""

    def __init__(self) -> None:
        self._bytes: CopyOnWrite[str, dict[int, int]] = CopyOnWrite()
        self.version = 0
        """Grows when what ImageLocality reads changes: images of a node, or the number of nodes."""

    def rows(self, image: str) -> Mapping[int, int]:
        """Bytes by row, only rows that hold the image."""
        return self._bytes.get(image) or {}

    def __iter__(self) -> Iterator[str]:
        """Every image that some node holds."""
        return iter(self._bytes)

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
        for image, size_bytes in node.images.items():
            rows = self._bytes.to_change(image)
            if rows is None:
                self._bytes.put(image, {row: size_bytes})
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
        return fork

    def _take_out(self, row: int, images: Iterable[str]) -> None:
        for image in images:
            rows = self._bytes.to_change(image)
            if rows is not None:
                del rows[row]
                if not rows:
                    self._bytes.discard(image)
