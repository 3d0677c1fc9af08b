"""Devices: what slices publish, what claims ask for, and the search that brings them together.

The room of DynamicResources, and of NodeResourcesFit where classes back extended resources.
"""
