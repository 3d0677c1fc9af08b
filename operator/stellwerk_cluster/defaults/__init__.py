"""Objects before they are validated: what a write leaves out, and what it may not set.

Called by the verbs in `registry`, through the strategies of the kinds. Invariant: a second pass
changes nothing.
"""
