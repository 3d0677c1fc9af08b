"""The scheduling cycle of a profile with extenders: the steps of `world.decide`, with questions.

The scheduling coroutine awaits it. While an extender answers, events change the cache and not
the snapshot: its answer is taken for the snapshot about which it was asked. A pod may so be bound
to a node that has gone meanwhile, as any pod that is being bound (`binding_cycle`). Invariant:
extenders are asked in kube-scheduler's order, and a decision follows from the World and what they
answered alone.
"""

from dataclasses import replace

from stellwerk.framework.types import Code, CycleState
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.default_preemption.dry_run import OFFER_WITHOUT_VICTIMS
from stellwerk.world.decide import (
    Decision,
    NoNode,
    Search,
    broken,
    choose,
    find_candidates,
    find_nodes,
    is_broken,
    reject,
    score,
)
from stellwerk.world.extenders import Extenders, is_interested
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World


async def decide_with_extenders(
    world: World, pod: PodInfo, profile: ServedProfile, extenders: Extenders, state: CycleState
) -> Decision:
    """The decision of a profile and its extenders for a pod.

    Raises:
        PluginFailure: a plugin raised.
        SchedulerError: an extender that is not ignorable failed.
    """
    search = find_nodes(world, pod, profile, state)
    if is_broken(search):
        return broken(search)
    if search.nominated:
        search.nominated = await extenders.accept(pod, pod.details.nominated_node_name)
        if not search.nominated:
            profile.framework.filtering.look_beyond_nominated(search.found)
    if not search.nominated:
        offered = search.node_names()
        answer = await extenders.filter(pod, offered)
        if answer.node_names is not offered:
            search.narrow(answer, len(offered))
    if not search.found.fits.any():
        if _asks_about_victims(profile, pod):
            search.found.state.write(OFFER_WITHOUT_VICTIMS, True)  # noqa: FBT003 a value by its key
        no_node = find_candidates(search)
        await _strike_candidates(search, no_node, extenders)
        return reject(search, no_node)
    scores = score(search)
    if scores is None:
        return choose(search, scores)
    names = search.snapshot.names(scores.nodes.row_numbers().tolist())
    return choose(search, scores, await extenders.prioritize(pod, names))


def _asks_about_victims(profile: ServedProfile, pod: PodInfo) -> bool:
    """Return whether an extender is asked about victims that the pod's preemption proposes."""
    return any(
        extender.preempt_verb and is_interested(extender, pod)
        for extender in profile.loaded.spec.extenders
    )


async def _strike_candidates(search: Search, no_node: NoNode, extenders: Extenders) -> None:
    """Let extenders strike candidates off; where none is left, the next plugin is asked."""
    found = no_node.post_filter
    while found is not None and found.candidates:
        left = await extenders.preempt(search.pod, found)
        if left.candidates or left.status.code is not Code.UNSCHEDULABLE:
            no_node.post_filter = left
            return
        framework, state = search.profile.framework, search.found.state
        after = replace(left, plugin=found.plugin)
        found = framework.run_post_filters(state, search.pod, no_node.diagnosis, after)
        no_node.post_filter = found
