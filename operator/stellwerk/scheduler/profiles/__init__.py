"""From SchedulerProfile objects to served profiles: loading, status, limits on their plugins."""
