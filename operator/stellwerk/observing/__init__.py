"""Profiles that observe another scheduler: its bindings compared with what they would decide.

`comparison` is pure; `trailing` has the World before each binding; `tally` counts; `observer`
drives them beside the scheduler. Nothing here holds a client: what is decided is shown and dropped.
"""
