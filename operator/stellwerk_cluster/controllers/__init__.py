"""The small controllers: workloads, disruption budgets, node lifecycle, namespaces, garbage.

`catalogue` makes them all. Invariant: a controller reads the store and writes through the verbs,
and holds no state that it could not compute again.
"""
