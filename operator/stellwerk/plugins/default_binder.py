"""DefaultBinder: binds a pod by creating its binding at the API.

The binding cycle calls it when no extender and no other plugin bound the pod. Invariant: a failure
is a status with the API's own words, which the runtime prefixes as kube-scheduler does.
"""

from typing import ClassVar

from pydantic import BaseModel
from typing_extensions import override

from stellwerk.framework.interface import BindPlugin
from stellwerk.framework.services import Handle
from stellwerk.framework.types import OK, CycleState, Status, error
from stellwerk.models.pod import PodInfo
from stellwerk_kube.errors import ApiError, OutcomeUnknown


class DefaultBinder(BindPlugin):
    """POSTs pods/binding."""

    name: ClassVar[str] = "DefaultBinder"

    def __init__(self, handle: Handle, _args: BaseModel | None = None) -> None:
        self._handle = handle

    @override
    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        try:
            await self._handle.client.bind(pod.namespace, pod.name, pod.uid, node_name)
        except ApiError as failure:
            if isinstance(failure, OutcomeUnknown):
                state.bind_outcome_unknown = True
            return error(self.name, failure.message or str(failure))
        return OK
