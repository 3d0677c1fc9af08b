"""Three ways to install Stellwerk give the same objects: files, kustomization, chart."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from stellwerk import __version__
from stellwerk.models.json_values import JsonObject
from tests.support.kubectls import helm, newest, program_of
from tests.support.repository import ROOT

CHART = ROOT / "charts" / "stellwerk"
NAMESPACE = "stellwerk"

Key = tuple[str, str, str]


def by_key(objects: list[JsonObject]) -> dict[Key, JsonObject]:
    """Objects by kind, namespace and name."""
    keyed = {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each
        for each in objects
    }
    assert len(keyed) == len(objects)
    return keyed


def parsed(text: str) -> list[JsonObject]:
    found = yaml.load_all(text, Loader=yaml.CSafeLoader)
    return [each for each in found if each is not None]


def applied_as_files() -> dict[Key, JsonObject]:
    """What `kubectl apply -f crds/ -f manifests/` reads: files with an ending that it knows."""
    files = [*sorted((ROOT / "crds").iterdir()), *sorted((ROOT / "manifests").iterdir())]
    texts = [each.read_text() for each in files if each.suffix in {".yaml", ".yml", ".json"}]
    return by_key([each for text in texts for each in parsed(text)])


def run(program: Path, *arguments: str | Path) -> str:
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rendered(*values: str, crds: bool = True) -> dict[Key, JsonObject]:
    """The chart's objects with some values set."""
    settings = [part for value in values for part in ("--set", value)]
    shown = ["--include-crds"] if crds else []
    return by_key(
        parsed(run(helm(), "template", "stellwerk", CHART, "-n", NAMESPACE, *shown, *settings))
    )


def deployed(objects: dict[Key, JsonObject]) -> dict[str, Any]:
    deployment = objects["Deployment", NAMESPACE, "stellwerk"]
    return dict(deployment["spec"]["template"]["spec"])


def test_the_kustomization_gives_what_the_files_give() -> None:
    program = program_of(newest())
    assert by_key(parsed(run(program, "kustomize", ROOT / "manifests"))) == applied_as_files()


def test_the_chart_gives_what_the_files_give() -> None:
    files = applied_as_files()
    del files["Namespace", "", NAMESPACE]  # helm install --create-namespace
    assert rendered() == files


def test_in_place_of_kube_scheduler_chart_and_overlay_are_one() -> None:
    overlay = by_key(parsed(run(program_of(newest()), "kustomize", ROOT / "overlays" / "in-place")))
    del overlay["Namespace", "", NAMESPACE]
    chart = rendered("takeOverDefaultScheduler=true")
    profile = ROOT / "manifests" / "profiles" / "optional" / "default-scheduler.yaml"
    (made,) = parsed(profile.read_text())
    assert chart.pop(("SchedulerProfile", "", "default-scheduler")) == made
    assert chart == overlay


def test_for_gpus_that_pods_share_chart_and_overlay_are_one() -> None:
    overlay = by_key(parsed(run(program_of(newest()), "kustomize", ROOT / "overlays" / "gpu")))
    del overlay["Namespace", "", NAMESPACE]
    assert rendered("gpuSharing=true") == overlay


def test_the_chart_passes_helms_own_look() -> None:
    assert "0 chart(s) failed" in run(helm(), "lint", "--strict", CHART)


def test_chart_manifests_and_package_have_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__
    (container,) = deployed(applied_as_files())["containers"]
    assert container["image"] == f"stellwerk:{__version__}"


def test_values_reach_the_deployment() -> None:
    objects = rendered(
        "image.repository=registry.example/stellwerk",
        "image.tag=1.2.3",
        "image.pullSecrets={pull}",
        "replicas=3",
        "controlPlane=true",
        "resources.limits.memory=4Gi",
        "extraArgs={--log-level=debug}",
    )
    pod = deployed(objects)
    (container,) = pod["containers"]
    assert objects["Deployment", NAMESPACE, "stellwerk"]["spec"]["replicas"] == 3
    assert container["image"] == "registry.example/stellwerk:1.2.3"
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    assert container["resources"]["limits"] == {"memory": "4Gi"}
    assert container["args"][-1] == "--log-level=debug"
    assert "node-role.kubernetes.io/control-plane" in {each["key"] for each in pod["tolerations"]}


def test_secrets_of_plugins_may_be_read_one_by_one() -> None:
    role = rendered("plugins.secrets[0].namespace=team", "plugins.secrets[0].name=token")[
        "Role", "team", "stellwerk-plugins-token"
    ]
    (rule,) = role["rules"]
    assert (rule["resourceNames"], rule["verbs"]) == (["token"], ["get"])


def test_profiles_are_made_of_values() -> None:
    objects = rendered("profiles.packing.schedulerName=packing", "takeOverDefaultScheduler=true")
    served = {key[2]: each["spec"] for key, each in objects.items() if key[0] == "SchedulerProfile"}
    assert served == {
        "packing": {"schedulerName": "packing"},
        "default-scheduler": {"schedulerName": "default-scheduler"},
    }


def test_monitoring_adds_the_objects_of_the_folder_monitoring() -> None:
    plain, monitored = rendered(), rendered("monitoring.enabled=true")
    folder = run(program_of(newest()), "kustomize", ROOT / "manifests" / "monitoring")
    added = {key: each for key, each in monitored.items() if key not in plain}
    assert {key[0] for key in added} == {"Service", "ServiceMonitor", "PrometheusRule", "ConfigMap"}
    assert added == by_key(parsed(folder))


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("replicas=0", "minimum"),
        ("image.tag=latest", "image/tag"),
        ("imag.tag=1", "imag"),
        ("profiles.packing.weight=1", "schedulerName"),
        ("plugins.secrets[0].name=token", "namespace"),
    ],
)
def test_a_wrong_value_is_named(value: str, complaint: str) -> None:
    done = subprocess.run(
        [helm(), "template", "stellwerk", CHART, "--set", value],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert complaint in done.stderr
