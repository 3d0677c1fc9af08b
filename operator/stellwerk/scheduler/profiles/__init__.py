"""The profiles that are served, and what they bring: frameworks, queueing, status."""
