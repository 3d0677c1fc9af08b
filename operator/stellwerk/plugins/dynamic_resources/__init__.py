"""DynamicResources: the plugin, what it keeps, its hints, its writes and its explanation.

`plugin` has the extension points; Filter's verdicts are in `node_verdicts`, the search in
`allocator`, PreBind in `bind_claim`. `allocated` knows the devices that are taken, those of
allocations in flight among them: decided, and not shown by the API yet. If a binding fails after
that, `DynamicResources.unreserve` gives back what was not written, and has the pod's reservations
removed (`ClaimBinding.undo`); an allocation that was written stays.
While the API server is away such a write is tried again, at most MAX_CALL_TRIES times
(`scheduler.api_dispatcher`).
"""
