"""The embedded cluster: a Kubernetes API, controllers and hollow nodes, all in memory.

`stellwerk cluster` and `stellwerk demo` serve it, tests and what-if run on it. Invariant: nothing
outside this package knows that a cluster is embedded; it is reached through its HTTP API or through
`cluster.EmbeddedCluster`.
"""
