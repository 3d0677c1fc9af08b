"""From kube-scheduler's configuration files to SchedulerProfiles: `stellwerk convert`."""
