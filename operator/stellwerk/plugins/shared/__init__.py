"""What plugins of several kinds share: matching of nodes, normalisation of scores, hints."""
