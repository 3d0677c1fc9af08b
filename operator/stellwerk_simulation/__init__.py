"""Workloads run against clusters in virtual time, in process, decided as the operator decides."""
