"""The admission plugins: what they add to an object and refuse with a look at other objects.

Called by the verbs in `registry`, mostly through the strategies of the kinds. Invariant: a plugin
sees the rest of the cluster through `strategy.Reader` only.
"""
