"""Identity: who sends a request, and whether that may be done.

Used by the HTTP layer, whose `auth_filters` see every request first. `assembly` puts the parts
together, `authentication` finds out whose request it is, an `authorizer` decides, `rbac` above all.
Invariant: apart from what every namespace gets (`service_accounts`), nothing here writes an object;
a write passes or is refused.
"""
