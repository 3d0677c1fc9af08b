"""Counts of other pods, for InterPodAffinity, PodTopologySpread and SelectorSpread.

Constraints and default selectors, eligible nodes, the counts of an overlay, queueing hints.
"""
