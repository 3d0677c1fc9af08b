"""kopf in, method calls out: watch events become calls of the WatchHandlers protocol.

The table of kinds and discovery are here, too, and do without kopf.
"""
