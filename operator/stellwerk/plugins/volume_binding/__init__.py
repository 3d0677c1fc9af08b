"""VolumeBinding: the plugin, the binder that finds volumes, and what it keeps and writes.

`plugin` has the extension points and the hints, `binder` searches existing volumes (`volume_pools`)
and those still to be made (`provisioning`), `writes` is carried out by PreBind.
"""
