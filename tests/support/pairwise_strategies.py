"""Small random clusters whose pods attract, repel and spread; labels collide often."""

from hypothesis import strategies as st

from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
TOPOLOGY_KEYS = (HOSTNAME, ZONE, "rack")
NAMESPACES = ("default", "prod", "dev")

# Most pods are of one kind, and most terms speak of it: otherwise hardly any pod meets a term.
namespace_names = st.sampled_from([NAMESPACES[0]] * 4 + [*NAMESPACES[1:]])
pod_labels = st.one_of(
    st.just({"app": "a"}),
    st.fixed_dictionaries(
        {}, optional={"app": st.sampled_from(["a", "b"]), "tier": st.sampled_from(["fe", "be"])}
    ),
)
namespace_labels = st.sampled_from([{"env": "x"}, {"env": "y"}, {}])

_requirements = st.one_of(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(["app", "tier"]),
            "operator": st.sampled_from(["In", "NotIn"]),
            "values": st.lists(st.sampled_from(["a", "b", "fe"]), min_size=1, max_size=2),
        }
    ),
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(["app", "tier"]),
            "operator": st.sampled_from(["Exists", "DoesNotExist"]),
        }
    ),
)
selectors = st.one_of(
    st.just({"matchLabels": {"app": "a"}}),
    st.just({"matchLabels": {"app": "a"}}),
    st.fixed_dictionaries({"matchLabels": pod_labels}),
    st.fixed_dictionaries({"matchExpressions": st.lists(_requirements, max_size=2)}),
)
_namespace_selectors: st.SearchStrategy[JsonObject] = st.one_of(
    st.just({"matchLabels": {"env": "x"}}),
    st.just({}),
    st.fixed_dictionaries({"matchLabels": namespace_labels}),
    st.just({"matchExpressions": [{"key": "env", "operator": "DoesNotExist"}]}),
)
_terms = st.fixed_dictionaries(
    {"topologyKey": st.sampled_from(TOPOLOGY_KEYS)},
    optional={
        "labelSelector": selectors,
        "namespaces": st.lists(st.sampled_from(NAMESPACES), max_size=2),
        "namespaceSelector": _namespace_selectors,
    },
)
_weighted = st.fixed_dictionaries({"weight": st.integers(1, 100), "podAffinityTerm": _terms})
_sides = st.fixed_dictionaries(
    {},
    optional={
        "requiredDuringSchedulingIgnoredDuringExecution": st.lists(_terms, max_size=2),
        "preferredDuringSchedulingIgnoredDuringExecution": st.lists(_weighted, max_size=2),
    },
)
affinities = st.fixed_dictionaries({}, optional={"podAffinity": _sides, "podAntiAffinity": _sides})
no_affinity: st.SearchStrategy[JsonObject] = st.just({})

_constraints = st.fixed_dictionaries(
    {
        "maxSkew": st.integers(1, 3),
        "topologyKey": st.sampled_from(TOPOLOGY_KEYS),
        "whenUnsatisfiable": st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
        "labelSelector": st.one_of(selectors, selectors, st.none()),
    },
    optional={
        "minDomains": st.integers(1, 4),
        "nodeAffinityPolicy": st.sampled_from(["Honor", "Ignore"]),
        "nodeTaintsPolicy": st.sampled_from(["Honor", "Honor", "Ignore"]),
        "matchLabelKeys": st.just(["tier"]),
    },
)


def _alike(item: JsonObject) -> tuple[str, str]:
    return (item["topologyKey"], item["whenUnsatisfiable"])


spread_constraints = st.lists(_constraints, min_size=1, max_size=3, unique_by=_alike)
no_constraints: st.SearchStrategy[list[JsonObject]] = st.just([])


@st.composite
def nodes(draw: st.DrawFn, name: str) -> JsonObject:
    """Draw a node; hostnames may be shared or missing, values may be empty."""
    hostname = draw(st.sampled_from([name, name, name, "shared", None]))
    labels = draw(
        st.fixed_dictionaries(
            {},
            optional={
                ZONE: st.sampled_from(["z1", "z2", ""]),
                "rack": st.sampled_from(["r1", "r2", "r3"]),
                "pool": st.sampled_from(["p1", "p2"]),
            },
        )
    )
    taints = draw(
        st.sampled_from([[], [], [{"key": "spot", "effect": "NoSchedule"}]]),
    )
    node = make_node(name, labels=labels, taints=taints)
    del node["metadata"]["labels"][HOSTNAME]
    if hostname is not None:
        node["metadata"]["labels"][HOSTNAME] = hostname
    return node


@st.composite
def pods(
    draw: st.DrawFn,
    name: str,
    node_name: str | None = None,
    affinity: st.SearchStrategy[JsonObject] = affinities,
) -> JsonObject:
    """Draw a pod that may have affinity terms."""
    pod = make_pod(
        name,
        namespace=draw(namespace_names),
        labels=draw(pod_labels),
        node_name=node_name,
        affinity=draw(affinity),
    )
    if node_name is not None and draw(st.integers(0, 5)) == 0:
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return pod


@st.composite
def pending_pods(
    draw: st.DrawFn,
    affinity: st.SearchStrategy[JsonObject] = affinities,
    constraints: st.SearchStrategy[list[JsonObject]] = spread_constraints,
) -> JsonObject:
    """Draw a pod to place."""
    pod = draw(pods("new", None, affinity))
    pod["spec"]["topologySpreadConstraints"] = draw(constraints)
    if draw(st.integers(0, 3)) == 0:
        pod["spec"]["nodeSelector"] = {"pool": "p1"}
    if draw(st.integers(0, 3)) == 0:
        pod["spec"]["tolerations"] = [{"operator": "Exists"}]
    return pod
