"""Workloads run against clusters in virtual time, in process, with the scheduler's own decisions."""
