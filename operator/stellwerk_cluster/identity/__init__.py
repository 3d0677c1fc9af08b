"""Identity: who sends a request, and whether that may be done.

Used by the HTTP layer. Begin with `access`, which sees every request first. Invariant: nothing here
writes an object of a client; it lets a write pass or refuses it.
"""
