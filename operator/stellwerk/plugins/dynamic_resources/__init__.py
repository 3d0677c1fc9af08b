"""DynamicResources: the plugin, what it keeps, its hints, its writes and its explanation.

`plugin` has the extension points; Filter's verdicts are in `node_verdicts`, the search in
`allocator`, PreBind in `bind_claim`.
"""
