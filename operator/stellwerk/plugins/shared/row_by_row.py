"""The base of plugins for which a pod on a node matters to that node's row alone.

Runs of equal pods (`framework.equal_pods`) rely on it; tests compare them with single decisions.
"""

from typing_extensions import override

from stellwerk.framework.interface import EqualPods, EqualPodsPlugin
from stellwerk.models.pod import PodInfo


class RowByRow(EqualPodsPlugin):
    """Says so of every pod."""

    @override
    def after_equal_pod(self, pod: PodInfo) -> EqualPods:
        return EqualPods.ROW


class RowByRowWithoutVolumes(EqualPodsPlugin):
    """Says so of pods without volumes and claims; others may share what a pod takes."""

    @override
    def after_equal_pod(self, pod: PodInfo) -> EqualPods:
        if pod.volumes or pod.volume_uses is not None:
            return EqualPods.ANYTHING
        return EqualPods.ROW
