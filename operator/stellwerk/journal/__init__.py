"""Journals: events and decisions as a file, written within bounds and read again."""
