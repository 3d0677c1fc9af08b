"""Scores by measured load: where the numbers come from, and the four plugins that read them."""
