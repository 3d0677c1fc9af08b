"""What a write adds to an object and what it refuses, kind by kind: the strategies.

Defaults, admission and validation of each built-in kind, collected in `strategies`. Called by the
verbs in `registry`. Invariant: a rule sees the rest of the cluster through `strategy.Reader` only.
"""
