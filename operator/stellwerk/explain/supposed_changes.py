"""Effects of supposed acts on a fork: changed and deleted nodes, ended pods, and pods made anew.

`explain.what_if` applies relabelling, tainting, deleting and scaling with it before it drains and
decides. It stands alone because it says what controllers do, and what-if what the scheduler does.
Invariant: the fork is left as the controllers leave a cluster after the real act; a test compares
each act with the embedded cluster's controllers, pod by pod.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from stellwerk.answers.what_if import MAX_SUPPOSED_PODS, EndedPod, Supposition
from stellwerk.explain.steps import Steps, suggested
from stellwerk.models.act_syntax import (
    DEPLOYMENT,
    JOB,
    NODE,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    STATEFUL_SET,
    Deletion,
    Relabelling,
    Scaling,
    Tainting,
)
from stellwerk.models.node_acts import relabelled, tainted, untainted
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.shared.pod_resource_claims import given_back
from stellwerk.world.supposed_nodes import (
    daemon_pods,
    keeps_running,
    may_start,
    suppose_daemon_pods,
)
from stellwerk.world.world import World
from stellwerk_kube.daemon_pods import DAEMON_SET
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import NodeInfo
from stellwerk_kube.resource_slice import PARSED, Slice
from stellwerk_kube.taints import Taint, tolerated_seconds

_MAX_PODS_PER_STEP: Final = 500
"""Pods, or ReplicaSets, that are put into an index before yielding."""
_MAX_CHANGED_NODES: Final = 16
"""Changed nodes that the snapshot may lag behind; to write 16 takes less than a millisecond."""
_REVISION: Final = "deployment.kubernetes.io/revision"
_PHASES: Final = {"Pending": 0, "": 0, "Unknown": 1, "Running": 2}
"""In the order in which a controller with too many pods ends them."""


class SupposedChanges:
    """The acts of one question, and what came of them."""

    def __init__(self, world: World, unbound: Iterable[PodInfo]) -> None:
        """Change a fork, whose pods without a node are `unbound`."""
        self._world = world
        self._waiting = {pod.uid: pod for pod in unbound if world.cache.pod(pod.uid) is None}
        self.ended: list[EndedPod] = []
        self.lost: list[str] = []
        """Pods that nothing makes anew, and that the user did not name."""
        self.anew: list[PodInfo] = []
        """Pods whose controllers make them anew, without a node."""
        self.made: list[tuple[JsonObject, str]] = []
        """Manifests of pods that a controller makes beside those it has, and the name of the pod
        that has to run before; empty: none."""
        self.copies: list[PodInfo] = []
        """Pods that a controller makes beside those it has, whose template is not known."""
        self.daemon_sets: dict[str, None] = {}
        """NAMESPACE/NAME of DaemonSets whose pods come to nodes that they choose now."""
        self.gone: set[str] = set()
        """Uids of the pods that have ended."""
        self._by_key: dict[str, list[PodInfo]] = {}
        self._by_owner: dict[tuple[str, str, str], list[PodInfo]] = {}
        """The pods of each controller, by its kind, namespace and name."""
        self._of_deployments: dict[tuple[str, str], list[JsonObject]] = {}
        """The ReplicaSets of each Deployment, by its namespace and name."""

    def apply(self, supposed: Supposition) -> Steps[None]:
        """Apply the acts: nodes change first, then they and pods go, then controllers scale.

        Raises:
            ConfigurationError: a node, a pod or a controller is not there, or cannot be scaled.
        """
        # Before any of them ends: a pod that two acts end is known to both.
        if supposed.delete or supposed.scale:
            yield from self._index_pods()
        yield from self._change_nodes(supposed)
        for deletion in supposed.deletions:
            yield from self._delete(deletion)
            yield from self._act_is_done()
        if any(each.kind == DEPLOYMENT for each in supposed.scalings):
            yield from self._index_replica_sets()
        for scaling in supposed.scalings:
            try:
                yield from self._scale(scaling)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                message = f"{scaling.workload}: its object cannot be read: {error!r}"
                raise ConfigurationError(message) from error
            yield
        self.anew.sort(key=lambda pod: (-pod.priority, pod.key))

    def _change_nodes(self, supposed: Supposition) -> Steps[None]:
        daemons: list[PodInfo] = []
        if supposed.relabel or supposed.taint:
            for pod in daemon_pods(self._world):
                if pod is None:
                    yield
                else:
                    daemons.append(pod)
        for relabelling in supposed.relabellings:
            before = yield from self._node(relabelling.node)
            self._change(before, relabelled(before, _checked(before, relabelling)), daemons)
            yield from self._act_is_done()
        for tainting in supposed.taintings:
            before = yield from self._node(tainting.node)
            after = tainted(untainted(before, _named(before, tainting)), tainting.added)
            self._change(before, after, daemons)
            self._evict(after)
            yield from self._act_is_done()

    def _act_is_done(self) -> Steps[None]:
        """Write changed nodes into the snapshot now and then, or the first decision writes all."""
        if self._world.cache.changed_nodes >= _MAX_CHANGED_NODES:
            self._world.cache.update_snapshot()
        yield

    def _index_pods(self) -> Steps[None]:
        for number, pod in enumerate([*self._world.cache.pods(), *self._waiting.values()]):
            self._by_key.setdefault(pod.key, []).append(pod)
            if pod.owner is not None:
                owner = _owner_kind(pod), pod.namespace, pod.owner[1]
                self._by_owner.setdefault(owner, []).append(pod)
            if number % _MAX_PODS_PER_STEP == 0:
                yield

    def _index_replica_sets(self) -> Steps[None]:
        for number, each in enumerate(list(self._world.objects.list(REPLICA_SET))):
            owner = _controlling(each, DEPLOYMENT)
            if owner:
                key = each["metadata"].get("namespace") or "default", owner
                self._of_deployments.setdefault(key, []).append(each)
            if number % _MAX_PODS_PER_STEP == 0:
                yield

    # --- nodes ----------------------------------------------------------------------------------

    def _node(self, name: str) -> Steps[NodeInfo]:
        node = self._world.cache.node(name)
        if node is None:
            names = [each.name for each in self._world.cache.nodes()]
            near = yield from suggested(name, names)
            raise ConfigurationError(f'there is no node "{name}"{near}')
        return node

    def _change(self, before: NodeInfo, after: NodeInfo, daemons: Sequence[PodInfo]) -> None:
        """Change a node, and let DaemonSets follow (`NodeShouldRunDaemonPod`, v1.36).

        Other pods stay whatever the labels are: what they required was required while scheduling.
        """
        self._world.cache.set_node(after)
        there = set[tuple[str, str, str]]()
        for pod in list(self._world.cache.pods_on(after.name).values()):
            if pod.owner is None or not _is_of_daemon_set(pod):
                continue
            there.add(pod.owner)
            if keeps_running(pod, before) and not keeps_running(pod, after):
                self._end(pod, f"its DaemonSet no longer chooses {after.name}", None)
        chosen = (
            pod
            for pod in daemons
            if pod.owner not in there and may_start(pod, after) and not may_start(pod, before)
        )
        for pod in suppose_daemon_pods(self._world, after, chosen):
            owner = pod.owner[1] if pod.owner else pod.name
            self.daemon_sets[f"{pod.namespace}/{owner}"] = None

    def _evict(self, node: NodeInfo) -> None:
        """End the pods that do not tolerate a node's NoExecute taints, or for some time only."""
        doomed = [
            (seconds, pod)
            for pod in self._world.cache.pods_on(node.name).values()
            if not pod.terminating
            if (seconds := tolerated_seconds(node.taints, pod.spec.tolerations)) is not None
        ]
        for seconds, pod in sorted(doomed, key=lambda each: (each[0], each[1].key)):
            after = max(int(seconds), 0) or None
            self._end_and_remake(pod, f"a NoExecute taint of {node.name}", after)

    def _delete(self, deletion: Deletion) -> Steps[None]:
        if deletion.kind == NODE:
            node = yield from self._node(deletion.name)
            self._delete_node(node)
            return
        key = f"{deletion.namespace}/{deletion.name}"
        found = self._by_key.get(key, ())
        if not found:
            near = yield from suggested(key, self._by_key)
            raise ConfigurationError(f'there is no pod "{key}"{near}')
        for pod in found:
            if _comes_back(pod):
                # Its DaemonSet or its kubelet makes it anew in the same place.
                continue
            self._end_and_remake(pod, "deleted", None, is_asked=True)

    def _delete_node(self, node: NodeInfo) -> None:
        """Take a node away, with its pods: they are collected (`podgc`), whatever budgets say."""
        pods = list(self._world.cache.pods_on(node.name).values())
        self._world.cache.remove_node(node.name)
        for pod in sorted(pods, key=lambda each: each.key):
            reason = f"{node.name} is deleted"
            if _comes_back(pod):
                self._end(pod, reason, None)
            else:
                self._end_and_remake(pod, reason, None)
        # They have the node as their owner, and are collected with it.
        objects, name = self._world.objects, node.name
        csi_node = objects.get("CSINode", "", name)
        slices = objects.list("ResourceSlice")
        for kind, found in (
            ("CSINode", [csi_node] if csi_node is not None else []),
            ("ResourceSlice", [each for each in slices if _node_of_slice(each) == name]),
            ("VolumeAttachment", list(objects.list_by("VolumeAttachment", "nodeName", name))),
        ):
            for obj in found:
                objects.remove(kind, obj)

    # --- controllers ----------------------------------------------------------------------------

    def _scale(self, scaling: Scaling) -> Steps[None]:
        if scaling.kind == DEPLOYMENT:
            controller = yield from self._replica_set(scaling)
        elif scaling.kind == JOB:
            yield from self._scale_job(scaling)
            return
        else:
            controller = yield from self._controller(scaling)
        kind = REPLICA_SET if scaling.kind == DEPLOYMENT else scaling.kind
        name = controller["metadata"]["name"]
        pods = self._owned(kind, scaling.namespace, name)
        if scaling.kind == STATEFUL_SET:
            self._scale_stateful_set(scaling, controller, pods)
            return
        self._end_surplus(scaling, pods)
        self._check_room(scaling, len(pods))
        for number in range(scaling.replicas - len(pods)):
            self.made.append((_pod_of(kind, controller, f"{name}-new-{number + 1}"), ""))

    def _controller(self, scaling: Scaling) -> Steps[JsonObject]:
        objects = self._world.objects
        found = objects.get(scaling.kind, scaling.namespace, scaling.name)
        if found is None:
            known = objects.list(scaling.kind, scaling.namespace)
            raise (yield from self._unknown(scaling, (each["metadata"]["name"] for each in known)))
        return found

    def _replica_set(self, scaling: Scaling) -> Steps[JsonObject]:
        """The ReplicaSet of a Deployment that has its pods.

        Raises:
            ConfigurationError: there is none, or several have pods: it is being rolled out.
        """
        own = self._of_deployments.get((scaling.namespace, scaling.name))
        if own is None:
            known = (name for space, name in self._of_deployments if space == scaling.namespace)
            raise (yield from self._unknown(scaling, known))
        active = [each for each in own if (each.get("spec") or {}).get("replicas")]
        if len(active) > 1:
            names = ", ".join(sorted(str(each["metadata"]["name"]) for each in active))
            raise ConfigurationError(
                f"{scaling.workload} is being rolled out, so its pods would be divided between "
                f"{names}. Scale one of them: replicaset/{scaling.namespace}/NAME"
            )
        return active[0] if active else max(own, key=_revision)

    def _unknown(self, scaling: Scaling, known: Iterable[str]) -> Steps[ConfigurationError]:
        near = yield from suggested(scaling.name, dict.fromkeys(known))
        what = f"{scaling.kind} {scaling.namespace}/{scaling.name}"
        return ConfigurationError(f"the scheduler knows no {what}{near}")

    def _scale_stateful_set(
        self, scaling: Scaling, controller: JsonObject, pods: Sequence[PodInfo]
    ) -> None:
        """End the highest ordinals, or make the lowest missing ones, one after the other."""
        spec, name = controller["spec"], scaling.name
        start = (spec.get("ordinals") or {}).get("start") or 0
        wanted = range(start, start + scaling.replicas)
        by_ordinal = {_ordinal(name, pod): pod for pod in pods}
        for ordinal in sorted(by_ordinal.keys() - set(wanted), reverse=True):
            reason = f"{scaling.workload} is scaled to {scaling.replicas}"
            self._end(by_ordinal[ordinal], reason, None)
        self._check_room(scaling, len(by_ordinal.keys() & set(wanted)))
        is_ordered = spec.get("podManagementPolicy") != "Parallel"
        before = ""
        for ordinal in wanted:
            pod_name = f"{name}-{ordinal}"
            there = by_ordinal.get(ordinal)
            if there is None:
                made = _pod_of(STATEFUL_SET, controller, pod_name, ordinal)
                self.made.append((made, before if is_ordered else ""))
                self._make_claims(controller, pod_name)
            # A pod that runs lets the next one start; a waiting one or a new one may not.
            runs = there is not None and there.node_name
            before = "" if runs else f"{scaling.namespace}/{pod_name}"

    def _make_claims(self, controller: JsonObject, pod_name: str) -> None:
        """Make the claims of a set's pod that are not there yet; they outlive pods."""
        objects, namespace = self._world.objects, controller["metadata"]["namespace"]
        for template in controller["spec"].get("volumeClaimTemplates") or ():
            name = f"{template['metadata']['name']}-{pod_name}"
            if objects.get("PersistentVolumeClaim", namespace, name) is None:
                metadata = {"name": name, "namespace": namespace, "uid": f"supposed-{name}"}
                claim = {
                    "metadata": metadata,
                    "spec": dict(template["spec"]),
                    "status": {"phase": "Pending"},
                }
                objects.set("PersistentVolumeClaim", claim)

    def _scale_job(self, scaling: Scaling) -> Steps[None]:
        """End pods of a Job, or make more like one that it has.

        A scheduler does not know Jobs: only their pods say what another one asks for.
        """
        pods = self._owned(JOB, scaling.namespace, scaling.name)
        if not pods:
            jobs = (key for key in self._by_owner if key[:2] == (JOB, scaling.namespace))
            raise (yield from self._unknown(scaling, (name for *_, name in jobs)))
        self._end_surplus(scaling, pods)
        missing = scaling.replicas - len(pods)
        self._check_room(scaling, len(pods))
        like = min(pods, key=lambda pod: pod.key)
        if missing > 0 and (like.generated_claims or like.volumes):
            raise ConfigurationError(
                f"{scaling.workload}: its pods have volumes or claims, and a new pod may share "
                "them or not. Pass the Job's manifest with --pod"
            )
        for number in range(missing):
            made = like.with_nomination("").with_node("")
            made.name = f"{scaling.name}-new-{number + 1}"
            made.uid = f"{scaling.namespace}/{made.name}"
            self.copies.append(made)

    def _end_surplus(self, scaling: Scaling, pods: Sequence[PodInfo]) -> None:
        surplus = len(pods) - scaling.replicas
        now = self._world.clock.now()
        for pod in by_deletion(pods, now)[: max(surplus, 0)]:
            self._end(pod, f"{scaling.workload} is scaled to {scaling.replicas}", None)

    def _check_room(self, scaling: Scaling, there: int) -> None:
        """Refuse more new pods than an answer decides on, before they are made."""
        missing = scaling.replicas - there
        if missing + len(self.made) + len(self.copies) > MAX_SUPPOSED_PODS:
            raise ConfigurationError(
                f"{scaling}: {missing} more pods; one answer covers at most {MAX_SUPPOSED_PODS}"
            )

    # --- pods -----------------------------------------------------------------------------------

    def _owned(self, kind: str, namespace: str, name: str) -> list[PodInfo]:
        """The pods that a controller counts: those that have not ended, and those made anew."""
        found = [
            pod
            for pod in self._by_owner.get((kind, namespace, name), ())
            if pod.uid not in self.gone and not pod.terminating
        ]
        key = kind, namespace, name
        found += (
            pod
            for pod in self.anew
            if pod.owner and (_owner_kind(pod), pod.namespace, pod.owner[1]) == key
        )
        return found

    def _end_and_remake(
        self, pod: PodInfo, reason: str, after_seconds: int | None, *, is_asked: bool = False
    ) -> None:
        """End a pod that its controller makes anew; `is_asked`: the user named it."""
        if pod.uid in self.gone:
            return
        if _owner_kind(pod) == NODE:
            return  # The kubelet makes a static pod's mirror anew: nothing changes.
        self._end(pod, reason, after_seconds, is_final=False)
        if pod.owner is None:
            if not is_asked:
                self.lost.append(pod.key)
            return
        if _is_of_daemon_set(pod):
            return  # It is not made anew on a node that it may not be on.
        anew = pod.with_nomination("").with_node("")
        if pod.group is not None:
            self._world.pod_groups.put_pod(anew, pod.group)
        self.anew.append(anew)

    def _end(
        self, pod: PodInfo, reason: str, after_seconds: int | None, *, is_final: bool = True
    ) -> None:
        if pod.uid in self.gone:
            # Another act has ended it, and its controller would have made it anew.
            self.anew = [each for each in self.anew if each.uid != pod.uid]
            self.ended = [
                replace(each, made_anew=False) if each.pod == pod.key else each
                for each in self.ended
            ]
            self._world.pod_groups.take_pod(pod.uid)
            return
        self.gone.add(pod.uid)
        world = self._world
        world.cache.remove_pod(pod.uid)
        world.nominator.remove(pod.uid)
        world.pod_groups.take_pod(pod.uid)
        for claim in given_back(world.objects, [pod]):
            world.objects.set("ResourceClaim", claim)
        is_remade = not is_final and pod.owner is not None and not _is_of_daemon_set(pod)
        self.ended.append(
            EndedPod(
                pod=pod.key,
                node=pod.node_name or None,
                reason=reason,
                after_seconds=after_seconds,
                made_anew=is_remade,
            )
        )


