"""The functions of CEL: one module for each library that Kubernetes v1.36 puts together.

`kubernetes` has all of them in one; the other modules declare theirs. Invariant: a module holds the
functions of one subject, each with its signatures and its cost.
"""
