"""Groups of pods: what happens to them, their cycle, and what is said about them.

Invariant: nothing here is reached by a pod that belongs to no group.
"""
