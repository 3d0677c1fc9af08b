"""Kubernetes objects and SchedulerProfiles as slim records, and the meaning of their fields."""