def by_deletion(pods: Sequence[PodInfo], now: datetime) -> list[PodInfo]:
    """Pods in the order in which a controller that has too many ends them.

    `ActivePodsWithRanks` of kube-controller-manager (v1.36): without a node, pending and not ready
    first, then those of a lower deletion cost, on nodes with more of them, and the youngest by
    powers of two. A scheduler keeps no restarts, and of a pod's times the one when it started:
    that stands for the times when it was made and became ready.
    """
    on_node = Counter(pod.node_name for pod in pods)

    def rank(pod: PodInfo) -> tuple[bool | int | str, ...]:
        started = pod.started_seconds
        seconds = 0.0 if started is None else now.timestamp() - started
        return (
            bool(pod.node_name),
            _PHASES.get(pod.phase, 0),
            pod.is_ready,
            pod.deletion_cost,
            -on_node[pod.node_name],
            max(int(seconds), 0).bit_length(),
            pod.uid,
        )

    return sorted(pods, key=rank)


def _checked(node: NodeInfo, act: Relabelling) -> Mapping[str, str | None]:
    """The changes of labels; refuses to take away a label that is not there."""
    missing = next(
        (key for key, value in act.labels.items() if value is None and key not in node.labels), None
    )
    if missing is not None:
        raise ConfigurationError(f"{node.name} has no label {missing}")
    return act.labels


