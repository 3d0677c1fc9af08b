"""SchedulerProfiles: reading, judging, serving, remembering and reporting them.

`spec` is what an object says, without a cluster. `loader` takes the objects: `dependencies` knows
who must be judged anew, `entry` holds the verdicts, `frameworks` makes what serves, `moves` brings
waiting pods to it, `shadows` compares. `status_writer` reports (`conditions` has the words),
`history` remembers revisions, `default_profile` makes the first profile, `unserved` finds pods that
no scheduler serves, `plugin_guard` limits plugins. The profiles that serve are kept in
`world/profiles.py`, which decisions and the queue ask. Invariant: only this package writes the
status of a SchedulerProfile.
"""
