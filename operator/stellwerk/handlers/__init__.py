"""kopf in, method calls out: watch events become calls of the ClusterEvents protocol."""
