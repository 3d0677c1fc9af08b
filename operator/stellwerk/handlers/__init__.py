"""kopf in, method calls out: watch events become calls of the WatchHandlers protocol.

The table of kinds and discovery are here, too, and do without kopf. What can happen to a watch:

- It is silent for 25 s: kopf closes the stream (a setting in `lifecycle`), and `Reflector` resumes
  it after one small request, which ends the silence. If nothing is heard of a kind for 90 s,
  readiness fails (`StaleWatches` in `scheduler.observers.instruments`); scheduling goes on.
- It breaks, or the server is away: `watching` opens the next stream after a pause, from the version
  that `reflector` remembers. If the server has forgotten the version, or was restored from a
  backup, the kind is listed again, and `delivery` reports what has vanished meanwhile.
- An event comes twice, or late: `delivery` drops it by its version.
- A handler raises: the object is read again a second later (`rereading`).
- The kind is refused, or not served any more: `availability` finds out, and `watching` waits.
"""
