"""The asyncio driver for groups of pods; the pure algorithm is `world.gangs`.

How a group that cannot be had as a whole goes on, and never ends by itself:

- no placement: `requeue_members` puts its members back, for backoff and for their plugins' hints;
- a member cannot be bound: `GroupPermit.lose` fails all of them before the first is let through;
- room was kept for it in vain: `try_with_reservation_once_more`, then the room is free again;
- bound in part for too long: `GroupGiveBack` deletes the bound members, if the group asks for it.

Invariant: nothing here is reached by a pod that belongs to no group.
"""
