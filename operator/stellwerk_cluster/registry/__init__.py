"""The verbs over the store: create, get, update, patch, delete, bind, evict.

As in the API server, this is where a request meets the rules of its kind and the storage. The HTTP
layer, the controllers and the hollow kubelets write through it. Invariant: nothing changes an
object in any other way.
"""
