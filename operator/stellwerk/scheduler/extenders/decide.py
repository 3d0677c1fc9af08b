"""The scheduling cycle of a profile with extenders: the steps of `world.decide`, with questions.

The scheduling coroutine awaits it. Invariant: extenders are asked in kube-scheduler's order, and a
decision follows from the World and what they answered alone.
"""

from stellwerk.framework.cycle_state import CycleState
from stellwerk.framework.status import Code
from stellwerk.models.pod import PodInfo
from stellwerk.world.decide import (
    Decision,
    broken,
    choose,
    find_candidates,
    find_nodes,
    reject,
    score,
)
from stellwerk.world.extenders import Extenders
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
    if search.found.pre_filter.code is Code.ERROR:
        return broken(search)
    if search.nominated:
        search.nominated = await extenders.accept(pod, pod.nominated_node_name)
    if not search.nominated:
        offered = search.node_names()
        answer = await extenders.filter(pod, offered)
        if answer.node_names is not offered:
            search.narrow(answer, len(offered))
    if not search.found.fits.any():
        no_node = find_candidates(search)
        if no_node.post_filter is not None and no_node.post_filter.candidates:
            no_node.post_filter = await extenders.preempt(pod, no_node.post_filter)
        return reject(search, no_node)
    scores = score(search)
    if scores is None:
        return choose(search, scores)
    names = search.snapshot.names(scores.nodes.row_numbers().tolist())
    return choose(search, scores, await extenders.prioritize(pod, names))
