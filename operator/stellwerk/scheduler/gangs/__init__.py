"""The asyncio driver for groups of pods; the pure algorithm is `world.gangs`.

Invariant: nothing here is reached by a pod that belongs to no group.
"""
