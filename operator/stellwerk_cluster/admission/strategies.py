"""The strategy of every built-in kind, by the name of its type.

Asked by the verbs. Invariant: a kind without a line here has no rules of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.admission import (
    access_rules,
    cluster_objects,
    definitions,
    events,
    nodes,
    pod_admission,
    pod_defaults,
    pod_validation,
    scheduling_classes,
    services,
    stored_only,
    volumes,
    workloads,
)
from stellwerk_cluster.admission.strategy import Strategy
from stellwerk_cluster.apimachinery.names import label_errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from stellwerk.models.json_values import JsonObject

_PLAIN: Final = Strategy()


def _workload(default: Callable[[JsonObject], None]) -> Strategy:
    """The strategy of a kind with a selector and a pod template."""
    return Strategy(
        default=default,
        validate=workloads.validate_workload,
        validate_update=workloads.validate_workload_update,
    )


_BY_TYPE: Final[dict[str, Strategy]] = {
    "Pod": Strategy(
        default=pod_defaults.default_pod,
        admit_create=pod_admission.admit_pod,
        validate=pod_validation.validate_pod,
        prepare_update=pod_validation.prepare_pod_update,
        admit_update=pod_admission.admit_pod_update,
        validate_update=pod_validation.validate_pod_update,
        metadata_by_status=True,
    ),
    "Node": Strategy(
        prepare_create=nodes.prepare_node,
        validate=nodes.validate_node,
        validate_update=nodes.validate_node_update,
        status_in_create=True,
        metadata_by_status=True,
    ),
    "Event": Strategy(
        validate=events.validate_old_event, validate_update=events.validate_old_event_update
    ),
    "EventsEvent": Strategy(
        validate=events.validate_new_event, validate_update=events.validate_new_event_update
    ),
    "Namespace": Strategy(
        default=cluster_objects.default_namespace,
        prepare_create=cluster_objects.prepare_namespace,
        prepare_update=cluster_objects.prepare_namespace_update,
        admit_delete=cluster_objects.protect_namespace,
        name_errors=label_errors,
    ),
    "PriorityClass": Strategy(
        default=scheduling_classes.default_priority_class,
        admit_create=scheduling_classes.admit_priority_class,
        admit_update=scheduling_classes.admit_priority_class_update,
        validate=scheduling_classes.validate_priority_class,
        validate_update=scheduling_classes.validate_priority_class_update,
        admit_delete=scheduling_classes.protect_priority_class,
    ),
    "RuntimeClass": Strategy(
        validate=scheduling_classes.validate_runtime_class,
        validate_update=scheduling_classes.validate_runtime_class_update,
    ),
    "PodDisruptionBudget": Strategy(
        validate=cluster_objects.validate_budget,
        validate_update=cluster_objects.validate_budget_update,
    ),
    "Lease": Strategy(
        validate=cluster_objects.validate_lease,
        validate_update=cluster_objects.validate_lease_update,
    ),
    "ConfigMap": Strategy(
        validate=cluster_objects.validate_config_map,
        validate_update=cluster_objects.validate_config_map_update,
    ),
    "Secret": Strategy(
        default=cluster_objects.default_secret,
        validate=cluster_objects.validate_secret,
        validate_update=cluster_objects.validate_config_map_update,
    ),
    "Service": Strategy(
        default=services.default_service,
        admit_create=services.allocate_service_address,
        validate=services.validate_service,
        validate_update=services.validate_service_update,
    ),
    "PersistentVolume": Strategy(
        default=volumes.default_volume,
        prepare_create=volumes.prepare_volume,
        validate=volumes.validate_volume,
    ),
    "PersistentVolumeClaim": Strategy(
        default=volumes.default_claim,
        prepare_create=volumes.prepare_claim,
        validate=volumes.validate_claim,
        validate_update=volumes.validate_claim_update,
    ),
    "StorageClass": Strategy(
        default=volumes.default_storage_class,
        validate=volumes.validate_storage_class,
        validate_update=volumes.validate_storage_class_update,
    ),
    "CSIDriver": Strategy(default=volumes.default_csi_driver),
    "CustomResourceDefinition": Strategy(
        default=definitions.default_definition,
        prepare_create=definitions.prepare_definition,
        prepare_update=definitions.prepare_definition_update,
        validate=definitions.validate_definition,
        validate_update=definitions.validate_definition_update,
    ),
    "Deployment": _workload(workloads.default_deployment),
    "ReplicaSet": _workload(workloads.default_replica_set),
    "ReplicationController": Strategy(default=workloads.default_replication_controller),
    "StatefulSet": _workload(workloads.default_stateful_set),
    "DaemonSet": _workload(workloads.default_daemon_set),
    "Job": Strategy(
        default=workloads.default_job,
        prepare_create=workloads.label_job,
        validate=workloads.validate_job,
        validate_update=workloads.validate_job_update,
    ),
    "CronJob": Strategy(default=stored_only.default_cron_job),
    "HorizontalPodAutoscaler": Strategy(default=stored_only.default_autoscaler),
    "HorizontalPodAutoscalerV1": Strategy(default=stored_only.default_autoscaler),
    "NetworkPolicy": Strategy(default=stored_only.default_network_policy),
    "Role": Strategy(
        validate=access_rules.validate_role,
        validate_update=access_rules.validate_role_update,
        name_errors=access_rules.path_segment_errors,
    ),
    "ClusterRole": Strategy(
        validate=access_rules.validate_cluster_role,
        validate_update=access_rules.validate_cluster_role_update,
        name_errors=access_rules.path_segment_errors,
    ),
    "RoleBinding": Strategy(
        default=stored_only.default_role_binding,
        validate=access_rules.validate_role_binding,
        validate_update=access_rules.validate_role_binding_update,
        name_errors=access_rules.path_segment_errors,
    ),
    "ClusterRoleBinding": Strategy(
        default=stored_only.default_role_binding,
        validate=access_rules.validate_cluster_role_binding,
        validate_update=access_rules.validate_cluster_role_binding_update,
        name_errors=access_rules.path_segment_errors,
    ),
    "Endpoints": Strategy(default=stored_only.default_endpoints),
    "EndpointSlice": Strategy(default=stored_only.default_endpoint_slice),
    "PodTemplate": Strategy(default=workloads.default_pod_template),
}


def strategy_of(type_name: str) -> Strategy:
    """The rules of a built-in kind; kinds without rules of their own share the neutral ones."""
    return _BY_TYPE.get(type_name, _PLAIN)
