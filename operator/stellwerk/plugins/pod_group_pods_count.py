"""PodGroupPodsCount: the more members of a group a placement takes, the better.

Invariant: the placement that takes most scores 100 (v1.36 divides as integers).
"""

from typing import ClassVar, Final

from typing_extensions import override

from stellwerk.framework.interface import PlacementScorePlugin
from stellwerk.framework.services import Handle
from stellwerk.framework.types import PlacementSums
from stellwerk.snapshot.columns import IntColumn

_MAX_SCORE: Final = 100


class PodGroupPodsCount(PlacementScorePlugin):
    """Members scheduled and placed, on a scale of 100."""

    name: ClassVar[str] = "PodGroupPodsCount"

    def __init__(self, _handle: Handle, _args: None = None) -> None:
        pass

    @override
    def score_placements(self, placements: PlacementSums) -> IntColumn:
        most = max(1, int(placements.members.max(initial=0)))
        scores: IntColumn = _MAX_SCORE * placements.members // most
        return scores
