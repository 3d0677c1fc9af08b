"""The contract between scheduler and plugins, and the runtime that keeps it.

`interface` has the extension points, `services` what plugins are offered, `types` the values they
give and read; `runtime` runs a profile's plugins.
"""
