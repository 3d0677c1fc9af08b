"""What InterPodAffinity and PodTopologySpread share: constraints, eligible nodes, overlays."""
