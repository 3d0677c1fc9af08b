"""Refusals of fields, kind by kind, in the words of the API server.

Called by the verbs in `registry`, through the strategies of the kinds. Invariant: a rule sees the
object and, of an update, the stored one; it changes neither, and looks at no other object.
"""
