"""A cluster read once with the caller's credentials, in place of an operator that watches it.

`commands.door` opens it where no operator answers, and `stellwerk decide`, `simulate` and `plan`
read live clusters through it. Invariant: it sends GET requests alone.
"""
