"""The strategy of every built-in kind, by the name of its type.

Asked by the verbs. Invariant: a kind without a line here has no rules of its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.admission.kind_plugins import (
    admit_ingress,
    admit_job_update,
    check_admin_access,
    check_pod_group,
    prepare_node,
    protect_namespace,
)
from stellwerk_cluster.admission.limit_ranger import check_limits
from stellwerk_cluster.admission.pod_admission import admit_pod, admit_pod_update, check_pod
from stellwerk_cluster.admission.priority import (
    admit_pod_group,
    admit_priority_class,
    admit_priority_class_update,
    protect_priority_class,
)
from stellwerk_cluster.admission.storage import admit_claim_update, prepare_claim, prepare_volume
from stellwerk_cluster.apimachinery.names import label_errors
from stellwerk_cluster.apimachinery.strategy import Strategy
from stellwerk_cluster.defaults.group_strategy import (
    admit_pod_group_update,
    admit_workload_update,
    default_pod_group,
    prepare_pod_group,
    prepare_workload,
)
from stellwerk_cluster.defaults.kind_defaults import (
    default_autoscaler,
    default_claim,
    default_claim_template,
    default_csi_driver,
    default_definition,
    default_limit_range,
    default_namespace,
    default_network_policy,
    default_node,
    default_priority_class,
    default_resource_claim,
    default_role_binding,
    default_secret,
    default_slice,
    default_storage_class,
    default_volume,
    prepare_definition,
    prepare_definition_update,
    prepare_namespace,
    prepare_namespace_update,
)
from stellwerk_cluster.defaults.pod_defaults import default_pod
from stellwerk_cluster.defaults.pod_strategy import (
    drop_group_of_new_template,
    drop_group_of_template,
    merge_label_keys,
    prepare_pod_update,
)
from stellwerk_cluster.defaults.service_addresses import (
    allocate_for_changed_service,
    allocate_for_service,
)
from stellwerk_cluster.defaults.service_defaults import (
    default_endpoint_slice,
    default_endpoints,
    default_service,
    prepare_service,
    prepare_service_update,
)
from stellwerk_cluster.defaults.workload_defaults import (
    default_cron_job,
    default_daemon_set,
    default_deployment,
    default_job,
    default_pod_template,
    default_replica_set,
    default_replication_controller,
    default_stateful_set,
    label_job,
)
from stellwerk_cluster.validation.access_rules import (
    path_segment_errors,
    validate_cluster_role,
    validate_cluster_role_binding,
    validate_cluster_role_binding_update,
    validate_cluster_role_update,
    validate_role,
    validate_role_binding,
    validate_role_binding_update,
    validate_role_update,
)
from stellwerk_cluster.validation.autoscaling import validate_autoscaler
from stellwerk_cluster.validation.claims import validate_claim, validate_claim_update
from stellwerk_cluster.validation.cluster_objects import (
    validate_budget,
    validate_budget_update,
    validate_lease,
    validate_lease_update,
    validate_namespace,
    validate_namespace_update,
)
from stellwerk_cluster.validation.config_data import (
    validate_config_map,
    validate_config_map_update,
    validate_secret,
    validate_secret_update,
)
from stellwerk_cluster.validation.definitions import validate_definition, validate_definition_update
from stellwerk_cluster.validation.device_slices import validate_slice, validate_slice_update
from stellwerk_cluster.validation.devices import (
    validate_claim_template,
    validate_claim_template_update,
    validate_device_class,
    validate_device_class_update,
    validate_resource_claim,
    validate_resource_claim_update,
)
from stellwerk_cluster.validation.events import (
    validate_new_event,
    validate_new_event_update,
    validate_old_event,
    validate_old_event_update,
)
from stellwerk_cluster.validation.jobs import (
    job_warnings,
    validate_cron_job,
    validate_cron_job_update,
    validate_job,
    validate_job_update,
)
from stellwerk_cluster.validation.limit_ranges import validate_limit_range
from stellwerk_cluster.validation.networking import (
    validate_endpoint_slice,
    validate_endpoint_slice_update,
    validate_endpoints,
    validate_ingress,
    validate_network_policy,
)
from stellwerk_cluster.validation.nodes import validate_node, validate_node_update
from stellwerk_cluster.validation.pod_groups import (
    validate_pod_group,
    validate_pod_group_update,
    validate_workload,
    validate_workload_update,
)
from stellwerk_cluster.validation.pod_updates import validate_pod_update
from stellwerk_cluster.validation.pod_warnings import pod_warnings
from stellwerk_cluster.validation.pods import validate_pod
from stellwerk_cluster.validation.quotas import validate_quota, validate_quota_update
from stellwerk_cluster.validation.scheduling_classes import (
    runtime_class_warnings,
    validate_priority_class,
    validate_priority_class_update,
    validate_runtime_class,
    validate_runtime_class_update,
)
from stellwerk_cluster.validation.services import validate_service, validate_service_update
from stellwerk_cluster.validation.storage import (
    validate_csi_driver,
    validate_csi_driver_update,
    validate_csi_node,
    validate_csi_node_update,
    validate_storage_class,
    validate_storage_class_update,
)
from stellwerk_cluster.validation.volumes import validate_volume, validate_volume_update
from stellwerk_cluster.validation.workloads import (
    selector_change_errors,
    stateful_change_errors,
    validate_daemon_set,
    validate_deployment,
    validate_replica_set,
    validate_replication_controller,
    validate_stateful_set,
    workload_warnings,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.apimachinery.failures import FieldError

_PLAIN: Final = Strategy()


def _no_default(_obj: JsonObject) -> None:
    return


def _no_change(*_: object) -> Iterator[FieldError]:
    return iter(())


def _workload(
    default: Callable[[JsonObject], None],
    validate: Callable[[JsonObject], Iterator[FieldError]],
    change: Callable[[JsonObject, JsonObject], Iterator[FieldError]] = _no_change,
    layers: tuple[int, int] = (1, 1),
) -> Strategy:
    """The strategy of a kind with a selector and a pod template."""

    def validate_update(new: JsonObject, old: JsonObject, subresource: str) -> Iterator[FieldError]:
        if not subresource:
            yield from validate(new)
            yield from change(new, old)

    return Strategy(
        default=default,
        admit_create=drop_group_of_new_template,
        validate=validate,
        admit_update=drop_group_of_template,
        validate_update=validate_update,
        warn=workload_warnings,
        metadata_layers=layers,
        kept_by_status=(),
    )


def _stored(
    validate: Callable[[JsonObject], Iterator[FieldError]],
    default: Callable[[JsonObject], None] = _no_default,
    layers: tuple[int, int] = (1, 0),
) -> Strategy:
    """The strategy of a kind whose objects may change at will, as long as they are valid."""

    def validate_update(
        new: JsonObject, _old: JsonObject, subresource: str
    ) -> Iterator[FieldError]:
        return iter(()) if subresource else validate(new)

    return Strategy(
        default=default,
        validate=validate,
        validate_update=validate_update,
        metadata_layers=layers,
        kept_by_status=(),
    )


_BY_TYPE: Final[dict[str, Strategy]] = {
    "Pod": Strategy(
        default=default_pod,
        prepare_create=merge_label_keys,
        admit_create=admit_pod,
        check_create=check_pod,
        validate=validate_pod,
        prepare_update=prepare_pod_update,
        admit_update=admit_pod_update,
        validate_update=validate_pod_update,
        warn=pod_warnings,
        kept_by_status=("ownerReferences",),
    ),
    "Node": Strategy(
        default=default_node,
        prepare_create=prepare_node,
        validate=validate_node,
        validate_update=validate_node_update,
        status_in_create=True,
        kept_by_status=(),
    ),
    "Event": Strategy(validate=validate_old_event, validate_update=validate_old_event_update),
    "EventsEvent": Strategy(validate=validate_new_event, validate_update=validate_new_event_update),
    "LimitRange": Strategy(
        default=default_limit_range,
        validate=validate_limit_range,
        validate_update=lambda new, _old, _subresource: validate_limit_range(new),
        metadata_layers=(0, 1),
    ),
    "ResourceQuota": Strategy(
        kept_by_status=(),
        validate=validate_quota,
        validate_update=validate_quota_update,
        metadata_layers=(1, 0),
    ),
    "Namespace": Strategy(
        kept_by_status=(),
        default=default_namespace,
        prepare_create=prepare_namespace,
        prepare_update=prepare_namespace_update,
        validate=validate_namespace,
        validate_update=validate_namespace_update,
        admit_delete=protect_namespace,
        name_errors=label_errors,
    ),
    "PriorityClass": Strategy(
        default=default_priority_class,
        check_create=admit_priority_class,
        admit_update=admit_priority_class_update,
        validate=validate_priority_class,
        validate_update=validate_priority_class_update,
        admit_delete=protect_priority_class,
        metadata_layers=(1, 0),
    ),
    "PodDisruptionBudget": Strategy(
        kept_by_status=(),
        validate=validate_budget,
        validate_update=validate_budget_update,
        metadata_layers=(0, 1),
    ),
    "Lease": Strategy(
        validate=validate_lease,
        validate_update=validate_lease_update,
        metadata_layers=(1, 0),
    ),
    "ConfigMap": Strategy(
        validate=validate_config_map,
        validate_update=validate_config_map_update,
    ),
    "Secret": Strategy(
        default=default_secret,
        validate=validate_secret,
        validate_update=validate_secret_update,
    ),
    "RuntimeClass": Strategy(
        validate=validate_runtime_class,
        validate_update=validate_runtime_class_update,
        warn=runtime_class_warnings,
    ),
    "Service": Strategy(
        kept_by_status=(),
        default=default_service,
        prepare_create=prepare_service,
        admit_create=allocate_for_service,
        validate=validate_service,
        prepare_update=prepare_service_update,
        admit_update=allocate_for_changed_service,
        validate_update=validate_service_update,
        name_errors=label_errors,
    ),
    "PersistentVolume": Strategy(
        kept_by_status=(),
        default=default_volume,
        prepare_create=prepare_volume,
        validate=validate_volume,
        validate_update=validate_volume_update,
        metadata_layers=(0, 2),
    ),
    "PersistentVolumeClaim": Strategy(
        kept_by_status=(),
        default=default_claim,
        prepare_create=prepare_claim,
        validate=validate_claim,
        check_create=check_limits,
        admit_update=admit_claim_update,
        validate_update=validate_claim_update,
        metadata_layers=(1, 2),
    ),
    "StorageClass": Strategy(
        default=default_storage_class,
        validate=validate_storage_class,
        validate_update=validate_storage_class_update,
    ),
    "DeviceResourceClaim": Strategy(
        default=default_resource_claim,
        admit_create=check_admin_access,
        validate=validate_resource_claim,
        validate_update=validate_resource_claim_update,
    ),
    "ResourceClaimTemplate": Strategy(
        default=default_claim_template,
        admit_create=check_admin_access,
        validate=validate_claim_template,
        validate_update=validate_claim_template_update,
    ),
    "DeviceClass": Strategy(
        validate=validate_device_class, validate_update=validate_device_class_update
    ),
    "ResourceSlice": Strategy(
        default=default_slice,
        validate=validate_slice,
        validate_update=validate_slice_update,
    ),
    "CSIDriver": Strategy(
        default=default_csi_driver,
        validate=validate_csi_driver,
        validate_update=validate_csi_driver_update,
        metadata_layers=(1, 0),
    ),
    "CSINode": Strategy(
        validate=validate_csi_node,
        validate_update=validate_csi_node_update,
        metadata_layers=(0, 1),
    ),
    "CustomResourceDefinition": Strategy(
        default=default_definition,
        prepare_create=prepare_definition,
        prepare_update=prepare_definition_update,
        validate=validate_definition,
        validate_update=validate_definition_update,
    ),
    "Deployment": replace(
        _workload(
            default_deployment,
            validate_deployment,
            selector_change_errors,
            (1, 0),
        ),
        kept_by_status=("labels",),
    ),
    "ReplicaSet": _workload(
        default_replica_set,
        validate_replica_set,
        selector_change_errors,
    ),
    "ReplicationController": _workload(
        default_replication_controller,
        validate_replication_controller,
    ),
    "StatefulSet": _workload(
        default_stateful_set,
        validate_stateful_set,
        stateful_change_errors,
        (0, 1),
    ),
    "DaemonSet": _workload(
        default_daemon_set,
        validate_daemon_set,
        selector_change_errors,
    ),
    "Job": Strategy(
        kept_by_status=(),
        default=default_job,
        prepare_create=label_job,
        admit_create=drop_group_of_new_template,
        validate=validate_job,
        admit_update=admit_job_update,
        validate_update=validate_job_update,
        warn=job_warnings,
    ),
    "CronJob": Strategy(
        kept_by_status=(),
        default=default_cron_job,
        admit_create=drop_group_of_new_template,
        validate=validate_cron_job,
        admit_update=drop_group_of_template,
        validate_update=validate_cron_job_update,
        metadata_layers=(1, 0),
    ),
    "HorizontalPodAutoscaler": _stored(validate_autoscaler, default_autoscaler),
    "HorizontalPodAutoscalerV1": _stored(validate_autoscaler, default_autoscaler),
    "Ingress": replace(_stored(validate_ingress), admit_create=admit_ingress),
    "NetworkPolicy": _stored(validate_network_policy, default_network_policy),
    "Endpoints": _stored(validate_endpoints, default_endpoints, (1, 1)),
    "EndpointSlice": Strategy(
        default=default_endpoint_slice,
        validate=validate_endpoint_slice,
        validate_update=validate_endpoint_slice_update,
        metadata_layers=(0, 1),
    ),
    "Role": Strategy(
        validate=validate_role,
        validate_update=validate_role_update,
        name_errors=path_segment_errors,
        metadata_layers=(1, 2),
    ),
    "ClusterRole": Strategy(
        validate=validate_cluster_role,
        validate_update=validate_cluster_role_update,
        name_errors=path_segment_errors,
        metadata_layers=(1, 2),
    ),
    "RoleBinding": Strategy(
        default=default_role_binding,
        validate=validate_role_binding,
        validate_update=validate_role_binding_update,
        name_errors=path_segment_errors,
        metadata_layers=(1, 2),
    ),
    "ClusterRoleBinding": Strategy(
        default=default_role_binding,
        validate=validate_cluster_role_binding,
        validate_update=validate_cluster_role_binding_update,
        name_errors=path_segment_errors,
        metadata_layers=(1, 2),
    ),
    "PodGroup": Strategy(
        default=default_pod_group,
        prepare_create=prepare_pod_group,
        admit_create=admit_pod_group,
        check_create=check_pod_group,
        validate=validate_pod_group,
        admit_update=admit_pod_group_update,
        validate_update=validate_pod_group_update,
    ),
    "Workload": Strategy(
        prepare_create=prepare_workload,
        validate=validate_workload,
        admit_update=admit_workload_update,
        validate_update=validate_workload_update,
    ),
    "PodTemplate": Strategy(default=default_pod_template),
}


def strategy_of(type_name: str) -> Strategy:
    """The rules of a built-in kind; kinds without rules of their own share the neutral ones."""
    return _BY_TYPE.get(type_name, _PLAIN)
