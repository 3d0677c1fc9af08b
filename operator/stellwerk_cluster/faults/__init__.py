"""Faults between a client and the API: a table that says what goes wrong, and what does it."""
