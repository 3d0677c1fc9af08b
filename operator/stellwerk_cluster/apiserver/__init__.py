"""HTTP: from a request to a verb, and from an object to the bytes a client accepts.

Paths, lists, watches, tables, discovery and OpenAPI. Invariant: what a request means is decided
here, whether it is allowed is decided below.
"""
