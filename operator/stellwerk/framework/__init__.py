"""The contract between scheduler and plugins, and the runtime that keeps it.

`interface` has the extension points, `services` what plugins are offered; `runtime` runs a
profile's plugins: `filtering` and `scoring` in the scheduling cycle, `binding` after it.
"""
