"""Plugins that people add to kube-scheduler: load-aware and NUMA-aware scores, quotas, and more.

They decide as those of kubernetes-sigs/scheduler-plugins do (main branch of August 2026), with
their names and arguments. Profiles name them as any user's package, through the entry points of
this distribution. Invariant: nothing of Stellwerk is imported here but `stellwerk.plugin_api`.
"""
