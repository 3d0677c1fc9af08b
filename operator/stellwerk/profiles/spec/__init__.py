"""A SchedulerProfile as an object of the API: its fields, defaults, arguments and definition.

Decisions, commands and the converter read it. Invariant: nothing here needs a cluster or a World.
"""