def _named(node: NodeInfo, act: Tainting) -> list[Taint]:
    """The taints that the act takes away; refuses one that is not there, as kubectl does."""
    found: list[Taint] = []
    for key, effect in act.removed:
        matching = [each for each in node.taints if each.key == key and effect in {"", each.effect}]
        if not matching:
            raise ConfigurationError(f"{node.name} has no taint {key}{effect and f':{effect}'}")
        found += matching
    return found


def _owner_kind(pod: PodInfo) -> str:
    return "" if pod.owner is None else pod.owner[0].rpartition(" ")[2]


def _is_of_daemon_set(pod: PodInfo) -> bool:
    return _owner_kind(pod) == DAEMON_SET


def _comes_back(pod: PodInfo) -> bool:
    """Whether the pod is made anew on its own node: of a DaemonSet, or a static one's mirror."""
    return _owner_kind(pod) in {DAEMON_SET, NODE}


def _controlling(obj: JsonObject, kind: str) -> str:
    """The name of the object's controller of a kind; empty: it has none."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller") and owner.get("kind") == kind:
            return str(owner["name"])
    return ""


def _node_of_slice(obj: JsonObject) -> str:
    """The one node that a kept ResourceSlice is for; empty: it is for several, or malformed."""
    parsed = obj.get(PARSED)
    return parsed.reach.node_name if isinstance(parsed, Slice) else ""


def _revision(replica_set: JsonObject) -> int:
    written = str((replica_set["metadata"].get("annotations") or {}).get(_REVISION, ""))
    return int(written) if written.isascii() and written.isdecimal() and len(written) < 19 else 0  # noqa: PLR2004 digits of an int64


def _ordinal(name: str, pod: PodInfo) -> int:
    tail = pod.name.removeprefix(f"{name}-")
    return int(tail) if tail.isascii() and tail.isdecimal() and len(tail) < 10 else -1  # noqa: PLR2004 digits of an int32


def _pod_of(
    kind: str, controller: JsonObject, pod_name: str, ordinal: int | None = None
) -> JsonObject:
    """The manifest of a pod as its controller makes it of the template."""
    metadata, spec = controller["metadata"], controller["spec"]
    template = spec["template"]
    inherited = template.get("metadata") or {}
    labels = dict(inherited.get("labels") or {})
    pod_spec = dict(template["spec"])
    if ordinal is not None:
        revision = (controller.get("status") or {}).get("updateRevision")
        labels |= {
            "statefulset.kubernetes.io/pod-name": pod_name,
            "apps.kubernetes.io/pod-index": str(ordinal),
            **({"controller-revision-hash": revision} if revision else {}),
        }
        own = [
            {
                "name": each["metadata"]["name"],
                "persistentVolumeClaim": {"claimName": f"{each['metadata']['name']}-{pod_name}"},
            }
            for each in spec.get("volumeClaimTemplates") or ()
        ]
        names = {each["name"] for each in own}
        others = [each for each in pod_spec.get("volumes") or () if each["name"] not in names]
        pod_spec["volumes"] = [*own, *others]
    # The API server leaves both out of the objects of a list.
    api_version = "v1" if kind == REPLICATION_CONTROLLER else "apps/v1"
    owner = {"apiVersion": api_version, "kind": kind, "name": metadata["name"]}
    return {
        "metadata": {
            "name": pod_name,
            "namespace": metadata["namespace"],
            "labels": labels,
            "annotations": dict(inherited.get("annotations") or {}),
            "ownerReferences": [{**owner, "uid": metadata.get("uid") or "", "controller": True}],
        },
        "spec": pod_spec,
    }
