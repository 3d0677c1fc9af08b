"""The normalisation that several score plugins share.

Invariant: integers and rounding are those of `helper.DefaultNormalizeScore` (v1.36).
"""

import numpy as np

from stellwerk.framework.interface import MAX_NODE_SCORE
from stellwerk.snapshot.columns import IntColumn


def normalize_to_highest(scores: IntColumn) -> IntColumn:
    """(n,) int64, 0–100: each score in percent of the highest, rounded down; all 0 stay 0."""
    highest = int(scores.max(initial=0))
    return scores * MAX_NODE_SCORE // highest if highest else scores


def normalize_to_lowest(scores: IntColumn) -> IntColumn:
    """(n,) int64, 0–100: the same turned round, so that 0 becomes 100 and the highest 0."""
    highest = int(scores.max(initial=0))
    if not highest:
        return np.full_like(scores, MAX_NODE_SCORE)
    return MAX_NODE_SCORE - scores * MAX_NODE_SCORE // highest
