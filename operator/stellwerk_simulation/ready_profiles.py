"""The ready profiles of `stellwerk simulate`, and those that users bring.

Invariant: a ready profile filters as the default profile does, with GpuShare beside; the scores of
the default profile give way to the one of the policy, and ties to the rank of nodes.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from stellwerk.plugins.fragmentation_gradient_descent import FragmentationGradientDescent
from stellwerk.plugins.gpu.fragmentation import TypicalPod
from stellwerk.plugins.gpu_best_fit import GpuBestFit
from stellwerk.plugins.gpu_clustering import GpuClustering
from stellwerk.plugins.gpu_dot_product import GpuDotProduct
from stellwerk.plugins.gpu_packing import GpuPacking
from stellwerk.plugins.gpu_pattern_plan import GpuPatternPlan
from stellwerk.plugins.gpu_share import GpuShare
from stellwerk.plugins.registry import known_plugins
from stellwerk.profiles.spec.profile import KIND, LoadedProfile, load_profile
from stellwerk_kube.compatibility import Compatibility, compatibility_beside
from stellwerk_kube.errors import ConfigurationError, ProfileError
from stellwerk_kube.names import suggestion
from stellwerk_kube.yaml_file import read_kinds
from stellwerk_simulation.arrivals import planned_kinds
from stellwerk_simulation.trace import TracePod

_SCORE_OF: Final[Mapping[str, str]] = {
    "random": "",
    "dot-product": GpuDotProduct.name,
    "gpu-clustering": GpuClustering.name,
    "gpu-packing": GpuPacking.name,
    "best-fit": GpuBestFit.name,
    "fgd": FragmentationGradientDescent.name,
    "pattern-plan": FragmentationGradientDescent.name,
}
_PLANNED: Final = "pattern-plan"
_BEFORE_ALL_ELSE: Final = 101
"""The weight of a score whose smallest step counts for more than all of another one."""
_DEFAULT: Final = "default"
NEWEST: Final = compatibility_beside("")
"""Without a cluster: the newest release that Stellwerk knows."""
READY: Final = (_DEFAULT, *_SCORE_OF)
"""The names of the ready profiles."""


def profile_of(
    name: str,
    typical: Sequence[TypicalPod],
    pods: Sequence[TracePod] = (),
    auto: Compatibility = NEWEST,
) -> LoadedProfile:
    """The ready profile of that name, or the SchedulerProfile in the file of that name.

    `auto` is the meaning of `compatibility: auto`: a live cluster's release, else the newest one.

    Raises:
        ConfigurationError: there is neither, or it cannot be used.
    """
    if name in READY:
        return load_profile(ready_manifest(name, typical, pods), known_plugins(), auto)
    check_names_a_file(name, f"--profile {name}: there is no such profile")
    path = Path(name)
    try:
        return load_profile(manifest_in(path), known_plugins(), auto)
    except ProfileError as error:
        raise ConfigurationError(f"{path}: {error}") from error


def check_names_a_file(name: str, refusal: str) -> None:
    """Refuse a name that is no ready profile's and no file's; `refusal` begins the message.

    Raises:
        ConfigurationError: it is neither.
    """
    if Path(name).suffix not in {".yaml", ".yml", ".json"}:
        message = f"{refusal}{suggestion(name, READY)}; ready profiles are {', '.join(READY)}"
        raise ConfigurationError(f"{message}; a file's name ends in .yaml or .json")


def release_of(profile: LoadedProfile) -> str:
    """The release of Kubernetes by which simulations of the profile decide."""
    return str(profile.auto.of(profile.spec.compatibility).version)


def ready_manifest(
    name: str, typical: Sequence[TypicalPod], pods: Sequence[TracePod] = ()
) -> dict[str, Any]:
    """The SchedulerProfile object of a ready profile."""
    if name == _DEFAULT:
        return {"metadata": {"name": name}, "spec": {"schedulerName": name}}
    score = _SCORE_OF[name]
    config = []
    scores: list[dict[str, Any]] = [{"name": score}] if score else []
    if name == _PLANNED:
        planned = [_kind(pod) | {"memoryMiB": mib} for pod, mib in planned_kinds(pods)]
        config.append({"name": GpuPatternPlan.name, "args": {"typicalPods": planned}})
        scores.append({"name": GpuPatternPlan.name, "weight": _BEFORE_ALL_ELSE})
    if score == FragmentationGradientDescent.name:
        config.append({"name": score, "args": {"typicalPods": [_kind(pod) for pod in typical]}})
    if not score:
        config.append({"name": GpuShare.name, "args": {"deviceSelection": "Random"}})
    enabled = [{"name": GpuShare.name}, *map(dict, scores)]
    return {
        "metadata": {"name": name},
        "spec": {
            "schedulerName": name,
            "tieBreak": "NodeRank" if score else "Random",
            "plugins": {
                "multiPoint": {"enabled": enabled},
                # What is enabled for every point goes on scoring; the defaults do not.
                "score": {"disabled": [{"name": "*"}], "enabled": scores},
                "postFilter": {"disabled": [{"name": "*"}]},
            },
            "pluginConfig": config,
        },
    }


def _kind(pod: TypicalPod) -> dict[str, Any]:
    kind = {
        "cpuMillis": pod.cpu_millis,
        "gpuMilli": pod.gpu_milli,
        "devices": pod.devices,
        "count": pod.count,
    }
    return kind | {"models": list(pod.models)} if pod.models else kind


def manifest_in(path: Path) -> Mapping[str, Any]:
    """The SchedulerProfile object of a file.

    Raises:
        ConfigurationError: it cannot be read, or holds something else.
    """
    found = read_kinds(str(path), path, [KIND])
    if len(found) > 1:
        raise ConfigurationError(f"{path}: one {KIND} is expected, there are {len(found)}")
    return found[0]
