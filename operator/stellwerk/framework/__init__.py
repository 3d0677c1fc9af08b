"""The contract between scheduler and plugins, and the runtime that keeps it.

`interface` has the extension points, `services` the protocols offered to plugins, `types` the
values that both exchange. `runtime` puts a profile's plugins together: `filter_phase`,
`score_phase` and `binding_points` run them.
"""
