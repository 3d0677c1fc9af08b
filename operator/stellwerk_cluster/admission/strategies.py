"""The strategy of every built-in kind, by the name of its type.

Asked by the verbs. Invariant: a kind without a line here has no rules of its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.admission import (
    access_rules,
    autoscaling,
    claims,
    cluster_objects,
    config_data,
    definitions,
    device_slices,
    devices,
    events,
    jobs,
    limit_ranges,
    networking,
    nodes,
    pod_admission,
    pod_defaults,
    pod_groups,
    pod_preparation,
    pod_updates,
    pod_validation,
    pod_warnings,
    quotas,
    scheduling_classes,
    scheduling_groups,
    service_addresses,
    services,
    storage,
    stored_only,
    volumes,
    workload_validation,
    workloads,
)
from stellwerk_cluster.admission.strategy import Strategy
from stellwerk_cluster.apimachinery.names import label_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.apimachinery.failures import Cause

_PLAIN: Final = Strategy()


def _no_default(_obj: JsonObject) -> None:
    return


def _no_change(*_: object) -> Iterator[Cause]:
    return iter(())


def _workload(
    default: Callable[[JsonObject], None],
    validate: Callable[[JsonObject], Iterator[Cause]],
    change: Callable[[JsonObject, JsonObject], Iterator[Cause]] = _no_change,
    layers: tuple[int, int] = (1, 1),
) -> Strategy:
    """The strategy of a kind with a selector and a pod template."""

    def validate_update(new: JsonObject, old: JsonObject, subresource: str) -> Iterator[Cause]:
        if not subresource:
            yield from validate(new)
            yield from change(new, old)

    return Strategy(
        default=default,
        admit_create=scheduling_groups.drop_group_of_new_template,
        validate=validate,
        admit_update=scheduling_groups.drop_group_of_template,
        validate_update=validate_update,
        warn=workload_validation.workload_warnings,
        metadata_layers=layers,
        kept_by_status=(),
    )


def _stored(
    validate: Callable[[JsonObject], Iterator[Cause]],
    default: Callable[[JsonObject], None] = _no_default,
    layers: tuple[int, int] = (1, 0),
) -> Strategy:
    """The strategy of a kind whose objects may change at will, as long as they are valid."""

    def validate_update(new: JsonObject, _old: JsonObject, subresource: str) -> Iterator[Cause]:
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
        default=pod_defaults.default_pod,
        prepare_create=pod_preparation.merge_label_keys,
        admit_create=pod_admission.admit_pod,
        check_create=pod_admission.check_pod,
        validate=pod_validation.validate_pod,
        prepare_update=pod_updates.prepare_pod_update,
        admit_update=pod_admission.admit_pod_update,
        validate_update=pod_updates.validate_pod_update,
        warn=pod_warnings.pod_warnings,
        kept_by_status=("ownerReferences",),
    ),
    "Node": Strategy(
        default=nodes.default_node,
        prepare_create=nodes.prepare_node,
        validate=nodes.validate_node,
        validate_update=nodes.validate_node_update,
        status_in_create=True,
        kept_by_status=(),
    ),
    "Event": Strategy(
        validate=events.validate_old_event, validate_update=events.validate_old_event_update
    ),
    "EventsEvent": Strategy(
        validate=events.validate_new_event, validate_update=events.validate_new_event_update
    ),
    "LimitRange": Strategy(
        default=limit_ranges.default_limit_range,
        validate=limit_ranges.validate_limit_range,
        validate_update=lambda new, _old, _subresource: limit_ranges.validate_limit_range(new),
        metadata_layers=(0, 1),
    ),
    "ResourceQuota": Strategy(
        kept_by_status=(),
        validate=quotas.validate_quota,
        validate_update=quotas.validate_quota_update,
        metadata_layers=(1, 0),
    ),
    "Namespace": Strategy(
        kept_by_status=(),
        default=cluster_objects.default_namespace,
        prepare_create=cluster_objects.prepare_namespace,
        prepare_update=cluster_objects.prepare_namespace_update,
        validate=cluster_objects.validate_namespace,
        validate_update=cluster_objects.validate_namespace_update,
        admit_delete=cluster_objects.protect_namespace,
        name_errors=label_errors,
    ),
    "PriorityClass": Strategy(
        default=scheduling_classes.default_priority_class,
        check_create=scheduling_classes.admit_priority_class,
        admit_update=scheduling_classes.admit_priority_class_update,
        validate=scheduling_classes.validate_priority_class,
        validate_update=scheduling_classes.validate_priority_class_update,
        admit_delete=scheduling_classes.protect_priority_class,
        metadata_layers=(1, 0),
    ),
    "PodDisruptionBudget": Strategy(
        kept_by_status=(),
        validate=cluster_objects.validate_budget,
        validate_update=cluster_objects.validate_budget_update,
        metadata_layers=(0, 1),
    ),
    "Lease": Strategy(
        validate=cluster_objects.validate_lease,
        validate_update=cluster_objects.validate_lease_update,
        metadata_layers=(1, 0),
    ),
    "ConfigMap": Strategy(
        validate=config_data.validate_config_map,
        validate_update=config_data.validate_config_map_update,
    ),
    "Secret": Strategy(
        default=config_data.default_secret,
        validate=config_data.validate_secret,
        validate_update=config_data.validate_secret_update,
    ),
    "RuntimeClass": Strategy(
        validate=scheduling_classes.validate_runtime_class,
        validate_update=scheduling_classes.validate_runtime_class_update,
        warn=scheduling_classes.runtime_class_warnings,
    ),
    "Service": Strategy(
        kept_by_status=(),
        default=services.default_service,
        prepare_create=services.prepare_service,
        admit_create=service_addresses.allocate_for_service,
        validate=services.validate_service,
        prepare_update=services.prepare_service_update,
        admit_update=service_addresses.allocate_for_changed_service,
        validate_update=services.validate_service_update,
        name_errors=label_errors,
    ),
    "PersistentVolume": Strategy(
        kept_by_status=(),
        default=volumes.default_volume,
        prepare_create=volumes.prepare_volume,
        validate=volumes.validate_volume,
        validate_update=volumes.validate_volume_update,
        metadata_layers=(0, 2),
    ),
    "PersistentVolumeClaim": Strategy(
        kept_by_status=(),
        default=storage.default_claim,
        prepare_create=storage.prepare_claim,
        validate=claims.validate_claim,
        check_create=limit_ranges.check_limits,
        admit_update=storage.admit_claim_update,
        validate_update=claims.validate_claim_update,
        metadata_layers=(1, 2),
    ),
    "StorageClass": Strategy(
        default=storage.default_storage_class,
        validate=storage.validate_storage_class,
        validate_update=storage.validate_storage_class_update,
    ),
    "DeviceResourceClaim": Strategy(
        default=devices.default_claim,
        admit_create=devices.admit_claim,
        validate=devices.validate_claim,
        validate_update=devices.validate_claim_update,
    ),
    "ResourceClaimTemplate": Strategy(
        default=devices.default_template,
        admit_create=devices.admit_claim,
        validate=devices.validate_template,
        validate_update=devices.validate_template_update,
    ),
    "DeviceClass": Strategy(
        validate=devices.validate_class, validate_update=devices.validate_class_update
    ),
    "ResourceSlice": Strategy(
        default=device_slices.default_slice,
        validate=device_slices.validate_slice,
        validate_update=device_slices.validate_slice_update,
    ),
    "CSIDriver": Strategy(
        default=storage.default_csi_driver,
        validate=storage.validate_csi_driver,
        validate_update=storage.validate_csi_driver_update,
        metadata_layers=(1, 0),
    ),
    "CSINode": Strategy(
        validate=storage.validate_csi_node,
        validate_update=storage.validate_csi_node_update,
        metadata_layers=(0, 1),
    ),
    "CustomResourceDefinition": Strategy(
        default=definitions.default_definition,
        prepare_create=definitions.prepare_definition,
        prepare_update=definitions.prepare_definition_update,
        validate=definitions.validate_definition,
        validate_update=definitions.validate_definition_update,
    ),
    "Deployment": replace(
        _workload(
            workloads.default_deployment,
            workload_validation.validate_deployment,
            workload_validation.selector_change_causes,
            (1, 0),
        ),
        kept_by_status=("labels",),
    ),
    "ReplicaSet": _workload(
        workloads.default_replica_set,
        workload_validation.validate_replica_set,
        workload_validation.selector_change_causes,
    ),
    "ReplicationController": _workload(
        workloads.default_replication_controller,
        workload_validation.validate_replication_controller,
    ),
    "StatefulSet": _workload(
        workloads.default_stateful_set,
        workload_validation.validate_stateful_set,
        workload_validation.stateful_change_causes,
        (0, 1),
    ),
    "DaemonSet": _workload(
        workloads.default_daemon_set,
        workload_validation.validate_daemon_set,
        workload_validation.selector_change_causes,
    ),
    "Job": Strategy(
        kept_by_status=(),
        default=jobs.default_job,
        prepare_create=jobs.label_job,
        admit_create=scheduling_groups.drop_group_of_new_template,
        validate=jobs.validate_job,
        admit_update=jobs.admit_job_update,
        validate_update=jobs.validate_job_update,
        warn=jobs.job_warnings,
    ),
    "CronJob": Strategy(
        kept_by_status=(),
        default=workloads.default_cron_job,
        admit_create=scheduling_groups.drop_group_of_new_template,
        validate=jobs.validate_cron_job,
        admit_update=scheduling_groups.drop_group_of_template,
        validate_update=jobs.validate_cron_job_update,
        metadata_layers=(1, 0),
    ),
    "HorizontalPodAutoscaler": _stored(
        autoscaling.validate_autoscaler, stored_only.default_autoscaler
    ),
    "HorizontalPodAutoscalerV1": _stored(
        autoscaling.validate_autoscaler, stored_only.default_autoscaler
    ),
    "Ingress": replace(_stored(networking.validate_ingress), admit_create=networking.admit_ingress),
    "NetworkPolicy": _stored(
        networking.validate_network_policy, stored_only.default_network_policy
    ),
    "Endpoints": _stored(networking.validate_endpoints, services.default_endpoints, (1, 1)),
    "EndpointSlice": Strategy(
        default=services.default_endpoint_slice,
        validate=networking.validate_endpoint_slice,
        validate_update=networking.validate_endpoint_slice_update,
        metadata_layers=(0, 1),
    ),
    "Role": Strategy(
        validate=access_rules.validate_role,
        validate_update=access_rules.validate_role_update,
        name_errors=access_rules.path_segment_errors,
        metadata_layers=(1, 2),
    ),
    "ClusterRole": Strategy(
        validate=access_rules.validate_cluster_role,
        validate_update=access_rules.validate_cluster_role_update,
        name_errors=access_rules.path_segment_errors,
        metadata_layers=(1, 2),
    ),
    "RoleBinding": Strategy(
        default=stored_only.default_role_binding,
        validate=access_rules.validate_role_binding,
        validate_update=access_rules.validate_role_binding_update,
        name_errors=access_rules.path_segment_errors,
        metadata_layers=(1, 2),
    ),
    "ClusterRoleBinding": Strategy(
        default=stored_only.default_role_binding,
        validate=access_rules.validate_cluster_role_binding,
        validate_update=access_rules.validate_cluster_role_binding_update,
        name_errors=access_rules.path_segment_errors,
        metadata_layers=(1, 2),
    ),
    "PodGroup": Strategy(
        default=pod_groups.default_pod_group,
        prepare_create=pod_groups.prepare_pod_group,
        admit_create=pod_groups.admit_pod_group,
        check_create=pod_groups.check_pod_group,
        validate=pod_groups.validate_pod_group,
        admit_update=pod_groups.admit_pod_group_update,
        validate_update=pod_groups.validate_pod_group_update,
    ),
    "Workload": Strategy(
        prepare_create=pod_groups.prepare_workload,
        validate=pod_groups.validate_workload,
        admit_update=pod_groups.admit_workload_update,
        validate_update=pod_groups.validate_workload_update,
    ),
    "PodTemplate": Strategy(default=workloads.default_pod_template),
}


def strategy_of(type_name: str) -> Strategy:
    """The rules of a built-in kind; kinds without rules of their own share the neutral ones."""
    return _BY_TYPE.get(type_name, _PLAIN)
