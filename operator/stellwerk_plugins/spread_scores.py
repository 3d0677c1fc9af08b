"""Raw scores of any size, spread over 0 to 100."""

from stellwerk.plugin_api import MAX_NODE_SCORE, CycleState, IntColumn, PodInfo


class SpreadScores:
    """The lowest raw score becomes 0, the highest 100; where all are equal, all become 0."""

    def normalize(self, _: CycleState, __: PodInfo, scores: IntColumn) -> IntColumn:
        """(n,) int64, 0 to 100."""
        lowest, highest = int(scores.min(initial=2**63 - 1)), int(scores.max(initial=-(2**63)))
        if highest <= lowest:
            return scores * 0
        if (highest - lowest) >= 2**62 // MAX_NODE_SCORE:
            # Beyond int64: upstream's scores overflow here, and these do not.
            spread = [
                (score - lowest) * MAX_NODE_SCORE // (highest - lowest) for score in scores.tolist()
            ]
            scores = scores.copy()
            scores[:] = spread
            return scores
        return (scores - lowest) * MAX_NODE_SCORE // (highest - lowest)
