"""GPUs in the words of pods and nodes: shares of one device in thousandths, or whole devices.

The plugins of `plugins.gpu` and the simulation read them. A node offers both resources, `devices`
as their number and `milli` as a thousand for each; the model is a label, so that a pod names the
models it admits by nodeSelector or node affinity. Invariant: a request is either a share of one
device or a number of whole ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

DEVICES: Final = "gpu.stellwerk.dev/devices"
"""The resource: so many whole devices."""
MILLI: Final = "gpu.stellwerk.dev/milli"
"""The resource: so many thousandths of one device."""
MODEL_LABEL: Final = "gpu.stellwerk.dev/model"
"""The label of nodes that names the model of their devices."""
DEVICE_IDS: Final = "gpu.stellwerk.dev/device-ids"
"""The annotation of pods with the numbers of their devices: "0" or "2,3"."""
WHOLE: Final = 1000
"""The thousandths of a device."""
_MAX_DEVICES: Final = 1024
"""Devices of a node. Whatever an annotation names beyond them is no device."""


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """A pod's request of the devices of one node."""

    devices: int
    """The number of devices, at least 1."""
    milli: int
    """Thousandths of each of them; below 1000 only with one device."""

    @property
    def total_milli(self) -> int:
        """Thousandths of all devices together."""
        return self.devices * self.milli

    @property
    def shares(self) -> bool:
        """Whether others may use the rest of the device."""
        return self.milli < WHOLE


def gpu_request(requests: Mapping[str, int]) -> GpuRequest | None:
    """The request in a pod's amounts; None: it asks for no GPU, or for what no node can give."""
    devices, milli = requests.get(DEVICES, 0), requests.get(MILLI, 0)
    if not milli:
        return GpuRequest(devices, WHOLE) if devices else None
    if devices:
        return None
    if milli < WHOLE:
        return GpuRequest(1, milli)
    return None if milli % WHOLE else GpuRequest(milli // WHOLE, WHOLE)


def refusal(requests: Mapping[str, int]) -> str:
    """The reason why no node can give what a pod asks of GPUs; empty: nothing is wrong with it."""
    devices, milli = requests.get(DEVICES, 0), requests.get(MILLI, 0)
    if devices and milli:
        return f"pod asks for {DEVICES} and {MILLI} at once"
    if milli > WHOLE and milli % WHOLE:
        return f"pod asks for {milli} {MILLI}: a share is of one device"
    return ""


def parse_device_ids(text: str) -> tuple[int, ...]:
    """The numbers in an annotation; of one that is malformed, none."""
    try:
        numbers = tuple(int(part) for part in text.split(",", _MAX_DEVICES)) if text else ()
    except ValueError:
        return ()
    return numbers if all(0 <= number < _MAX_DEVICES for number in numbers) else ()


def device_ids_text(numbers: tuple[int, ...]) -> str:
    """The annotation's value."""
    return ",".join(map(str, numbers))
