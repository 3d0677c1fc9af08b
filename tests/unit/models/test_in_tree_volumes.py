"""In-tree volumes have the driver, handle and topology that csi-translation-lib gives them."""

from typing import Any

import pytest

from stellwerk.models.in_tree_volumes import (
    inline_handle,
    migrated_node_selector,
    provisioning_driver,
    volume_handle,
)
from tests.support.storage import make_volume

ZONE, BETA_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
REGION, BETA_REGION = "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"
DISK = {"gcePersistentDisk": {"pdName": "d"}}
GCE, EBS = "pd.csi.storage.gke.io", "ebs.csi.aws.com"
CSI_ZONE = "topology.ebs.csi.aws.com/zone"


@pytest.mark.parametrize(
    ("kind", "source_id", "expected"),
    [
        pytest.param("awsElasticBlockStore", "vol-1", (EBS, "vol-1"), id="a bare EBS id"),
        pytest.param("awsElasticBlockStore", "aws://z/vol-1", (EBS, "vol-1"), id="an EBS URL"),
        pytest.param("awsElasticBlockStore", "aws://z/disk", None, id="a malformed EBS URL"),
        pytest.param(
            "gcePersistentDisk",
            "d",
            (GCE, "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"),
            id="a PD, whose zone a pod does not name",
        ),
        pytest.param("azureDisk", "/sub/d", ("disk.csi.azure.com", "/sub/d"), id="Azure disk"),
        pytest.param("rbd", "i", None, id="a kind without a translation"),
        pytest.param("azureFile", "s", None, id="a kind that is never migrated"),
    ],
)
def test_disks_named_in_pods(kind: str, source_id: str, expected: Any) -> None:
    assert inline_handle(kind, source_id) == expected


@pytest.mark.parametrize(
    ("labels", "handle"),
    [
        pytest.param({}, "zones/UNSPECIFIED", id="without a zone"),
        pytest.param({ZONE: "eu-west1-b"}, "zones/eu-west1-b", id="in a zone"),
        pytest.param({ZONE: "eu-west1-b__eu-west1-c"}, "regions/eu-west1", id="in two zones"),
        pytest.param({ZONE: "a", BETA_ZONE: "b"}, "zones/b", id="the beta label comes first"),
    ],
)
def test_a_pd_volume_is_named_by_its_zones(labels: dict[str, str], handle: str) -> None:
    expected = (GCE, f"projects/UNSPECIFIED/{handle}/disks/d")
    assert volume_handle(make_volume("v", labels=labels, source=DISK)) == expected


def test_a_volume_of_no_driver_has_no_handle() -> None:
    assert volume_handle(make_volume("v", source={"hostPath": {"path": "/x"}})) is None


@pytest.mark.parametrize(
    ("provisioner", "driver"),
    [
        pytest.param("kubernetes.io/aws-ebs", EBS, id="migrated"),
        pytest.param("kubernetes.io/azure-file", "", id="migratable, not counted"),
        pytest.param("csi.example.com", "csi.example.com", id="a CSI driver"),
    ],
)
def test_provisioners_stand_for_drivers(provisioner: str, driver: str) -> None:
    assert provisioning_driver(provisioner) == driver


def terms(**expressions: list[str]) -> Any:
    return [
        {
            "matchExpressions": [
                {"key": key, "operator": "In", "values": values}
                for key, values in expressions.items()
            ]
        }
    ]


@pytest.mark.parametrize(
    ("volume", "expected"),
    [
        pytest.param(make_volume("v"), None, id="no topology at all"),
        pytest.param(
            make_volume("v", nodes={ZONE: ["a"], "disk": ["ssd"]}),
            terms(**{CSI_ZONE: ["a"], "disk": ["ssd"]}),
            id="the zone becomes the driver's",
        ),
        pytest.param(
            make_volume("v", nodes={BETA_ZONE: ["a"], BETA_REGION: ["r"]}),
            terms(**{CSI_ZONE: ["a"], REGION: ["r"]}),
            id="so does the beta zone, and the region becomes the newer one",
        ),
        pytest.param(
            make_volume("v", labels={ZONE: "b__a"}),
            terms(**{CSI_ZONE: ["a", "b"]}),
            id="zones of the labels",
        ),
        pytest.param(
            make_volume("v", labels={ZONE: "a"}, nodes={"disk": ["ssd"]}),
            terms(disk=["ssd"], **{CSI_ZONE: ["a"]}),
            id="zones of the labels beside other terms",
        ),
    ],
)
def test_topology_is_translated(volume: Any, expected: Any) -> None:
    selector = migrated_node_selector(volume, CSI_ZONE)
    assert (selector and selector["nodeSelectorTerms"]) == expected


@pytest.mark.parametrize("operator", ["Exists", "DoesNotExist"])
def test_a_requirement_that_names_no_zone_keeps_its_key(operator: str) -> None:
    unnamed = {"key": ZONE, "operator": operator}
    volume = make_volume("v", labels={ZONE: "a"}, nodes={})
    volume["spec"]["nodeAffinity"] = {
        "required": {"nodeSelectorTerms": [{"matchExpressions": [unnamed]}]}
    }
    selector = migrated_node_selector(volume, CSI_ZONE)
    zone_of_label = {"key": CSI_ZONE, "operator": "In", "values": ["a"]}
    assert selector == {"nodeSelectorTerms": [{"matchExpressions": [unnamed, zone_of_label]}]}
