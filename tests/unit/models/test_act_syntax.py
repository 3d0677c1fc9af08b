"""The syntax of supposed acts: what is read, what is refused, and that both ways agree."""

from collections.abc import Callable
from typing import Any

import pytest

from stellwerk.models.act_syntax import (
    Deletion,
    Relabelling,
    Scaling,
    Tainting,
    read_acts,
    read_deletion,
    read_relabelling,
    read_scaling,
    read_tainting,
)
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.taints import NO_EXECUTE, NO_SCHEDULE, Taint


@pytest.mark.parametrize(
    ("read", "text", "act", "written"),
    [
        pytest.param(
            read_relabelling,
            " node-1  disk=ssd example.com/zone= old- ",
            Relabelling("node-1", {"disk": "ssd", "example.com/zone": "", "old": None}),
            "node-1 disk=ssd example.com/zone= old-",
            id="labels",
        ),
        pytest.param(
            read_tainting,
            "node-1 a=b:NoExecute c:NoSchedule d- e:NoExecute-",
            Tainting(
                "node-1",
                (Taint("a", "b", NO_EXECUTE), Taint("c", "", NO_SCHEDULE)),
                (("d", ""), ("e", NO_EXECUTE)),
            ),
            "node-1 a=b:NoExecute c:NoSchedule d- e:NoExecute-",
            id="taints",
        ),
        pytest.param(read_deletion, "node/a", Deletion("Node", "", "a"), "node/a", id="a node"),
        pytest.param(
            read_deletion,
            "po/web",
            Deletion("Pod", "default", "web"),
            "pod/default/web",
            id="a pod of the default namespace",
        ),
        pytest.param(
            read_scaling,
            "deploy/shop/web=0",
            Scaling("Deployment", "shop", "web", 0),
            "deployment/shop/web=0",
            id="a Deployment",
        ),
        pytest.param(
            read_scaling,
            "STS/web=12",
            Scaling("StatefulSet", "default", "web", 12),
            "statefulset/default/web=12",
            id="a StatefulSet",
        ),
    ],
)
def test_an_act_is_read_and_written(
    read: Callable[[str], Any], text: str, act: object, written: str
) -> None:
    assert read(text) == act
    assert f"{read(text)}" == written
    assert read(written) == act


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (read_relabelling, "", "expected the name of a node and KEY=VALUE or KEY-"),
        (read_relabelling, "node-1", "expected the name of a node"),
        (read_relabelling, "Node_1 a=b", "expected the name of a node"),
        (read_relabelling, "node-1 disk", '"disk" is not KEY=VALUE or KEY-'),
        (read_relabelling, "node-1 -=b", "is not a label key"),
        (read_relabelling, "node-1 a=b c=d=e", "is not a label value"),
        (read_relabelling, "node-1 a=b a-", "a is named twice"),
        (read_relabelling, "n " + " ".join(f"k{n}=v" for n in range(65)), "at most 64"),
        (read_tainting, "node-1 a=b", "is not a taint effect; effects are NoSchedule"),
        (read_tainting, "node-1 a=b:NoExecut", 'did you mean "NoExecute"'),
        (read_tainting, "node-1 a b:NoExecute", "is not a taint effect"),
        (read_tainting, "node-1 a!:NoExecute", "is not a taint key"),
        (read_tainting, "node-1 a=?:NoExecute", "is not a taint value"),
        (read_tainting, "node-1 a:NoExecute a=b:NoExecute", "a is named twice"),
        (read_deletion, "web", "expected node/NAME or pod/NAMESPACE/NAME"),
        (read_deletion, "nod/web", '"nod" is none of node, pod; did you mean "node"'),
        (read_deletion, "node/shop/a", "a node has no namespace"),
        (read_deletion, "pod/a/b/c", "expected node/NAME"),
        (read_deletion, "pod/", "expected node/NAME"),
        (read_scaling, "deployment/web", "expected KIND/NAMESPACE/NAME=REPLICAS"),
        (read_scaling, "deploymnt/web=3", 'did you mean "deployment"'),
        (read_scaling, "daemonset/web=3", "is none of deployment, job, replicaset"),
        (read_scaling, "deployment/web=-1", "a whole number from 0 to 100,000"),
        (read_scaling, "deployment/web=100001", "a whole number from 0 to 100,000"),
        (read_scaling, "deployment/web=²", "a whole number from 0 to 100,000"),
        (read_scaling, "deployment/web=" + "9" * 9999, "a whole number from 0 to 100,000"),
    ],
)
def test_what_is_no_act_is_refused_in_words(
    read: Callable[[str], Any], text: str, message: str
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read(text)
    assert message in f"{raised.value}"


def test_two_acts_on_one_thing_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="--relabel 'n a=c': it is named twice"):
        read_acts("--relabel", ["n a=b", "n a=c"], read_relabelling, lambda act: act.node)
