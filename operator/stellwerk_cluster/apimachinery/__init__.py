"""The form of API objects, before any of them is stored.

Kinds and their paths, types and schemas, names and selectors, patches, and every way to refuse a
request. As in Kubernetes, this is what all other rooms are built on. Invariant: pure functions and
values; nothing here holds an object of the cluster.
"""
