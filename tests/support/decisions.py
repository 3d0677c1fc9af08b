"""What the default profile answers for a pod on a cache's snapshot, by node name."""

import random
from collections.abc import Mapping

from stellwerk.backend.cache import Cache
from stellwerk.backend.nominator import Nominator
from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.framework.offline import offline_services
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.assembly import Assembly
from stellwerk.plugins.registry import known_plugins
from stellwerk.profiles.spec.profile import DEFAULT_PROFILE_MANIFEST, load_profile

_PROFILE = load_profile(dict(DEFAULT_PROFILE_MANIFEST), known_plugins())


class Decider:
    """The plugins of the default profile, with what they keep between decisions."""

    def __init__(self, cache: Cache) -> None:
        self._snapshot = cache.snapshot
        services = offline_services(
            cache.snapshot, IndexedObjectStore(), Nominator(), random.Random(0)
        )
        self._framework = Assembly(_PROFILE, services).framework

    def answers(self, pod: PodInfo) -> tuple[Mapping[str, tuple[str, ...]], Mapping[str, int]]:
        """Return (reasons by node, where no node is feasible; total scores of feasible nodes)."""
        framework, snapshot = self._framework, self._snapshot
        found = framework.filtering.find_feasible(pod, sample=False)
        if not found.fits.any():
            diagnosis = framework.filtering.diagnose(found, pod)
            reasons = [status.reasons for status in diagnosis.statuses]
            return dict(zip(snapshot.names(diagnosis.rows), reasons, strict=True)), {}
        view = found.view()
        totals = framework.scoring.prioritize(found.state, pod, view).total
        names = (node.name if node is not None else "" for node in view.nodes())
        scores = dict(zip(names, totals.tolist(), strict=True))
        return {}, {name: score for name, score in scores.items() if name}
