"""Jobs with ttlSecondsAfterFinished go, with their pods, so many seconds after their end.

Invariant: a job without that field, or not at its end, is never deleted here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk_cluster.apimachinery.objects import is_terminating, parse_timestamp
from stellwerk_cluster.controllers.job import finished_at
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from stellwerk_cluster.work import Worker, WorkQueue

if TYPE_CHECKING:
    from collections.abc import Hashable

    from stellwerk_cluster.controllers.index import Index
    from stellwerk_cluster.registry.api import Api

_JOBS: Final = "jobs.batch"


class TtlAfterFinishedController(Worker):
    """Deletes finished Jobs when their time is over."""

    def __init__(self, api: Api, _index: Index) -> None:
        """Follow the Jobs in the store of `api`."""
        self._api = api
        self._kind = api.kinds.resource("jobs", "batch")
        self.queue = WorkQueue(api.clock)
        jobs = api.store.collection(_JOBS)
        jobs.listeners.append(lambda event: self.queue.add(event.entry.key))
        for entry in jobs.entries():
            self.queue.add(entry.key)

    @override
    def reconcile(self, key: Hashable) -> None:
        """Delete one job if its time is over, or wait for that."""
        assert isinstance(key, tuple)  # noqa: S101  (this queue holds store keys only)
        job = self._api.find(_JOBS, *key)
        ended = finished_at(job) if job is not None else None
        if job is None or ended is None or is_terminating(job):
            return
        seconds = job["spec"].get("ttlSecondsAfterFinished")
        if seconds is None or not ended[1]:
            return
        passed = (self._api.now() - parse_timestamp(ended[1])).total_seconds()
        if passed < seconds:
            self.queue.add_after(key, seconds - passed)
            return
        options = DeleteOptions(uid=job["metadata"]["uid"], propagation="Foreground")
        delete(self._api, self._kind, key, options)
