"""The pure algorithm for groups of pods; `scheduler.gangs` drives it on asyncio.

Explanations, simulations and replays drive the same functions without asyncio. Invariant: what is
tried and not taken is undone before the decision is given.
"""
