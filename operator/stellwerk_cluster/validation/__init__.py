"""What a write may not say, kind by kind: the fields that are refused, and in which words.

Called by the verbs in `registry`, through the strategies of the kinds. Invariant: a rule sees the
object and, of an update, the stored one; it changes neither, and looks at no other object.
"""
