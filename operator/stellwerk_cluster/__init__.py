"""The embedded cluster: a Kubernetes API, controllers and hollow nodes, in one process.

`stellwerk cluster` and `stellwerk demo` serve it, and tests run on it. It is what kubectl and the
scheduler need of a cluster, in one process and without containers: admission, bindings, evictions,
CustomResourceDefinitions, watches, small controllers, and kubelets that only write status. It is
not a second Kubernetes: what a user of a scheduler does not need is left out.

In order of reading, from what a client sees to what all of it rests on:

`cluster`       the whole as one object, `EmbeddedCluster`; `command` serves it as a process
`apiserver`     HTTP: paths, lists, watches, tables, discovery; begin with `http`
`controllers`   Deployments to garbage collection; `hollow` beside them: nodes and kubelets
`identity`      users, tokens, access rules; begin with `assembly`, then `authorizer`
`registry`      the verbs over the store; begin with `api`, where every write passes
`admission`     the admission plugins
`defaults`      what a write leaves out; `validation` below it: what is refused, in which words
`apimachinery`  what objects are: kinds, decoding, their protobuf, failures; `strategy` of a kind
`schema`        kinds and types as tables: a text file for each API group

A room uses the rooms below it and none beside or above it. Invariant: nothing outside this package
depends on the cluster being embedded; it is reached through its HTTP API or through
`cluster.EmbeddedCluster`.
"""
