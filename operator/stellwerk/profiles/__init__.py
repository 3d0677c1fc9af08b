"""SchedulerProfiles: reading, judging, serving, remembering and reporting them.

`spec` is what an object says, without a cluster; `loader` serves the objects, `history` remembers
their revisions, `status_writer` reports, `shadows` compares. Invariant: only this package writes
the status of a SchedulerProfile.
"""
