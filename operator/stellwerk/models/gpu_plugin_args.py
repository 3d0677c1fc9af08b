"""The arguments of the plugins that share GPUs, one model each.

kube-scheduler has none of these plugins. Invariant: as of all plugin arguments, a validated model
is immutable, comparable and complete.
"""

from typing import Annotated, Literal

from pydantic import Field

from stellwerk.models.config_model import INT32_MAX, INT64_MAX, ConfigModel, Items
from stellwerk.models.plugin_args import PluginArgs


class GpuShareArgs(PluginArgs):
    """Arguments of GpuShare."""

    device_selection: Literal["BestFit", "Random"] = "BestFit"
    """Which of the devices that have room a share gets: the fullest, or any at random. Goes after
    the choice of a score plugin that tries devices, such as FragmentationGradientDescent."""


class TypicalPodKind(ConfigModel):
    """A kind of pod that the cluster is typically asked to run."""

    cpu_millis: Annotated[int, Field(ge=0, le=INT64_MAX)]
    """What it requests of cpu, in millicores."""

    gpu_milli: Annotated[int, Field(ge=0, le=1000)] = 0
    """What it requests of each device, in thousandths; 0: no GPU."""

    devices: Annotated[int, Field(ge=0, le=64)] = 1
    """How many devices it requests."""

    models: Items[Annotated[str, Field(min_length=1)]] = ()
    """The models that it admits, by the label gpu.stellwerk.dev/model; none: all."""

    count: Annotated[int, Field(ge=1, le=INT32_MAX)] = 1
    """How often such pods occur, in relation to the other kinds."""


class FragmentationGradientDescentArgs(PluginArgs):
    """Arguments of FragmentationGradientDescent."""

    typical_pods: Annotated[Items[TypicalPodKind], Field(max_length=1024)] = ()
    """The kinds of pods for which devices are to stay useful; none: those that were seen."""


class PlannedPodKind(TypicalPodKind):
    """A kind of pod that a plan reckons with."""

    memory_mib: Annotated[int, Field(alias="memoryMiB", ge=0, le=INT32_MAX)] = 0
    """What it requests of memory on average, in MiB."""


class GpuPatternPlanArgs(PluginArgs):
    """Arguments of GpuPatternPlan."""

    typical_pods: Annotated[Items[PlannedPodKind], Field(max_length=1024)] = ()
    """The kinds of pods that are to be expected; none: those that were seen."""

    solver_seconds: Annotated[int, Field(ge=1, le=600)] = 30
    """How long one plan may be searched for; after that, the best one found counts."""
