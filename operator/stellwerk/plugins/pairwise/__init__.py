"""What plugins that count other pods share: InterPodAffinity, PodTopologySpread, SelectorSpread.

Constraints and default selectors, eligible nodes, the counts of an overlay, queueing hints.
"""
